/* SPDX-License-Identifier: BSD-3-Clause */
/* B95: the k-th allocation or mapping fails, for all k: a clean error, and the same call works
 * then. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rig.h"

/* --- allocations that fail --------------------------------------------------------------- */

void *__libc_calloc(size_t count, size_t size);
void *__libc_malloc(size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static unsigned int left; /* allocations until one fails; 0: none does */
static bool has_failed;
static _Thread_local bool inside; /* the library, and not the daemon or the test */

static void enter(bool in)
{
	inside = in;
}

static bool fails(void)
{
	if (!inside || left == 0 || --left)
		return false;
	has_failed = true;
	errno = ENOMEM;
	return true;
}

void *calloc(size_t count, size_t size)
{
	return fails() ? NULL : __libc_calloc(count, size);
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : __libc_memalign(alignment, size);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (fails())
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

/* --- what is done meanwhile ----------------------------------------------------------------- */

struct scene {
	struct rig rig;
	struct outcome outcome;
	NDK_LISTENER *listener;
	NDK_CONNECTOR *connector;
};

typedef NTSTATUS action(struct scene *scene);

static NTSTATUS create_pd(struct scene *s)
{
	return NdkCreatePd(s->rig.adapter, on_created, &s->outcome, NULL);
}

static NTSTATUS create_cq(struct scene *s)
{
	return NdkCreateCq(s->rig.adapter, 16, NULL, NULL, NULL, on_created, &s->outcome, NULL);
}

static NTSTATUS create_qp(struct scene *s)
{
	return NdkCreateQp(s->rig.pd, s->rig.cq, s->rig.cq, NULL, 4, 4, 2, 2, 64, on_created,
			   &s->outcome, NULL);
}

static NTSTATUS create_mr(struct scene *s)
{
	return NdkCreateMr(s->rig.pd, FALSE, on_created, &s->outcome, NULL);
}

static NTSTATUS create_mw(struct scene *s)
{
	return NdkCreateMw(s->rig.pd, on_created, &s->outcome, NULL);
}

static void on_arrival(PVOID context, NDK_CONNECTOR *connector)
{
}

static NTSTATUS create_listener(struct scene *s)
{
	return NdkCreateListener(s->rig.adapter, on_arrival, NULL, on_created, &s->outcome, NULL);
}

static NTSTATUS create_connector(struct scene *s)
{
	return NdkCreateConnector(s->rig.adapter, on_created, &s->outcome, NULL);
}

static NTSTATUS allocate(struct scene *s)
{
	return OrielAllocateMemory(4096, 0, &s->rig.mdl);
}

static NTSTATUS register_mr(struct scene *s)
{
	return NdkRegisterMr(s->rig.mr, s->rig.mdl, 4096, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, on_done,
			     &s->outcome);
}

static NTSTATUS bind_mw(struct scene *s)
{
	return NdkBind(s->rig.qp, NULL, s->rig.mr, s->rig.mw, s->rig.mdl->StartVa, 8,
		       ORIEL_OP_FLAG_EARLY);
}

static NTSTATUS connect_it(struct scene *s)
{
	struct sockaddr_storage address = { .ss_family = AF_INET };

	return NdkConnect(s->connector, s->rig.qp, (PSOCKADDR)&address, sizeof(address),
			  (PSOCKADDR)&address, sizeof(address), 1, 1, NULL, 0, on_done,
			  &s->outcome);
}

static bool is_shortage(NTSTATUS status)
{
	return status == STATUS_INSUFFICIENT_RESOURCES || status == STATUS_NO_MEMORY;
}

static ULONG progress(struct scene *scene)
{
	ULONG count;

	fake_step(&scene->rig.fake);
	enter(true);
	count = OrielProgress(scene->rig.adapter);
	enter(false);
	return count;
}

/* Does it; where memory failed it is a shortage, and the second time it works. */
static void *insist(struct scene *scene, action *act)
{
	for (unsigned int attempt = 0; attempt < 2; attempt++) {
		NTSTATUS status;

		memset(&scene->outcome, 0, sizeof(scene->outcome));
		has_failed = false;
		enter(true);
		status = act(scene);
		enter(false);
		if (status == STATUS_PENDING) {
			while (!scene->outcome.calls)
				progress(scene);
			cr_assert_eq(scene->outcome.calls, 1);
			status = scene->outcome.status;
		} else {
			progress(scene);
			cr_assert_eq(scene->outcome.calls, 0, "an inline result has no callback");
		}
		if (status == STATUS_SUCCESS)
			return scene->outcome.object;
		cr_assert(has_failed && is_shortage(status), "%s", OrielStatusName(status));
		cr_assert_null(scene->outcome.object);
	}
	cr_assert_fail("does not work the second time");
	return NULL;
}

static void play(struct scene *scene)
{
	struct rig *rig = &scene->rig;

	rig->pd = insist(scene, create_pd);
	rig->cq = insist(scene, create_cq);
	rig->qp = insist(scene, create_qp);
	rig->mr = insist(scene, create_mr);
	rig->mw = insist(scene, create_mw);
	scene->listener = insist(scene, create_listener);
	scene->connector = insist(scene, create_connector);
	insist(scene, allocate);
	insist(scene, register_mr);
	insist(scene, bind_mw);
	insist(scene, connect_it);
	enter(true);
	NdkFlush(rig->qp);
	enter(false);
}

static void open_adapter(struct scene *scene)
{
	NTSTATUS status;

	memset(scene, 0, sizeof(*scene));
	has_failed = false;
	fake_start(&scene->rig.fake);
	scene->rig.fake.around = enter;
	status = fake_open(&scene->rig.fake, NULL, &scene->rig.adapter);
	if (status == STATUS_SUCCESS)
		return;
	cr_assert(has_failed && is_shortage(status), "%s", OrielStatusName(status));
	fake_stop(&scene->rig.fake);
	memset(scene, 0, sizeof(*scene));
	fake_start(&scene->rig.fake);
	cr_assert_eq(fake_open(&scene->rig.fake, NULL, &scene->rig.adapter), STATUS_SUCCESS);
}

Test(failures, every_allocation_in_turn)
{
	static struct scene scene;
	unsigned int kth = 0;

	do {
		left = ++kth;
		open_adapter(&scene);
		play(&scene);
		rig_close(&scene.rig);
	} while (left == 0);
	cr_expect_gt(kth, 20, "only %u allocations were seen", kth);
}
