/* SPDX-License-Identifier: BSD-3-Clause */
/* The object table: handles, generations, lists of a session, and closes that wait for users. */
#include <criterion/criterion.h>

#include "control/control_private.h"

#define OBJECTS 64u

static struct control control;
static struct arena arena;
static struct object *continued; /* the last object whose close went on */
static unsigned int continuations;

/* --- what object.c calls ------------------------------------------------------------------- */

struct session *session_at(const struct control *self, uint32_t session)
{
	return arena_record(self->arena, ARENA_SESSIONS, session);
}

void close_continue(struct control *self, struct object *object)
{
	(void)self;
	continued = object;
	continuations++;
}

static void setup(void)
{
	struct arena_spec spec[ARENA_TABLES] = {
		[ARENA_SESSIONS] = { sizeof(struct session), CONTROL_MAX_SESSIONS },
		[ARENA_OBJECTS] = { sizeof(struct object), OBJECTS },
	};

	cr_assert_eq(arena_create(&arena, spec), 0);
	control = (struct control){ .arena = &arena,
				    .config.objects = OBJECTS,
				    .object_watermark = 1,
				    .object_local = calloc(OBJECTS, sizeof(struct object_local)) };
	continued = NULL;
	continuations = 0;
}

static void teardown(void)
{
	free(control.object_local);
	arena_destroy(&arena);
}

TestSuite(object, .init = setup, .fini = teardown);

/* --- handles ---------------------------------------------------------------------------------- */

Test(object, a_handle_finds_its_object_of_its_session_and_type_only)
{
	struct object *pd = object_create(&control, 3, OBJECT_TYPE_PD);
	uint32_t handle = object_handle(&control, pd);

	cr_assert_eq(object_find(&control, 3, handle, OBJECT_TYPE_PD), pd);
	cr_assert_null(object_find(&control, 4, handle, OBJECT_TYPE_PD));
	cr_assert_null(object_find(&control, 3, handle, OBJECT_TYPE_QP));
	cr_assert_null(object_find(&control, 3, 0, OBJECT_TYPE_PD));
	cr_assert_null(object_find(&control, 3, handle + 1, OBJECT_TYPE_PD));
	cr_assert_null(object_find(&control, 3, UINT32_MAX, OBJECT_TYPE_PD));
}

Test(object, a_handle_that_outlived_its_object_does_not_find_the_next_one)
{
	uint32_t before = 0;

	for (unsigned int n = 0; n < 2000; n++) {
		struct object *object = object_create(&control, 1, OBJECT_TYPE_MW);
		uint32_t handle = object_handle(&control, object);

		cr_assert_eq(object_index(&control, object), 1, "the place is used again");
		cr_assert_neq(handle, before);
		if (before)
			cr_assert_null(object_find(&control, 1, before, OBJECT_TYPE_MW));
		object_free(&control, object);
		cr_assert_null(object_find(&control, 1, handle, OBJECT_TYPE_MW));
		before = handle;
	}
}

Test(object, an_object_that_is_being_closed_is_found_no_more)
{
	struct object *mr = object_create(&control, 1, OBJECT_TYPE_MR);

	mr->close_id = 77;
	cr_assert_null(object_find(&control, 1, object_handle(&control, mr), OBJECT_TYPE_MR));
}

/* --- lists, limits ---------------------------------------------------------------------------- */

Test(object, the_table_ends_and_goes_on_when_something_is_freed)
{
	struct object *last = NULL;
	unsigned int made = 0;

	for (struct object *object; (object = object_create(&control, 1, OBJECT_TYPE_MW)); made++)
		last = object;
	cr_assert_eq(made, OBJECTS - 1);
	cr_assert_eq(control.status.objects[OBJECT_TYPE_MW], OBJECTS - 1);
	object_free(&control, last);
	cr_assert_not_null(object_create(&control, 2, OBJECT_TYPE_PD));
	cr_assert_null(object_create(&control, 2, OBJECT_TYPE_PD));
}

Test(object, lists_of_sessions_hold_exactly_their_objects_whatever_the_order_of_frees)
{
	struct object *some[20];
	unsigned int counted[3] = { 0 };

	for (unsigned int n = 0; n < 20; n++)
		some[n] = object_create(&control, 1 + n % 2, OBJECT_TYPE_CONNECTOR);
	for (unsigned int n = 0; n < 20; n += 3)
		object_free(&control, some[n]);
	for (uint32_t session = 1; session <= 2; session++)
		for (uint32_t i = session_at(&control, session)->first_object; i;
		     i = object_at(&control, i)->next) {
			cr_assert_eq(object_at(&control, i)->session, session);
			counted[session]++;
		}
	cr_assert_eq(counted[1] + counted[2], 13);
	cr_assert_eq(counted[1], session_at(&control, 1)->objects);
	cr_assert_eq(counted[2], session_at(&control, 2)->objects);
}

/* --- users ------------------------------------------------------------------------------------ */

Test(object, a_close_goes_on_with_the_last_of_those_that_needed_the_object)
{
	struct object *cq = object_create(&control, 1, OBJECT_TYPE_CQ);
	struct object *one = object_create(&control, 1, OBJECT_TYPE_QP);
	struct object *two = object_create(&control, 1, OBJECT_TYPE_QP);

	/* A queue pair may need the same CQ twice. */
	object_need(&control, one, 1, cq);
	object_need(&control, one, 2, cq);
	object_need(&control, two, 1, cq);
	cr_assert_eq(cq->users, 3);
	cq->close_id = 5;
	object_release_needs(&control, one);
	cr_assert_eq(continuations, 0);
	object_release_needs(&control, one);
	cr_assert_eq(cq->users, 1, "needs are released once");
	object_release_needs(&control, two);
	cr_assert_eq(continuations, 1);
	cr_assert_eq(continued, cq);
}

Test(object, without_a_close_the_last_user_changes_nothing)
{
	struct object *pd = object_create(&control, 1, OBJECT_TYPE_PD);
	struct object *mr = object_create(&control, 1, OBJECT_TYPE_MR);

	object_need(&control, mr, 0, pd);
	object_release_needs(&control, mr);
	cr_assert_eq(pd->users, 0);
	cr_assert_eq(continuations, 0);
}
