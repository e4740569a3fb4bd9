/* SPDX-License-Identifier: BSD-3-Clause */
/* An open adapter on a fake daemon, and the usual objects in it. */
#include "rig.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h>

void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct outcome *outcome = context;

	outcome->calls++;
	outcome->status = status;
	outcome->object = object;
}

void on_done(PVOID context, NTSTATUS status)
{
	struct outcome *outcome = context;

	outcome->calls++;
	outcome->status = status;
}

void on_closed(PVOID context)
{
	struct outcome *outcome = context;

	outcome->calls++;
}

void rig_run(struct rig *rig)
{
	do
		fake_step(&rig->fake);
	while (OrielProgress(rig->adapter) || fake_has_requests(&rig->fake));
}

void rig_open(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	fake_start(&rig->fake);
	cr_assert_eq(fake_open(&rig->fake, NULL, &rig->adapter), STATUS_SUCCESS, "%s",
		     OrielOpenErrorText());
	rig_run(rig);
}

static void *created(struct rig *rig, NTSTATUS status, struct outcome *outcome)
{
	cr_assert_eq(status, STATUS_PENDING);
	rig_run(rig);
	cr_assert_eq(outcome->calls, 1);
	cr_assert_eq(outcome->status, STATUS_SUCCESS);
	cr_assert_not_null(outcome->object);
	return outcome->object;
}

static void on_notified(PVOID context, NTSTATUS status)
{
	struct rig *rig = context;
	NDK_RESULT results[8];

	rig->notifications++;
	rig->notified = status;
	if (!rig->rearm)
		return;
	while (NdkGetCqResults(rig->cq, results, 8))
		;
	NdkArmCq(rig->cq, NDK_CQ_NOTIFY_ANY);
}

NDK_PD *rig_create_pd(struct rig *rig)
{
	struct outcome outcome = { 0 };

	return created(rig, NdkCreatePd(rig->adapter, on_created, &outcome, NULL), &outcome);
}

NDK_CQ *rig_create_cq(struct rig *rig, ULONG depth)
{
	struct outcome outcome = { 0 };

	return created(rig,
		       NdkCreateCq(rig->adapter, depth, on_notified, rig, NULL, on_created,
				   &outcome, NULL),
		       &outcome);
}

NDK_QP *rig_create_qp(struct rig *rig, PVOID context)
{
	struct outcome outcome = { 0 };

	return created(rig,
		       NdkCreateQp(rig->pd, rig->cq, rig->cq, context, 4, 4, 2, 2, 64, on_created,
				   &outcome, NULL),
		       &outcome);
}

NDK_MW *rig_create_mw(struct rig *rig, NDK_PD *pd)
{
	struct outcome outcome = { 0 };

	return created(rig, NdkCreateMw(pd, on_created, &outcome, NULL), &outcome);
}

NDK_LISTENER *rig_listen(struct rig *rig, NDK_FN_CONNECT_EVENT_CALLBACK event, PVOID context)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct outcome outcome = { 0 };
	NDK_LISTENER *listener;

	inet_pton(AF_INET, "10.0.0.1", &address.sin_addr);
	listener = created(
		rig, NdkCreateListener(rig->adapter, event, context, on_created, &outcome, NULL),
		&outcome);
	memset(&outcome, 0, sizeof(outcome));
	cr_assert_eq(NdkListen(listener, (PSOCKADDR)&address, sizeof(address), on_done, &outcome),
		     STATUS_PENDING);
	rig_run(rig);
	cr_assert_eq(outcome.calls, 1);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	return listener;
}

void rig_queues(struct rig *rig)
{
	rig_open(rig);
	rig->pd = rig_create_pd(rig);
	rig->cq = rig_create_cq(rig, 64);
	rig->qp = rig_create_qp(rig, rig);
}

void rig_connected(struct rig *rig)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct outcome outcome = { 0 };
	ORIEL_QP_CONNECTION connection = { .Size = sizeof(connection),
					   .RemoteQpNumber = 0x200,
					   .PathMtu = 1024,
					   .LocalAddress = (PSOCKADDR)&address,
					   .RemoteAddress = (PSOCKADDR)&address };

	rig_queues(rig);
	cr_assert_eq(OrielConnectQp(rig->qp, &connection, on_done, &outcome), STATUS_PENDING);
	rig_run(rig);
	cr_assert_eq(outcome.calls, 1);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
}

void rig_memory(struct rig *rig, ULONG access)
{
	struct outcome outcome = { 0 };

	cr_assert_eq(OrielAllocateMemory(4096, 0, &rig->mdl), STATUS_SUCCESS);
	rig->mr = created(rig, NdkCreateMr(rig->pd, FALSE, on_created, &outcome, NULL), &outcome);
	memset(&outcome, 0, sizeof(outcome));
	cr_assert_eq(NdkRegisterMr(rig->mr, rig->mdl, 4096, access, on_done, &outcome),
		     STATUS_PENDING);
	rig_run(rig);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	rig->sge = (NDK_SGE){ .VirtualAddress = rig->mdl->StartVa,
			      .Length = 64,
			      .MemoryRegionToken = NdkGetLocalTokenFromMr(rig->mr) };
	rig->mw = rig_create_mw(rig, rig->pd);
}

static void *serve(void *argument)
{
	struct rig *rig = argument;
	struct timespec pause = { .tv_nsec = 100000 };

	while (!__atomic_load_n(&rig->closed, __ATOMIC_ACQUIRE)) {
		fake_step(&rig->fake);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

/* OrielCloseAdapter() blocks, so somebody else has to be the daemon meanwhile. */
void rig_close(struct rig *rig)
{
	pthread_t daemon;

	if (rig->fake.socket >= 0)
		fake_release(&rig->fake);
	pthread_create(&daemon, NULL, serve, rig);
	OrielCloseAdapter(rig->adapter);
	__atomic_store_n(&rig->closed, true, __ATOMIC_RELEASE);
	pthread_join(daemon, NULL);
	if (rig->mdl)
		OrielFreeMemory(rig->mdl);
	fake_stop(&rig->fake);
}
