/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages between an export and its clients. */
#include "common/export_protocol.h"

#include <endian.h>
#include <string.h>

#define MAGIC_REQUEST 0x4f525131u /* "ORQ1" */
#define MAGIC_REPLY   0x4f525831u /* "ORX1" */
#define MAGIC_REFUSAL 0x4f525231u /* "ORR1" */
#define VERSION       1u

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static void put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

/* Longer data is fine: transports hand over their whole fields (known fault of exact tests). */
bool export_request_parse(const uint8_t *data, uint32_t length, struct export_request *request)
{
	if (length < EXPORT_REQUEST_SIZE || get32(data) != MAGIC_REQUEST || data[4] != VERSION ||
	    (data[5] & ~(EXPORT_READ | EXPORT_WRITE | EXPORT_ATOMIC)) || data[6] || data[7])
		return false;
	request->access = data[5];
	request->offset = get64(data + 8);
	request->length = get64(data + 16);
	memcpy(request->name, data + 24, EXPORT_NAME_SIZE);
	request->name[EXPORT_NAME_SIZE] = '\0';
	return true;
}

void export_request_encode(const struct export_request *request, uint8_t data[EXPORT_REQUEST_SIZE])
{
	memset(data, 0, EXPORT_REQUEST_SIZE);
	put32(data, MAGIC_REQUEST);
	data[4] = VERSION;
	data[5] = request->access;
	put64(data + 8, request->offset);
	put64(data + 16, request->length);
	memcpy(data + 24, request->name, strnlen(request->name, EXPORT_NAME_SIZE));
}

bool export_reply_parse(const uint8_t *data, uint32_t length, struct export_reply *reply)
{
	if (length < EXPORT_REPLY_SIZE || get32(data) != MAGIC_REPLY || data[4] != VERSION)
		return false;
	reply->access = data[5];
	reply->address = get64(data + 8);
	reply->length = get64(data + 16);
	reply->token = get32(data + 24);
	reply->code = get32(data + 28);
	return true;
}

void export_reply_encode(const struct export_reply *reply, uint8_t data[EXPORT_REPLY_SIZE])
{
	memset(data, 0, EXPORT_REPLY_SIZE);
	put32(data, MAGIC_REPLY);
	data[4] = VERSION;
	data[5] = reply->access;
	put64(data + 8, reply->address);
	put64(data + 16, reply->length);
	put32(data + 24, reply->token);
	put32(data + 28, reply->code);
}

bool export_refusal_parse(const uint8_t *data, uint32_t length, uint32_t *code)
{
	if (length < EXPORT_REFUSAL_SIZE || get32(data) != MAGIC_REFUSAL)
		return false;
	*code = get32(data + 4);
	return true;
}

void export_refusal_encode(uint32_t code, uint8_t data[EXPORT_REFUSAL_SIZE])
{
	put32(data, MAGIC_REFUSAL);
	put32(data + 4, code);
}

const char *export_refusal_text(uint32_t code)
{
	static const char *const texts[] = { "granted",
					     "bad request",
					     "no such export",
					     "access not granted",
					     "out of range",
					     "no resources at the target",
					     "peer is not allowed" };

	return code < sizeof(texts) / sizeof(texts[0]) ? texts[code] : "unknown reason";
}
