/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages between an export and its clients; see doc/design.md section 12. */
#ifndef APP_COMMON_EXPORT_PROTOCOL_H
#define APP_COMMON_EXPORT_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#define EXPORT_REQUEST_SIZE 48u
#define EXPORT_REPLY_SIZE   32u
#define EXPORT_REFUSAL_SIZE 8u
#define EXPORT_NAME_SIZE    24u

#define EXPORT_READ   1u
#define EXPORT_WRITE  2u
#define EXPORT_ATOMIC 4u

enum export_refusal {
	EXPORT_GRANTED = 0,
	EXPORT_BAD_REQUEST = 1,
	EXPORT_UNKNOWN = 2,
	EXPORT_ACCESS = 3,
	EXPORT_RANGE = 4,
	EXPORT_NO_RESOURCES = 5,
	EXPORT_PEER = 6,
};

struct export_request {
	uint8_t access; /* 0: all that is granted */
	uint64_t offset;
	uint64_t length; /* 0: to the end */
	char name[EXPORT_NAME_SIZE + 1];
};

struct export_reply {
	uint8_t access; /* 0: refused */
	uint64_t address;
	uint64_t length;
	uint32_t token;
	uint32_t code; /* enum export_refusal */
};

/* False: not an ORQ1 of this version, or one with impossible content. */
bool export_request_parse(const uint8_t *data, uint32_t length, struct export_request *request);
void export_request_encode(const struct export_request *request, uint8_t data[EXPORT_REQUEST_SIZE]);
bool export_reply_parse(const uint8_t *data, uint32_t length, struct export_reply *reply);
void export_reply_encode(const struct export_reply *reply, uint8_t data[EXPORT_REPLY_SIZE]);
bool export_refusal_parse(const uint8_t *data, uint32_t length, uint32_t *code);
void export_refusal_encode(uint32_t code, uint8_t data[EXPORT_REFUSAL_SIZE]);
const char *export_refusal_text(uint32_t code);

#endif
