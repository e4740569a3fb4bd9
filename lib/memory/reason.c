/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of the reasons for a refusal, as counters and logs show them. */
#include "memory/memory.h"

static const char *const names[ACCESS_REASONS] = {
	[ACCESS_OK] = "ok",
	[ACCESS_UNKNOWN] = "unknown token",
	[ACCESS_DEAD] = "dead token",
	[ACCESS_KIND] = "local token used remotely or the reverse",
	[ACCESS_DOMAIN] = "other protection domain",
	[ACCESS_QUEUE_PAIR] = "tied to another queue pair",
	[ACCESS_RIGHTS] = "right not granted",
	[ACCESS_RANGE] = "out of range",
	[ACCESS_ALIGNMENT] = "atomic not on 8 bytes",
	[ACCESS_POISONED] = "memory was taken away",
	[BIND_TOKEN] = "bind: token not reserved for this session",
	[BIND_WINDOW] = "bind: no such window",
	[BIND_BOUND] = "bind: already bound",
	[BIND_REGION] = "bind: no such region or not registered",
	[BIND_LENGTH] = "bind: zero length",
	[INVALIDATE_KIND] = "invalidate: neither window nor fast-register region",
};

const char *access_reason_name(enum access_reason reason)
{
	if ((unsigned int)reason >= ACCESS_REASONS)
		return "?";
	return names[reason];
}
