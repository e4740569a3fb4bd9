/* SPDX-License-Identifier: BSD-3-Clause */
/* Section [congestion] of the daemon's configuration file: switch and parameters of DCQCN. */
#include "orield/config_congestion.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define BITS_PER_BYTE 8u
#define LOWEST_RATE   1000000ull        /* bits per second */
#define HIGHEST_RATE  10000000000000ull /* the same: 10 Tb/s */
#define LONGEST_US    10000000ull       /* of a period */

struct key {
	const char *name;
	void (*set)(struct congestion_parameters *parameters, const struct ini_entry *entry);
};

/* "10G", "100M", "1000000": bits per second, decimal. What is kept are bytes. */
static void set_rate(const struct ini_entry *entry, uint64_t *rate)
{
	uint64_t bits = 0, unit = 1;
	char *end = NULL;

	if (isdigit((unsigned char)entry->value[0]) && strlen(entry->value) < 16)
		bits = strtoull(entry->value, &end, 10);
	if (end && (*end == 'M' || *end == 'G'))
		unit = *end++ == 'M' ? 1000000 : 1000000000;
	if (!end || *end || bits > HIGHEST_RATE / unit || bits * unit < LOWEST_RATE)
		ini_refuse(entry, "bits per second, from 1M to 10000G, as 100M or 25G");
	else
		*rate = bits * unit / BITS_PER_BYTE;
}

static void set_period(const struct ini_entry *entry, uint64_t *period)
{
	uint64_t us;

	if (ini_get_number(entry, 1, LONGEST_US, &us))
		*period = us * 1000;
}

static void set_enabled(struct congestion_parameters *parameters, const struct ini_entry *entry)
{
	static const char *const choices[] = { "no", "yes", NULL };
	unsigned int choice;

	if (ini_get_choice(entry, choices, &choice))
		parameters->enabled = choice;
}

static void set_line_rate(struct congestion_parameters *parameters, const struct ini_entry *entry)
{
	if (!strcmp(entry->value, "auto"))
		parameters->line_rate = 0;
	else
		set_rate(entry, &parameters->line_rate);
}

static void set_minimum_rate(struct congestion_parameters *parameters,
			     const struct ini_entry *entry)
{
	set_rate(entry, &parameters->minimum_rate);
}

static void set_additive_rate(struct congestion_parameters *parameters,
			      const struct ini_entry *entry)
{
	set_rate(entry, &parameters->additive_rate);
}

static void set_hyper_rate(struct congestion_parameters *parameters, const struct ini_entry *entry)
{
	set_rate(entry, &parameters->hyper_rate);
}

static void set_gain(struct congestion_parameters *parameters, const struct ini_entry *entry)
{
	uint64_t divisor;

	if (!ini_get_number(entry, 2, 32768, &divisor))
		return;
	if (divisor & (divisor - 1))
		ini_refuse(entry, "a power of two from 2 to 32768: g is 1 divided by it");
	else
		parameters->gain_shift = (uint32_t)__builtin_ctzll(divisor);
}

static void set_stages(struct congestion_parameters *parameters, const struct ini_entry *entry)
{
	uint64_t number;

	if (ini_get_number(entry, 1, 100, &number))
		parameters->recovery_stages = (uint32_t)number;
}

static void set_alpha_period(struct congestion_parameters *parameters,
			     const struct ini_entry *entry)
{
	set_period(entry, &parameters->alpha_period);
}

static void set_increase_period(struct congestion_parameters *parameters,
				const struct ini_entry *entry)
{
	set_period(entry, &parameters->increase_period);
}

static void set_increase_bytes(struct congestion_parameters *parameters,
			       const struct ini_entry *entry)
{
	uint64_t bytes;

	if (ini_get_size(entry, &bytes))
		parameters->increase_bytes = bytes;
}

static void set_reduce_period(struct congestion_parameters *parameters,
			      const struct ini_entry *entry)
{
	set_period(entry, &parameters->reduce_period);
}

static void set_cnp_interval(struct congestion_parameters *parameters,
			     const struct ini_entry *entry)
{
	set_period(entry, &parameters->cnp_interval);
}

static void set_cnp_dscp(struct congestion_parameters *parameters, const struct ini_entry *entry)
{
	uint64_t number;

	if (ini_get_number(entry, 0, 63, &number))
		parameters->cnp_dscp = (uint8_t)number;
}

static const struct key keys[] = {
	{ "enabled", set_enabled },
	{ "line-rate", set_line_rate },
	{ "minimum-rate", set_minimum_rate },
	{ "gain", set_gain },
	{ "recovery-stages", set_stages },
	{ "additive-rate", set_additive_rate },
	{ "hyper-rate", set_hyper_rate },
	{ "alpha-period", set_alpha_period },
	{ "increase-period", set_increase_period },
	{ "increase-bytes", set_increase_bytes },
	{ "reduce-period", set_reduce_period },
	{ "cnp-interval", set_cnp_interval },
	{ "cnp-dscp", set_cnp_dscp },
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

void config_congestion_key(struct congestion_parameters *parameters, const struct ini_entry *entry,
			   uint64_t *seen)
{
	char known[256];
	size_t used = 0;

	for (unsigned int i = 0; i < KEYS; i++) {
		if (strcmp(entry->key, keys[i].name) != 0)
			continue;
		if (*seen & 1ull << i)
			ini_refuse(entry, "each key once in a section");
		else
			keys[i].set(parameters, entry);
		*seen |= 1ull << i;
		return;
	}
	for (unsigned int i = 0; i < KEYS && used < sizeof(known); i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
					 keys[i].name);
	ini_refuse(entry, "one of the keys %s", known);
}

void config_congestion_check(const struct congestion_parameters *parameters,
			     struct ini_reader *reader, unsigned int line)
{
	if (parameters->line_rate && parameters->minimum_rate > parameters->line_rate)
		ini_complain(reader, "congestion", NULL, line,
			     "minimum-rate is above line-rate: expected it below");
}
