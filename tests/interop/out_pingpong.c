/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The other side of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong: the
 * ends tell each other "LID:QPN:PSN:GID" over TCP, then a message goes to and fro. The stock
 * program receives into the memory that it sends from, so what comes back is what we have sent.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sync.h"
#include "out.h"

#define PSN        0xfffff0u /* it soon passes zero */
#define QKEY       0x11111111u
#define ITERATIONS 100u
#define SIZE       4096u
#define DATAGRAM   1024u
#define SRQ_ENDS   256u /* that ibv_srq_pingpong tells of, however many it has */
#define FILLING    0x7b /* of the stock programs' memory at first; ibv_srq_pingpong's is zero */

struct end {
	char text[sizeof("0000:000000:000000:") + 32];
};

/* ---- what is said over TCP ---- */

/* `host` NULL: the stock program comes to us. */
static int meet(const char *host)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(options.port) };
	int one = 1, listener, channel = -1;
	int sock = socket(AF_INET, SOCK_STREAM, 0);

	if (host && inet_pton(AF_INET, host, &at.sin_addr) == 1) {
		for (unsigned int i = 0; i < 600; i++) { /* until it listens */
			if (!connect(sock, (struct sockaddr *)&at, sizeof(at)))
				return sock;
			close(sock);
			usleep(100000);
			sock = socket(AF_INET, SOCK_STREAM, 0);
		}
		close(sock);
		return -1;
	}
	listener = sock;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!bind(listener, (struct sockaddr *)&at, sizeof(at)) && !listen(listener, 1)) {
		printf("# listening\n");
		channel = accept(listener, NULL, NULL);
	}
	close(listener);
	return channel;
}

static void gid_text(const struct sockaddr_storage *address, char text[33])
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	uint8_t gid[16] = { [10] = 0xff, 0xff };

	if (address->ss_family == AF_INET6)
		memcpy(gid, &v6->sin6_addr, 16);
	else
		memcpy(gid + 12, &v4->sin_addr, 4);
	for (unsigned int i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", gid[i]);
}

static bool tell(int channel, const struct out *out, unsigned int times)
{
	struct end end;
	char gid[33];

	gid_text(&options.local, gid);
	snprintf(end.text, sizeof(end.text), "%04x:%06x:%06x:%s", 0u, OrielGetQpNumber(out->qp),
		 PSN, gid);
	for (unsigned int i = 0; i < times; i++)
		if (write(channel, &end, sizeof(end)) != sizeof(end))
			return false;
	return true;
}

/* The first of them counts; its GID must be the address that we talk to. */
static bool hear(int channel, struct out *out, unsigned int times)
{
	unsigned int lid, qpn, psn;
	struct end end;
	char gid[33];

	for (unsigned int i = 0; i < times; i++) {
		if (recv(channel, &end, sizeof(end), MSG_WAITALL) != sizeof(end))
			return false;
		if (i)
			continue;
		end.text[sizeof(end.text) - 1] = '\0';
		gid_text(&options.remote, gid);
		if (sscanf(end.text, "%x:%x:%x:", &lid, &qpn, &psn) != 3 ||
		    strcmp(end.text + strlen(end.text) - 32, gid) != 0)
			return report_failure("pingpong: the peer says '%s'", end.text);
		out->remote_qpn = qpn;
		out->remote_psn = psn;
	}
	return true;
}

/* ---- to and fro ---- */

static bool take(struct out *side, uint32_t size, uint64_t seed, const uint8_t *filling)
{
	struct arrival arrival;

	if (!out_must("pingpong", "receive", STATUS_SUCCESS, out_receive(side, &arrival)))
		return false;
	if (arrival.result.Ndk.BytesTransferred != size + side->header)
		return report_failure("pingpong: %u bytes, expected %u",
				      arrival.result.Ndk.BytesTransferred, size + side->header);
	for (uint32_t i = 0; filling && i < size; i++)
		if (arrival.data[i] != *filling)
			return report_failure("pingpong: byte %u is %02x", i, arrival.data[i]);
	if (!filling && pattern_mismatch(arrival.data, size, seed) >= 0)
		return report_failure("pingpong: byte %zd of message %lu differs",
				      pattern_mismatch(arrival.data, size, seed), seed);
	return true;
}

static bool give(struct out *out, struct out *side, uint32_t size, uint64_t seed)
{
	struct operation o = out_operation(side, KIND_SEND, OUT_SOURCE, size, 0);

	o.datagram = side->header ? &side->datagram : NULL;
	pattern_fill(out->buffer + OUT_SOURCE, size, seed);
	return out_must("pingpong", "SEND", STATUS_SUCCESS, out_run(side, &o));
}

/* Who comes by TCP begins. */
static bool play(struct out *out, struct out *side, bool first, uint8_t filling)
{
	const uint32_t size = side->header ? DATAGRAM : SIZE;

	for (uint64_t i = 1; i <= ITERATIONS; i++) {
		if (first && !give(out, side, size, i))
			return false;
		if (!take(side, size, first ? i : i - 1, !first && i == 1 ? &filling : NULL))
			return false;
		if (!first && !give(out, side, size, i))
			return false;
	}
	return true;
}

/* ---- all of it ---- */

static bool ready(struct out *side)
{
	if (!out_must("pingpong", "OrielConnectQp", STATUS_SUCCESS,
		      out_connect_queue(side, PSN, side->remote_psn, QKEY)))
		return false;
	return !side->header || out_must("pingpong", "OrielCreateAddress", STATUS_SUCCESS,
					 out_create_address(side, QKEY));
}

/* The stock server is ready when it has answered, the stock client when it has said "done". */
static bool run(struct out *out, struct out *side, const char *host, unsigned int times)
{
	char done[sizeof("done")] = "done";
	int channel = meet(host);
	bool good = channel >= 0;

	if (good && host)
		good = tell(channel, side, times) && hear(channel, side, times) && ready(side) &&
		       write(channel, done, sizeof(done)) == sizeof(done);
	else if (good)
		good = hear(channel, side, times) && ready(side) && tell(channel, side, times) &&
		       recv(channel, done, sizeof(done), MSG_WAITALL) == sizeof(done);
	if (channel >= 0)
		close(channel);
	if (!good)
		return report_failure("pingpong: the exchange over TCP failed");
	return play(out, side, host != NULL, times == SRQ_ENDS ? 0 : FILLING);
}

/* "rc", "uc", "ud" or "srq", and behind a colon the host of a stock server. */
void check_pingpong(const char *argument)
{
	static const char *const names[] = { "rc", "uc", "ud", "srq" };
	static const enum exchange_service services[] = { SERVICE_RC, SERVICE_UC, SERVICE_UD,
							  SERVICE_RC };
	const char *host = argument ? strchr(argument, ':') : NULL;
	const size_t length = argument ? strcspn(argument, ":") : 0;
	unsigned int which = 0;
	struct out out, side;

	while (which < 4 &&
	       (strlen(names[which]) != length || strncmp(argument, names[which], length) != 0))
		which++;
	if (which == 4) {
		report_failure("pingpong: rc, uc, ud or srq, and :HOST of a server");
		return;
	}
	if (out_must("pingpong", "session", STATUS_SUCCESS, out_prepare(&out)) &&
	    out_must("pingpong", "queue pair", STATUS_SUCCESS,
		     out_create_queue(&out, &side, services[which])) &&
	    run(&out, &side, host ? host + 1 : NULL, which == 3 ? SRQ_ENDS : 1))
		report_ok("pingpong %s", argument);
	out_close(&out);
}
