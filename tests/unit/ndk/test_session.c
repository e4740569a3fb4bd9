/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening an adapter, what it tells of itself, sleeping, and the daemon's death. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

/* --- opening --------------------------------------------------------------------------- */

static NTSTATUS open_with(struct fake *fake, USHORT major, USHORT minor, NDK_ADAPTER **adapter)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { major, minor } };

	fake_start(fake);
	return fake_open(fake, &parameters, adapter);
}

Test(open, asks_for_its_version_and_reports_the_daemons_highest)
{
	NDK_ADAPTER_INFO info;
	ULONG size = sizeof(info);
	NDK_ADAPTER *adapter;
	struct fake fake;

	cr_assert_eq(open_with(&fake, 2, 0, &adapter), STATUS_SUCCESS);
	cr_expect_eq(fake.hello.ndk_major, 2);
	cr_expect_eq(fake.hello.ndk_minor, 0);
	cr_expect_eq(adapter->Header.Version.Major, 2);
	cr_expect_eq(adapter->Header.Version.Minor, 1);
	cr_expect_eq(adapter->Header.ObjectType, NdkObjectTypeAdapter);
	cr_assert_eq(NdkQueryAdapterInfo(adapter, &info, &size), STATUS_SUCCESS);
	cr_expect_eq(info.Version.Minor, 1);
	cr_expect_eq(info.MaxCallerData, 56);
	cr_expect_eq(info.MaxCalleeData, 148);
	cr_expect_eq(info.MaxTransferLength, 1u << 31);
	cr_expect_eq(info.RdmaTechnology, NdkRoCEv2);
	OrielCloseAdapter(adapter);
	fake_stop(&fake);
}

Test(open, a_version_one_program_gets_1_2)
{
	NDK_ADAPTER *adapter;
	struct fake fake;

	cr_assert_eq(open_with(&fake, 1, 1, &adapter), STATUS_SUCCESS);
	cr_expect_eq(adapter->Header.Version.Major, 1);
	cr_expect_eq(adapter->Header.Version.Minor, 2);
	OrielCloseAdapter(adapter);
	fake_stop(&fake);
}

Test(open, the_daemons_refusal_and_its_reason_reach_the_caller)
{
	NDK_ADAPTER *adapter;
	struct fake fake;
	NTSTATUS status;

	fake_start(&fake);
	fake.welcome_status = NDIS_STATUS_BAD_VERSION;
	status = fake_open(&fake, NULL, &adapter);
	cr_expect_eq(status, NDIS_STATUS_BAD_VERSION);
	cr_expect(strstr(OrielOpenErrorText(), "the test says no"), "%s", OrielOpenErrorText());
	fake_stop(&fake);
}

/* B105 */
Test(open, another_layout_is_a_clear_error)
{
	NDK_ADAPTER *adapter;
	struct fake fake;

	fake_start(&fake);
	fake.welcome_version = SHM_LAYOUT_VERSION + 1;
	cr_expect_eq(fake_open(&fake, NULL, &adapter), NDIS_STATUS_BAD_VERSION);
	cr_expect(strstr(OrielOpenErrorText(), "layout"), "%s", OrielOpenErrorText());
	fake_stop(&fake);
}

Test(open, without_a_daemon)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { 1, 2 },
						   .Socket = "/nonexistent/ndk.sock" };
	NDK_ADAPTER *adapter;

	cr_expect_eq(OrielOpenAdapter(&parameters, &adapter), STATUS_DEVICE_NOT_READY);
	cr_expect(strstr(OrielOpenErrorText(), "/nonexistent/ndk.sock"));
}

Test(open, parameters_are_checked)
{
	ORIEL_OPEN_PARAMETERS parameters = { .Size = 4 };
	NDK_ADAPTER *adapter;

	cr_expect_eq(OrielOpenAdapter(&parameters, &adapter), STATUS_INVALID_PARAMETER);
	cr_expect(strstr(OrielOpenErrorText(), "Size"), "%s", OrielOpenErrorText());
	parameters.Size = sizeof(parameters);
	parameters.Flags = ~ORIEL_OPEN_PROGRESS_THREAD;
	cr_expect_eq(OrielOpenAdapter(&parameters, &adapter), STATUS_INVALID_PARAMETER);
	cr_expect(strstr(OrielOpenErrorText(), "Flags"), "%s", OrielOpenErrorText());
}

/* --- queries ------------------------------------------------------------------------------ */

/* NdkQueryAdapterInfo: BUFFER_TOO_SMALL with the needed size. */
Test(query, adapter_info_says_how_much_it_needs)
{
	struct rig rig;
	ULONG size = 8;

	rig_open(&rig);
	cr_expect_eq(NdkQueryAdapterInfo(rig.adapter, NULL, &size), STATUS_BUFFER_TOO_SMALL);
	cr_expect_eq(size, sizeof(NDK_ADAPTER_INFO));
	rig_close(&rig);
}

Test(query, no_extension_interface_exists)
{
	NDK_EXTENSION_INTERFACE interface;
	NDK_VERSION version = { 1, 0 };
	GUID id = { 0 };
	struct rig rig;

	rig_open(&rig);
	cr_expect_eq(rig.adapter->Dispatch->NdkQueryExtension(&rig.adapter->Header, &id, version,
							      &interface),
		     STATUS_NOT_SUPPORTED);
	rig_close(&rig);
}

Test(query, addresses)
{
	struct sockaddr_storage addresses[2];
	struct sockaddr_in *first = (struct sockaddr_in *)&addresses[0];
	ULONG count = 0;
	struct rig rig;

	rig_open(&rig);
	cr_expect_eq(OrielQueryAddresses(rig.adapter, NULL, &count), STATUS_BUFFER_TOO_SMALL);
	cr_expect_eq(count, 1);
	count = 2;
	cr_expect_eq(OrielQueryAddresses(rig.adapter, addresses, &count), STATUS_SUCCESS);
	cr_expect_eq(count, 1);
	cr_expect_eq(first->sin_family, AF_INET);
	cr_expect_eq(first->sin_addr.s_addr, htonl(0x0a000001));
	rig_close(&rig);
}

Test(query, status_names)
{
	cr_expect_str_eq(OrielStatusName(STATUS_ACCESS_VIOLATION), "STATUS_ACCESS_VIOLATION");
	cr_expect_str_eq(OrielStatusName((NTSTATUS)0xC00000EF), "STATUS_INVALID_PARAMETER_1");
	cr_expect_not_null(OrielStatusName((NTSTATUS)0x12345678));
}

/* --- sleeping ------------------------------------------------------------------------------- */

Test(wait, ends_with_a_reply_and_with_the_time)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_open(&rig);
	while (OrielWait(rig.adapter, 0) == STATUS_SUCCESS)
		OrielProgress(rig.adapter);
	cr_expect_eq(OrielWait(rig.adapter, 0), STATUS_TIMEOUT);
	NdkCreatePd(rig.adapter, on_created, &outcome, NULL);
	fake_step(&rig.fake);
	cr_expect_eq(OrielWait(rig.adapter, -1), STATUS_SUCCESS);
	OrielProgress(rig.adapter);
	cr_expect_eq(outcome.calls, 1);
	rig_close(&rig);
}

static bool readable(int fd)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	return poll(&poller, 1, 0) == 1;
}

Test(wait, the_descriptor_is_readable_while_there_is_something_to_do)
{
	struct outcome outcome = { 0 };
	struct rig rig;
	int fd;

	rig_open(&rig);
	fd = OrielGetEventFd(rig.adapter);
	while (OrielProgress(rig.adapter))
		;
	cr_expect_not(readable(fd));
	NdkCreatePd(rig.adapter, on_created, &outcome, NULL);
	fake_step(&rig.fake);
	cr_expect(readable(fd));
	cr_expect_eq(OrielProgress(rig.adapter), 1);
	cr_expect_eq(OrielProgress(rig.adapter), 0);
	cr_expect_not(readable(fd));
	fake_die(&rig.fake);
	cr_expect(readable(fd), "the daemon's death");
	rig_close(&rig);
}

/* Dekker with the control core: it sleeps, so a request writes its eventfd. */
Test(wait, a_sleeping_daemon_is_woken)
{
	struct outcome outcome = { 0 };
	uint64_t count = 0;
	struct rig rig;

	rig_open(&rig);
	cr_expect_not(readable(rig.fake.control_fd));
	rig.fake.session->control_sleeping = 1;
	NdkCreatePd(rig.adapter, on_created, &outcome, NULL);
	cr_expect(readable(rig.fake.control_fd));
	cr_expect_eq(read(rig.fake.control_fd, &count, sizeof(count)), sizeof(count));
	rig.fake.session->control_sleeping = 0;
	rig_run(&rig);
	rig_close(&rig);
}

/* --- the daemon's death -------------------------------------------------------------- */

struct removal {
	unsigned int events;
	NDK_OBJECT_HEADER *object;
};

static void on_event(PVOID context, ORIEL_EVENT event, NDK_OBJECT_HEADER *object, ULONG reason)
{
	struct removal *removal = context;

	cr_expect_eq(event, OrielEventDeviceRemoved);
	removal->events++;
	removal->object = object;
}

static void die_with_a_request_pending(struct rig *rig, struct outcome *outcome,
				       struct removal *removal, bool ended)
{
	rig_connected(rig);
	OrielSetEventHandler(rig->adapter, on_event, removal);
	rig->fake.hold[SHM_OP_CREATE_PD] = true;
	cr_assert_eq(NdkCreatePd(rig->adapter, on_created, outcome, NULL), STATUS_PENDING);
	fake_step(&rig->fake);
	if (ended)
		__atomic_store_n(&rig->fake.session->ended, 1, __ATOMIC_RELEASE);
	fake_die(&rig->fake);
	while (OrielWait(rig->adapter, -1) != STATUS_DEVICE_REMOVED)
		OrielProgress(rig->adapter);
}

/* B97: every waiting call returns. */
Test(removed, pending_requests_complete_and_the_event_comes_once)
{
	for (unsigned int ended = 0; ended < 2; ended++) {
		struct removal removal = { 0 };
		struct outcome outcome = { 0 };
		struct rig rig;

		die_with_a_request_pending(&rig, &outcome, &removal, ended);
		cr_expect_eq(outcome.calls, 1);
		cr_expect_eq(outcome.status, STATUS_DEVICE_REMOVED);
		cr_expect_null(outcome.object);
		cr_expect_eq(removal.events, 1);
		cr_expect_eq(removal.object, &rig.adapter->Header);
		rig_close(&rig);
	}
}

Test(removed, later_calls_say_so_and_closing_works)
{
	struct removal removal = { 0 };
	struct outcome outcome = { 0 };
	struct outcome qp = { 0 }, cq = { 0 };
	struct rig rig;

	die_with_a_request_pending(&rig, &outcome, &removal, false);
	cr_expect_eq(NdkCreatePd(rig.adapter, on_created, &outcome, NULL), STATUS_DEVICE_REMOVED);
	cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_DEVICE_REMOVED);
	cr_expect_eq(NdkReceive(rig.qp, NULL, NULL, 0), STATUS_DEVICE_REMOVED);
	/* The CQ still waits for its queue pair. */
	cr_expect_eq(NdkCloseCq(rig.cq, on_closed, &cq), STATUS_PENDING);
	OrielProgress(rig.adapter);
	cr_expect_eq(cq.calls, 0);
	cr_expect_eq(NdkCloseQp(rig.qp, on_closed, &qp), STATUS_PENDING);
	while (OrielProgress(rig.adapter))
		;
	cr_expect_eq(qp.calls, 1);
	cr_expect_eq(cq.calls, 1);
	rig_close(&rig);
}

Test(removed, entries_that_are_there_can_still_be_read)
{
	struct removal removal = { 0 };
	struct outcome outcome = { 0 };
	const struct shm_cqe cqe = { .type = NdkOperationTypeSend, .request_context = 7 };
	NDK_RESULT result;
	struct rig rig;

	rig_queues(&rig);
	OrielSetEventHandler(rig.adapter, on_event, &removal);
	fake_complete(&rig.fake, 0, 0, &cqe);
	fake_die(&rig.fake);
	while (OrielWait(rig.adapter, -1) != STATUS_DEVICE_REMOVED)
		OrielProgress(rig.adapter);
	cr_expect_eq(outcome.calls, 0);
	cr_assert_eq(NdkGetCqResults(rig.cq, &result, 1), 1);
	cr_expect_eq((uintptr_t)result.RequestContext, 7);
	rig_close(&rig);
}
