/* SPDX-License-Identifier: BSD-3-Clause */
/* NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED: who sees the last byte of a message sees all of it. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/place.h"

#define PAGE  4096u
#define PAGES 3u /* then one that the last bytes fall into */

static uint8_t *room, *behind, source[PAGES * PAGE];
static volatile sig_atomic_t faults;
static volatile uint32_t before; /* bytes that must be there when the last are stored */

/* The last bytes are being stored: what is before them has been. */
static void on_fault(int number)
{
	(void)number;
	if (memcmp(behind - before, source, before) != 0)
		_exit(99);
	faults++;
	mprotect(behind, PAGE, PROT_READ | PROT_WRITE);
}

static void setup(void)
{
	struct sigaction action = { .sa_handler = on_fault };

	room = mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	cr_assert_neq(room, MAP_FAILED);
	behind = room + PAGES * PAGE;
	for (uint32_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)(i * 7 + i / 251 + 1) | 1;
	sigaction(SIGSEGV, &action, NULL);
}

static void place(uint32_t length, uint32_t last)
{
	memset(room, 0, (PAGES + 1) * PAGE);
	mprotect(behind, PAGE, PROT_NONE);
	before = length - last;
	faults = 0;
	memory_place(behind + last - length, source, length);
	cr_expect_eq(faults, 1, "%u bytes: the last %u were stored %d times", length, last,
		     (int)faults);
	cr_expect_arr_eq(behind + last - length, source, length);
	cr_expect_eq(behind[last], 0, "nothing behind them");
	if (length < PAGES * PAGE)
		cr_expect_eq(behind[(int)last - (int)length - 1], 0, "nor before them");
}

Test(place, last_bytes_are_stored_last_whatever_length_and_alignment, .init = setup)
{
	static const uint32_t large[] = { 1023, 1024, 1500, 2048, 4096, 4097, 9000 };

	for (uint32_t last = 1; last <= 8; last *= 2) {
		for (uint32_t length = last; length <= 600; length++)
			place(length, last);
		for (unsigned int i = 0; i < sizeof(large) / sizeof(large[0]); i++)
			place(large[i], last);
	}
}

Test(place, nothing_is_nothing, .init = setup)
{
	mprotect(behind, PAGE, PROT_NONE);
	memory_place(behind, source, 0);
	cr_expect_eq(faults, 0);
}
