/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and sentences of verdicts: those of lib/wire, lib/memory and our own as one list. */
#include <ctype.h>
#include <stddef.h>

#include "memory/memory.h"
#include "transport/verdict.h"
#include "wire/packet.h"

#define NAME_LENGTH 32

_Static_assert(WIRE_REASON_COUNT <= VERDICT_ACCESS, "verdict number space");
_Static_assert(ACCESS_REASONS <= VERDICT_LOCAL - VERDICT_ACCESS, "verdict number space");

/* Lower case once, when the program is loaded. */
static char local_names[][NAME_LENGTH] = {
#define VERDICT_NAME(name, text) #name,
	VERDICT_LIST(VERDICT_NAME)
#undef VERDICT_NAME
};

__attribute__((constructor)) static void lower_names(void)
{
	for (size_t i = 0; i < VERDICT_LOCAL_COUNT; i++)
		for (char *c = local_names[i]; *c; c++)
			*c = (char)tolower((unsigned char)*c);
}

static const char *const local_texts[] = {
#define VERDICT_TEXT(name, text) text,
	VERDICT_LIST(VERDICT_TEXT)
#undef VERDICT_TEXT
};

static const char *const access_names[] = {
	[ACCESS_OK] = "access_ok",
	[ACCESS_UNKNOWN] = "access_unknown",
	[ACCESS_DEAD] = "access_dead",
	[ACCESS_KIND] = "access_kind",
	[ACCESS_DOMAIN] = "access_domain",
	[ACCESS_QUEUE_PAIR] = "access_queue_pair",
	[ACCESS_RIGHTS] = "access_rights",
	[ACCESS_RANGE] = "access_range",
	[ACCESS_ALIGNMENT] = "access_alignment",
	[ACCESS_POISONED] = "access_poisoned",
	[BIND_TOKEN] = "bind_token",
	[BIND_WINDOW] = "bind_window",
	[BIND_BOUND] = "bind_bound",
	[BIND_REGION] = "bind_region",
	[BIND_LENGTH] = "bind_length",
	[INVALIDATE_KIND] = "invalidate_kind",
};
_Static_assert(sizeof(access_names) / sizeof(access_names[0]) == ACCESS_REASONS, "all named");

const char *verdict_name(uint32_t verdict)
{
	if (verdict < WIRE_REASON_COUNT)
		return wire_reason_name((enum wire_reason)verdict);
	if (verdict >= VERDICT_ACCESS && verdict < VERDICT_ACCESS + ACCESS_REASONS)
		return access_names[verdict - VERDICT_ACCESS];
	if (verdict >= VERDICT_LOCAL && verdict < VERDICT_LOCAL + VERDICT_LOCAL_COUNT)
		return local_names[verdict - VERDICT_LOCAL];
	return NULL;
}

const char *verdict_text(uint32_t verdict)
{
	if (verdict < WIRE_REASON_COUNT)
		return wire_reason_text((enum wire_reason)verdict);
	if (verdict >= VERDICT_ACCESS && verdict < VERDICT_ACCESS + ACCESS_REASONS)
		return access_reason_name((enum access_reason)(verdict - VERDICT_ACCESS));
	if (verdict >= VERDICT_LOCAL && verdict < VERDICT_LOCAL + VERDICT_LOCAL_COUNT)
		return local_texts[verdict - VERDICT_LOCAL];
	return NULL;
}
