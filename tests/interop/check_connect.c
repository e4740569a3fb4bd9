/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections themselves: many of them, rejected ones, one whose client dies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

/* Reject reasons of the InfiniBand CM, as rdma_cm hands them on in the event's status. */
enum { REASON_INVALID_SERVICE = 8, REASON_CONSUMER = 28 };

#define UNUSED_PORT 7999

void check_cycles(const char *count)
{
	unsigned long n = count ? strtoul(count, NULL, 0) : 10;
	struct peer peer;

	for (unsigned long i = 0; i < n; i++) {
		char name[64];

		snprintf(name, sizeof(name), "cycles %lu of %lu", i + 1, n);
		if (!must_connect(&peer, name, &ASK(.offset = i * 8192, .length = 8192)))
			return;
		if (!must_write_and_read(&peer, name, &peer.window)) {
			peer_close(&peer);
			return;
		}
		if (!must_close(&peer, name))
			return;
	}
	report_ok("cycles %lu", n);
}

/* The kernel closes what is left, with a READ of many packets in flight. */
void check_die(const char *argument)
{
	struct peer peer;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1 };
	int error;

	if (!must_connect(&peer, "die", &ASK()))
		return;
	sge = peer_sge(&peer, 0, 1 << 20);
	wr.wr.rdma.remote_addr = peer.window.addr;
	wr.wr.rdma.rkey = peer.window.token;
	error = peer_post(&peer, &wr);
	if (!must_complete(&peer, "die", "post", IBV_WC_SUCCESS, error))
		return;
	report_ok("die");
	fflush(stdout);
	_exit(0);
}

static void must_be_rejected(const char *name, unsigned short port, const struct ask *ask,
			     int reason, uint32_t code)
{
	uint32_t magic = code ? REFUSE_MAGIC : 0;
	struct peer peer;
	int error = connect_to(&peer, port, ask);

	if (error != -ECONNREFUSED || peer.refusal.event != RDMA_CM_EVENT_REJECTED ||
	    peer.refusal.status != reason || peer.refusal.magic != magic ||
	    peer.refusal.code != code)
		report_failure("%s: expected RDMA_CM_EVENT_REJECTED status %d private data %08x "
			       "%08x, got %s",
			       name, reason, magic, code,
			       error ? status_text(&peer, error) : "a connection");
	else
		report_ok("%s", name);
	peer_close(&peer);
}

void check_reject(const char *argument)
{
	struct ask bad = ASK();
	struct peer peer;

	must_be_rejected("reject unknown export", options.port, &ASK(.name = "no-such-export"),
			 REASON_CONSUMER, REFUSED_NO_EXPORT);
	must_be_rejected("reject offset past the end", options.port, &ASK(.offset = 1ull << 40),
			 REASON_CONSUMER, REFUSED_RANGE);
	must_be_rejected("reject length past the end", options.port,
			 &ASK(.offset = 4096, .length = 1ull << 40), REASON_CONSUMER,
			 REFUSED_RANGE);
	must_be_rejected("reject wrapping range", options.port,
			 &ASK(.offset = 4096, .length = UINT64_MAX - 100), REASON_CONSUMER,
			 REFUSED_RANGE);
	bad.magic = 0x12345678;
	must_be_rejected("reject bad magic", options.port, &bad, REASON_CONSUMER,
			 REFUSED_BAD_REQUEST);
	bad.magic = ASK_MAGIC;
	bad.version = 9;
	must_be_rejected("reject bad version", options.port, &bad, REASON_CONSUMER,
			 REFUSED_BAD_REQUEST);
	if (options.read_only_port)
		must_be_rejected("reject access", options.read_only_port,
				 &ASK(.access = ACCESS_WRITE), REASON_CONSUMER, REFUSED_ACCESS);
	must_be_rejected("reject unused port", UNUSED_PORT, &ASK(), REASON_INVALID_SERVICE, 0);
	if (must_connect(&peer, "reject then connect", &ASK()) &&
	    must_write_and_read(&peer, "reject then connect", &peer.window) &&
	    must_close(&peer, "reject then connect"))
		report_ok("reject then connect");
}

void check_hold(const char *seconds)
{
	struct peer peer;
	int error;

	if (!must_connect(&peer, "hold", &ASK()) ||
	    !must_write_and_read(&peer, "hold", &peer.window))
		return;
	printf("# holding\n");
	error = peer_await_disconnect(&peer, seconds ? (unsigned int)atoi(seconds) : 30);
	if (error)
		report_failure("hold: expected a disconnect by the target, got %s",
			       status_text(&peer, error));
	else
		report_ok("hold");
	peer_close(&peer);
}

void check_wait(const char *seconds)
{
	time_t deadline = time(NULL) + (seconds ? atoi(seconds) : 30);
	struct peer peer;
	int error;

	for (;;) {
		error = connect_to(&peer, options.port, &ASK(.name = options.export));
		if (!error) {
			if (must_close(&peer, "wait"))
				report_ok("wait");
			return;
		}
		if (time(NULL) >= deadline)
			break;
		peer_close(&peer);
		usleep(300000);
	}
	report_failure("wait: still no connection: %s", status_text(&peer, error));
	peer_close(&peer);
}
