/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults of ports as people write them: in the configuration and to the running daemon. */
#include "orield/fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MILLION 1000000u

void fault_default(struct net_fault *fault)
{
	*fault = (struct net_fault){ .delay_us = 1000, .seed = 1 };
}

static uint64_t sum(const struct net_fault *fault)
{
	return (uint64_t)fault->loss + fault->duplicate + fault->reorder + fault->corrupt +
	       fault->delay;
}

bool fault_fits(const struct net_fault *fault)
{
	return sum(fault) <= MILLION;
}

/* --- one value --------------------------------------------------------------------- */

/* "1%", "0.05%": the point and up to four digits behind it are parts per million. */
static bool parse_share(const char *text, uint32_t *ppm)
{
	uint32_t value = 0, unit = MILLION / 100;
	const char *p = text;

	for (; isdigit((unsigned char)*p) && value <= 100; p++)
		value = value * 10 + (uint32_t)(*p - '0');
	if (p == text || value > 100)
		return false;
	value *= unit;
	if (*p == '.') {
		const char *first = ++p;

		for (; isdigit((unsigned char)*p) && unit > 1; p++)
			value += (uint32_t)(*p - '0') * (unit /= 10);
		if (p == first)
			return false;
	}
	*ppm = value;
	return value <= MILLION && !strcmp(p, "%");
}

static bool parse_number(const char *text, uint64_t *number)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0';
}

const char *fault_set(struct net_fault *fault, const char *key, const char *value)
{
	const struct {
		const char *name;
		uint32_t *ppm;
	} shares[] = {
		{ "loss", &fault->loss },       { "duplicate", &fault->duplicate },
		{ "reorder", &fault->reorder }, { "corrupt", &fault->corrupt },
		{ "delay", &fault->delay },
	};
	uint64_t number;

	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		if (!strcmp(key, shares[i].name))
			return parse_share(value, shares[i].ppm) ? NULL : FAULT_EXPECTED_SHARE;
	if (!strcmp(key, "seed"))
		return parse_number(value, &fault->seed) ? NULL : "a number";
	if (strcmp(key, "delay-us") != 0)
		return "loss, duplicate, reorder, corrupt, delay, delay-us or seed";
	if (!parse_number(value, &number) || number > FAULT_LONGEST_US)
		return "microseconds from 0 to 10000000";
	fault->delay_us = (uint32_t)number;
	return NULL;
}
