/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that try bad tokens: their budget by the minute, and how long they stay shut out. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>

#include "control/control_private.h"

#define SECOND 1000000000ull

static struct control control;

static void setup(void)
{
	cr_redirect_stderr();
	memset(&control, 0, sizeof(control));
	control.config.bad_token_budget = 3;
	control.now = 1000 * SECOND;
}

TestSuite(offender, .init = setup);

static const uint8_t *peer(uint32_t number)
{
	static uint8_t gid[16];

	memset(gid, 0, sizeof(gid));
	gid[0] = 0xfd;
	memcpy(gid + 12, &number, sizeof(number));
	return gid;
}

static void guess(uint32_t number, unsigned int times)
{
	while (times--)
		offender_count(&control, peer(number));
}

Test(offender, the_budget_is_not_the_end_the_next_one_is)
{
	guess(1, 3);
	cr_assert_not(offender_shut_out(&control, peer(1)));
	guess(1, 1);
	cr_assert(offender_shut_out(&control, peer(1)));
	cr_assert_not(offender_shut_out(&control, peer(2)));
	cr_assert_eq(control.status.bad_tokens, 4);
	cr_assert_eq(control.status.peers_shut_out, 1);
}

Test(offender, who_is_shut_out_comes_in_again_after_a_minute)
{
	guess(1, 4);
	control.now += 59 * SECOND;
	cr_assert(offender_shut_out(&control, peer(1)));
	control.now += 2 * SECOND;
	cr_assert_not(offender_shut_out(&control, peer(1)));
	guess(1, 4);
	cr_assert(offender_shut_out(&control, peer(1)), "and goes out again");
	cr_assert_eq(control.status.peers_shut_out, 2);
}

Test(offender, a_few_bad_tokens_a_minute_are_forgiven)
{
	for (unsigned int minute = 0; minute < 10; minute++) {
		guess(1, 3);
		cr_assert_not(offender_shut_out(&control, peer(1)));
		control.now += 61 * SECOND;
	}
}

Test(offender, guesses_while_shut_out_are_counted_but_told_once)
{
	guess(1, 40);
	cr_assert_eq(control.status.peers_shut_out, 1);
	cr_assert_eq(control.status.bad_tokens, 40);
}

Test(offender, a_budget_of_zero_shuts_nobody_out)
{
	control.config.bad_token_budget = 0;
	guess(1, 10000);
	cr_assert_not(offender_shut_out(&control, peer(1)));
	cr_assert_eq(control.status.bad_tokens, 10000);
}

Test(offender, a_crowd_of_others_does_not_wash_away_who_is_shut_out)
{
	guess(1, 4);
	for (uint32_t number = 2; number < 2 + 3 * MAX_OFFENDERS; number++) {
		control.now++;
		guess(number, 1);
	}
	cr_assert(offender_shut_out(&control, peer(1)));
}

Test(offender, an_address_of_zeros_is_no_peer_that_was_never_seen)
{
	const uint8_t zero[16] = { 0 };

	cr_assert_not(offender_shut_out(&control, zero));
}

Test(offender, when_all_are_shut_out_a_new_one_does_not_free_another)
{
	for (uint32_t number = 1; number <= MAX_OFFENDERS; number++)
		guess(number, 4);
	guess(MAX_OFFENDERS + 1, 1);
	for (uint32_t number = 1; number <= MAX_OFFENDERS; number++)
		cr_assert(offender_shut_out(&control, peer(number)), "peer %u", number);
}
