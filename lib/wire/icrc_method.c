/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way a CRC is made: what the processor has, and what is fast in it. */
#include "wire/icrc_method.h"

#include <isa-l/crc.h>
#include <string.h>
#include <time.h>

#include "wire/icrc_fold.h"
#include "wire/icrc_table.h"

const uint8_t icrc_variant[2][80] = {
	/* IPv6: class, flow label, hop limit; UDP checksum; resv8a */
	{ [0] = 0x0f, 0xff, 0xff, 0xff, [7] = 0xff, [46] = 0xff, 0xff, [52] = 0xff },
	/* IPv4: TOS, TTL, checksum; UDP checksum; resv8a */
	{ [1] = 0xff, [8] = 0xff, [10] = 0xff, 0xff, [26] = 0xff, 0xff, [32] = 0xff },
};

/* One block at a time is as fast as ISA-L's loop for long buffers up to here. */
#define NARROW_PAYS 288u

#if defined(__x86_64__)
static const struct icrc_method fold512 = { "fold512",     icrc_fold_wide,  icrc_fold_copy_wide,
					    ICRC_FOLD_MAX, crc32_gzip_refl, icrc_fold_last };
static const struct icrc_method fold128 = { "fold128",   icrc_fold_narrow, NULL,
					    NARROW_PAYS, crc32_gzip_refl,  icrc_fold_last };
#endif
static const struct icrc_method isal = { "isal", NULL, NULL, 0, crc32_gzip_refl, icrc_table_last };
static const struct icrc_method table = { "table",    icrc_table_whole,  NULL,
					  UINT32_MAX, icrc_table_update, icrc_table_last };

struct icrc_method icrc_method = { "isal", NULL, NULL, 0, crc32_gzip_refl, icrc_table_last };

unsigned int icrc_methods(const struct icrc_method *methods[ICRC_METHODS])
{
	unsigned int count = 0;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("vpclmulqdq"))
		methods[count++] = &fold512;
	if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
		methods[count++] = &fold128;
#endif
	methods[count++] = &isal;
	methods[count++] = &table;
	return count;
}

bool icrc_use(const char *name)
{
	const struct icrc_method *methods[ICRC_METHODS];
	unsigned int count = icrc_methods(methods);

	for (unsigned int i = 0; i < count; i++) {
		if (!name || strcmp(methods[i]->name, name) == 0) {
			icrc_method = *methods[i];
			return true;
		}
	}
	return false;
}

/* --- what is fast here ---------------------------------------------------------------------- */

/*
 * An emulated processor has all instructions, some of them a hundred times as slow as others. So
 * the features only promise, and a method that is faster by far takes the place of what they
 * promise. By less it does not: whoever else runs may disturb a measurement, and the same processor
 * shall get the same method each time.
 */
#define TRIES   5u
#define SHORT   120u /* IP packet of a 64-byte WRITE */
#define LONG    1080u
#define REPEATS (64u * SHORT)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The least of some tries, in ns for as many packets of `length` as make REPEATS bytes. */
static uint64_t time_of(const struct icrc_method *method, const uint8_t *packet, uint32_t length)
{
	uint64_t least = UINT64_MAX;

	for (unsigned int try = 0; try < TRIES; try++) {
		uint64_t start = now_ns(), ns;

		for (uint32_t done = 0; done < REPEATS; done += length) {
			uint32_t crc = method->whole && length <= method->longest
					       ? method->whole(packet, true, length)
					       : method->update(0, packet, length);

			__asm__ volatile("" ::"r"(crc)); /* it is wanted */
		}
		ns = now_ns() - start;
		least = ns < least ? ns : least;
	}
	return least;
}

static bool faster_by_far(const struct icrc_method *method, const struct icrc_method *than)
{
	static const uint8_t packet[LONG] = { 0x45 };

	return 3 * time_of(method, packet, SHORT) < 2 * time_of(than, packet, SHORT) &&
	       3 * time_of(method, packet, LONG) < 2 * time_of(than, packet, LONG);
}

void icrc_choose(void)
{
	const struct icrc_method *methods[ICRC_METHODS];
	unsigned int count = icrc_methods(methods);

	icrc_method = *methods[0];
	for (unsigned int i = 1; i < count; i++)
		if (faster_by_far(methods[i], &icrc_method))
			icrc_method = *methods[i];
}

static void __attribute__((constructor)) prepare(void)
{
	icrc_table_prepare();
	icrc_fold_prepare();
	icrc_use(NULL);
}
