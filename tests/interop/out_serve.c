/* SPDX-License-Identifier: BSD-3-Clause */
/* A stock server's requests, on a connection that we made: the peer as requester. */
#include <stdio.h>
#include <string.h>

#include "common/sync.h"
#include "out.h"

static const uint32_t sizes[] = { 0, 1, 1023, 1024, 1025, 4095, 4096, 4097, 70001, 1u << 20 };

static NDK_OPERATION_TYPE receive_type(enum exchange_kind kind)
{
	switch (kind) {
	case KIND_SEND_IMMEDIATE: return OrielOperationTypeReceiveImmediate;
	case KIND_WRITE_IMMEDIATE: return OrielOperationTypeReceiveWriteImmediate;
	case KIND_SEND_INVALIDATE: return NdkOperationTypeReceiveAndInvalidate;
	default: return NdkOperationTypeReceive;
	}
}

/* The IP header before a datagram is the server's; of IPv4 it fills the second half. */
static bool right_header(const struct out *at, const struct arrival *arrival)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&options.remote;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&options.remote;
	const uint8_t *header = arrival->data - at->header;

	if (!(arrival->result.Flags & ORIEL_RESULT_GRH) ||
	    arrival->result.SourceQpNumber != at->remote_qpn)
		return false;
	if (options.remote.ss_family == AF_INET6)
		return header[0] >> 4 == 6 && !memcmp(header + 8, &v6->sin6_addr, 16);
	return header[20] == 0x45 && !memcmp(header + 32, &v4->sin_addr, 4);
}

static bool take_message(struct out *at, const char *name, const struct exchange_command *c)
{
	struct arrival arrival;
	const NDK_RESULT_EX *r = &arrival.result.Ndk;

	if (!out_must(name, "receive", STATUS_SUCCESS, out_receive(at, &arrival)))
		return false;
	if (r->Type != receive_type(c->kind) || r->BytesTransferred != c->length + at->header)
		return report_failure("%s: %u bytes of type %#x, expected %lu of %#x", name,
				      r->BytesTransferred, r->Type, c->length + at->header,
				      receive_type(c->kind));
	if ((c->kind == KIND_SEND_IMMEDIATE || c->kind == KIND_WRITE_IMMEDIATE) &&
	    be32toh(arrival.result.Immediate) != c->immediate)
		return report_failure("%s: immediate %#x, expected %#x", name,
				      be32toh(arrival.result.Immediate), c->immediate);
	if (c->kind == KIND_SEND_INVALIDATE && r->TypeSpecificCompletionOutput != c->token)
		return report_failure("%s: token %#lx is dead, expected %#x", name,
				      r->TypeSpecificCompletionOutput, c->token);
	if (at->header && !right_header(at, &arrival))
		return report_failure("%s: from queue pair %#x, or a wrong header", name,
				      arrival.result.SourceQpNumber);
	if (c->kind != KIND_WRITE_IMMEDIATE &&
	    pattern_mismatch(arrival.data, c->length, c->seed) >= 0)
		return report_failure("%s: byte %zd differs", name,
				      pattern_mismatch(arrival.data, c->length, c->seed));
	return true;
}

/* One request of the server, into or from the sink. */
bool out_serve_one(struct out *out, struct out *at, enum exchange_kind kind, uint32_t size,
		   uint32_t key)
{
	static const char *const names[] = {
		"SEND",  "SEND with immediate",  "SEND with invalidate",
		"WRITE", "WRITE with immediate", "READ"
	};
	uint8_t *sink = out->buffer + OUT_SINK + 3;
	const struct exchange_command c = { .op = EXCHANGE_REQUEST,
					    .queue = out != at,
					    .kind = kind,
					    .count = 1,
					    .length = size,
					    .seed = pattern_fresh(),
					    .immediate = 0x0a0b0c0d,
					    .token = key,
					    .address = (uintptr_t)sink };
	struct exchange_answer answer;
	char name[64];
	bool message = kind != KIND_WRITE && kind != KIND_READ;

	snprintf(name, sizeof(name), "serve %s of %u", names[kind], size);
	if (kind == KIND_READ)
		pattern_fill(sink, size, c.seed);
	else
		memset(sink - 3, 0x5a, size + 6);
	if (!out_command_send(out, name, &c) || (message && !take_message(at, name, &c)) ||
	    !out_command_answer(out, name, &answer))
		return false;
	if (kind != KIND_WRITE && kind != KIND_WRITE_IMMEDIATE)
		return true;
	if (pattern_mismatch(sink, size, c.seed) >= 0 || sink[-1] != 0x5a || sink[size] != 0x5a)
		return report_failure("%s: byte %zd differs", name,
				      pattern_mismatch(sink, size, c.seed));
	return true;
}

static bool serve_atomics(struct out *out)
{
	uint64_t *word = (uint64_t *)(out->buffer + OUT_SINK);
	struct exchange_command c = { .op = EXCHANGE_REQUEST,
				      .kind = KIND_FETCH_ADD,
				      .count = 1,
				      .length = 8,
				      .seed = 5,
				      .token = out->remote_token,
				      .address = (uintptr_t)word };
	struct exchange_answer answer;

	*word = 0x00000001fffffffe;
	if (!out_command(out, "serve FETCH_ADD", &c, &answer))
		return false;
	if (*word != 0x0000000200000003 || answer.value != 0x00000001fffffffe)
		return report_failure("serve FETCH_ADD: %#lx in memory, %#lx returned", *word,
				      answer.value);
	c.kind = KIND_COMPARE_SWAP;
	c.offset = *word;
	c.seed = 0x1112131415161718;
	if (!out_command(out, "serve CMP_SWAP", &c, &answer))
		return false;
	if (*word != c.seed || answer.value != c.offset)
		return report_failure("serve CMP_SWAP: %#lx in memory, %#lx returned", *word,
				      answer.value);
	report_ok("serve atomics");
	return true;
}

/* A window that the server writes through, then kills. */
static bool serve_window(struct out *out)
{
	const uint32_t size = 5000;
	uint8_t *at = out->buffer + OUT_SINK + 100;
	struct exchange_command c = { .op = EXCHANGE_REQUEST,
				      .kind = KIND_WRITE,
				      .count = 1,
				      .length = size,
				      .seed = 9,
				      .address = (uintptr_t)at };
	struct sync sync = sync_begin(out->adapter);
	struct exchange_answer answer;
	const char *name = "serve window";
	NDK_MW *mw = NULL;
	NTSTATUS status;
	bool good;

	status = sync_end(&sync, NdkCreateMw(out->pd, sync_created, &sync, &mw));
	if (!out_must(name, "window", STATUS_SUCCESS, status))
		return false;
	mw = sync_object(&sync, mw);
	status = NdkBind(out->qp, (PVOID)(uintptr_t)out->next_op, out->mr, mw, at, size,
			 NDK_OP_FLAG_ALLOW_REMOTE_WRITE | ORIEL_OP_FLAG_TIE_TO_QP);
	if (!out_must(name, "post bind", STATUS_SUCCESS, status) ||
	    !out_must(name, "bind", STATUS_SUCCESS, out_wait(out, out->next_op++)))
		return false;
	c.token = NdkGetRemoteTokenFromMw(mw);
	memset(at, 0, size);
	if (!out_command(out, name, &c, NULL))
		return false;
	if (pattern_mismatch(at, size, c.seed) >= 0)
		return report_failure("serve window: the data differ");
	c.kind = KIND_SEND_INVALIDATE;
	good = out_command_send(out, name, &c) && take_message(out, name, &c) &&
	       out_command_answer(out, name, &answer);
	if (good)
		report_ok("serve window");
	return good;
}

void check_serve(const char *argument)
{
	static const enum exchange_kind kinds[] = { KIND_SEND, KIND_SEND_IMMEDIATE, KIND_WRITE,
						    KIND_WRITE_IMMEDIATE, KIND_READ };
	bool good = true;
	struct out out;

	if (!out_open(&out, "serve connect"))
		return;
	for (unsigned int k = 0; good && k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (unsigned int i = 0; good && i < sizeof(sizes) / sizeof(sizes[0]); i++)
			good = out_serve_one(&out, &out, kinds[k], sizes[i], out.remote_token);
	if (good)
		report_ok("serve sizes");
	if (good && serve_atomics(&out))
		serve_window(&out);
	out_must("serve", "disconnect", STATUS_SUCCESS, out_close(&out));
}
