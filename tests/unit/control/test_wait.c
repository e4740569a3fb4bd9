/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that wait for a neighbour: run again until there is an answer, and not for ever. */
#include <criterion/criterion.h>
#include <string.h>

#include "control/control_private.h"

#define SECOND 1000000000ull

static struct control control;
static bool open_session[CONTROL_MAX_SESSIONS];
static bool known; /* the neighbour's address */
static unsigned int runs;
static uint32_t answered; /* id of the last request that got one */
static int32_t answer;

/* --- what wait.c calls ---------------------------------------------------------------------- */

bool session_is_open(const struct control *self, uint32_t session)
{
	(void)self;
	return open_session[session];
}

/* A handler that asks for a neighbour, and what its caller does with the status. */
void request_run(struct control *self, uint32_t session, const struct shm_request *request)
{
	int32_t status = known ? NT_SUCCESS_STATUS : request_wait(self, session, request);

	runs++;
	if (status == NT_PENDING)
		return;
	answered = request->id;
	answer = status;
}

static void ask(uint32_t session, uint32_t id)
{
	const struct shm_request request = { .op = SHM_OP_CREATE_AH, .id = id };

	request_run(&control, session, &request);
}

static void setup(void)
{
	memset(&control, 0, sizeof(control));
	memset(open_session, 1, sizeof(open_session));
	control.now = SECOND;
	known = false;
	runs = 0;
	answered = 0;
}

static void teardown(void)
{
	requests_forget(&control, 0);
}

TestSuite(wait, .init = setup, .fini = teardown);

Test(wait, is_answered_once_when_the_neighbour_is_known)
{
	ask(1, 7);
	cr_expect_eq(control.waiting, 1);
	requests_retry(&control);
	requests_retry(&control);
	cr_expect_eq(answered, 0);
	known = true;
	requests_retry(&control);
	cr_expect_eq(answered, 7);
	cr_expect_eq(answer, NT_SUCCESS_STATUS);
	cr_expect_eq(control.waiting, 0);
	runs = 0;
	requests_retry(&control);
	cr_expect_eq(runs, 0);
}

Test(wait, nobody_answers)
{
	ask(1, 7);
	control.now += 2 * SECOND;
	requests_retry(&control);
	cr_expect_eq(answered, 0);
	control.now += 2 * SECOND;
	requests_retry(&control);
	cr_expect_eq(answered, 7);
	cr_expect_eq(answer, NT_HOST_UNREACHABLE);
	cr_expect_eq(control.waiting, 0);
}

Test(wait, the_end_of_a_session_ends_its_requests_and_no_others)
{
	ask(1, 7);
	ask(2, 8);
	ask(1, 9);
	open_session[1] = false;
	requests_retry(&control);
	cr_expect_eq(control.waiting, 1);
	ask(3, 10);
	requests_forget(&control, 3);
	cr_expect_eq(control.waiting, 1);
	known = true;
	requests_retry(&control);
	cr_expect_eq(answered, 8);
}

/* A client cannot make the daemon keep as many as it likes. */
Test(wait, there_is_a_bound)
{
	uint32_t id = 1;

	while (!answered && id < 100000)
		ask(1, id++);
	cr_expect_lt(id, 100000);
	cr_expect_eq(answer, NT_INSUFFICIENT_RESOURCES);
	cr_expect_eq(control.waiting, id - 2);
}
