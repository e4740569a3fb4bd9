/* SPDX-License-Identifier: BSD-3-Clause */
/* <ndk/ndk.h>'s structures, dispatch tables and inline calls against NDKPI. */
#include <criterion/criterion.h>

#include "ndk/ndk.h"
#include "shm/layout.h"

#define SIZE(type, bytes) \
	cr_expect_eq(sizeof(type), (size_t)(bytes), #type " has %zu bytes", sizeof(type))
#define AT(type, member, bytes)                                                               \
	cr_expect_eq(offsetof(type, member), (size_t)(bytes), #type "." #member " is at %zu", \
		     offsetof(type, member))
#define SLOT(object, slot, member) AT(NDK_##object##_DISPATCH, member, (slot) * sizeof(void *))
#define SLOTS(object, slots)       SIZE(NDK_##object##_DISPATCH, (slots) * sizeof(void *))
#define OBJECT(object)                    \
	do {                              \
		SIZE(object, 48);         \
		AT(object, Header, 0);    \
		AT(object, Dispatch, 40); \
	} while (0)

/* ULONG has 32 bits and NTSTATUS a sign, whatever long is here. */
Test(ndk_layout, base_types_have_windows_widths)
{
	SIZE(BOOLEAN, 1);
	SIZE(USHORT, 2);
	SIZE(ULONG, 4);
	SIZE(UINT32, 4);
	SIZE(NTSTATUS, 4);
	SIZE(UINT64, 8);
	SIZE(SIZE_T, sizeof(void *));
	SIZE(ULONG_PTR, sizeof(void *));
	SIZE(GUID, 16);
	cr_expect_lt((NTSTATUS)-1, 0);
}

/* Layouts of NDKPI 2.1 on 64 bits. */
Test(ndk_layout, objects)
{
	SIZE(NDK_VERSION, 4);
	SIZE(NDK_OBJECT_HEADER, 40);
	AT(NDK_OBJECT_HEADER, Version, 0);
	AT(NDK_OBJECT_HEADER, ObjectType, 4);
	AT(NDK_OBJECT_HEADER, NdkReserved, 8);
	OBJECT(NDK_ADAPTER);
	OBJECT(NDK_PD);
	OBJECT(NDK_CQ);
	OBJECT(NDK_MR);
	OBJECT(NDK_QP);
	OBJECT(NDK_CONNECTOR);
	OBJECT(NDK_LISTENER);
	OBJECT(NDK_SRQ);
	OBJECT(NDK_MW);
	OBJECT(NDK_SHARED_ENDPOINT);
}

Test(ndk_layout, adapter_info)
{
	SIZE(NDK_ADAPTER_INFO, 104);
	AT(NDK_ADAPTER_INFO, Version, 0);
	AT(NDK_ADAPTER_INFO, VendorId, 4);
	AT(NDK_ADAPTER_INFO, DeviceId, 8);
	AT(NDK_ADAPTER_INFO, MaxRegistrationSize, 16);
	AT(NDK_ADAPTER_INFO, MaxWindowSize, 24);
	AT(NDK_ADAPTER_INFO, FRMRPageCount, 32);
	AT(NDK_ADAPTER_INFO, MaxInitiatorRequestSge, 36);
	AT(NDK_ADAPTER_INFO, MaxReceiveRequestSge, 40);
	AT(NDK_ADAPTER_INFO, MaxReadRequestSge, 44);
	AT(NDK_ADAPTER_INFO, MaxTransferLength, 48);
	AT(NDK_ADAPTER_INFO, MaxInlineDataSize, 52);
	AT(NDK_ADAPTER_INFO, MaxInboundReadLimit, 56);
	AT(NDK_ADAPTER_INFO, MaxOutboundReadLimit, 60);
	AT(NDK_ADAPTER_INFO, MaxReceiveQueueDepth, 64);
	AT(NDK_ADAPTER_INFO, MaxInitiatorQueueDepth, 68);
	AT(NDK_ADAPTER_INFO, MaxSrqDepth, 72);
	AT(NDK_ADAPTER_INFO, MaxCqDepth, 76);
	AT(NDK_ADAPTER_INFO, LargeRequestThreshold, 80);
	AT(NDK_ADAPTER_INFO, MaxCallerData, 84);
	AT(NDK_ADAPTER_INFO, MaxCalleeData, 88);
	AT(NDK_ADAPTER_INFO, AdapterFlags, 92);
	AT(NDK_ADAPTER_INFO, RdmaTechnology, 96);
}

Test(ndk_layout, results_and_sges)
{
	SIZE(NDK_RESULT, 24);
	SIZE(NDK_RESULT_EX, 40);
	AT(NDK_RESULT, Status, 0);
	AT(NDK_RESULT, BytesTransferred, 4);
	AT(NDK_RESULT, QPContext, 8);
	AT(NDK_RESULT, RequestContext, 16);
	AT(NDK_RESULT_EX, Status, 0);
	AT(NDK_RESULT_EX, BytesTransferred, 4);
	AT(NDK_RESULT_EX, QPContext, 8);
	AT(NDK_RESULT_EX, RequestContext, 16);
	AT(NDK_RESULT_EX, Type, 24);
	AT(NDK_RESULT_EX, ProviderErrorCode, 28);
	AT(NDK_RESULT_EX, TypeSpecificCompletionOutput, 32);
	SIZE(NDK_SGE, 16);
	AT(NDK_SGE, VirtualAddress, 0);
	AT(NDK_SGE, LogicalAddress, 0);
	AT(NDK_SGE, Length, 8);
	AT(NDK_SGE, MemoryRegionToken, 12);
	SIZE(NDK_LOGICAL_ADDRESS, 8);
	AT(NDK_LOGICAL_ADDRESS_MAPPING, AdapterContext, 0);
	AT(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageCount, 8);
	AT(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray, 16);
}

/* shm/layout.h: an SGE goes to the worker as the program gave it. */
Test(ndk_layout, sge_is_that_of_shared_memory)
{
	SIZE(struct shm_sge, sizeof(NDK_SGE));
	AT(struct shm_sge, address, offsetof(NDK_SGE, VirtualAddress));
	AT(struct shm_sge, length, offsetof(NDK_SGE, Length));
	AT(struct shm_sge, token, offsetof(NDK_SGE, MemoryRegionToken));
}

/* The order of the slots is NDKPI's binary interface. */
Test(ndk_layout, dispatch_tables)
{
	SLOT(ADAPTER, 0, NdkQueryExtension);
	SLOT(ADAPTER, 1, NdkQueryAdapterInfo);
	SLOT(ADAPTER, 2, NdkCreateCq);
	SLOT(ADAPTER, 3, NdkCreatePd);
	SLOT(ADAPTER, 4, NdkCreateSharedEndpoint);
	SLOT(ADAPTER, 5, NdkCreateConnector);
	SLOT(ADAPTER, 6, NdkCreateListener);
	SLOT(ADAPTER, 7, NdkBuildLAM);
	SLOT(ADAPTER, 8, NdkReleaseLAM);
	SLOTS(ADAPTER, 9);

	SLOT(PD, 0, NdkClosePd);
	SLOT(PD, 1, NdkQueryExtension);
	SLOT(PD, 2, NdkCreateMr);
	SLOT(PD, 3, NdkCreateMw);
	SLOT(PD, 4, NdkCreateSrq);
	SLOT(PD, 5, NdkCreateQp);
	SLOT(PD, 6, NdkCreateQpWithSrq);
	SLOT(PD, 7, NdkGetPrivilegedMemoryRegionToken);
	SLOTS(PD, 8);

	SLOT(CQ, 0, NdkCloseCq);
	SLOT(CQ, 1, NdkQueryExtension);
	SLOT(CQ, 2, NdkResizeCq);
	SLOT(CQ, 3, NdkArmCq);
	SLOT(CQ, 4, NdkGetCqResults);
	SLOT(CQ, 5, NdkControlCqInterruptModeration);
	SLOT(CQ, 6, NdkGetCqResultsEx);
	SLOTS(CQ, 7);

	SLOT(MR, 0, NdkCloseMr);
	SLOT(MR, 1, NdkQueryExtension);
	SLOT(MR, 2, NdkRegisterMr);
	SLOT(MR, 3, NdkDeregisterMr);
	SLOT(MR, 4, NdkInitializeFastRegisterMr);
	SLOT(MR, 5, NdkGetRemoteTokenFromMr);
	SLOT(MR, 6, NdkGetLocalTokenFromMr);
	SLOTS(MR, 7);

	SLOT(QP, 0, NdkCloseQp);
	SLOT(QP, 1, NdkQueryExtension);
	SLOT(QP, 2, NdkFlush);
	SLOT(QP, 3, NdkSend);
	SLOT(QP, 4, NdkReceive);
	SLOT(QP, 5, NdkBind);
	SLOT(QP, 6, NdkFastRegister);
	SLOT(QP, 7, NdkInvalidate);
	SLOT(QP, 8, NdkRead);
	SLOT(QP, 9, NdkWrite);
	SLOT(QP, 10, NdkSendAndInvalidate);
	SLOTS(QP, 11);

	SLOT(CONNECTOR, 0, NdkCloseConnector);
	SLOT(CONNECTOR, 1, NdkQueryExtension);
	SLOT(CONNECTOR, 2, NdkConnect);
	SLOT(CONNECTOR, 3, NdkConnectWithSharedEndpoint);
	SLOT(CONNECTOR, 4, NdkCompleteConnect);
	SLOT(CONNECTOR, 5, NdkAccept);
	SLOT(CONNECTOR, 6, NdkReject);
	SLOT(CONNECTOR, 7, NdkGetConnectionData);
	SLOT(CONNECTOR, 8, NdkGetLocalAddress);
	SLOT(CONNECTOR, 9, NdkGetPeerAddress);
	SLOT(CONNECTOR, 10, NdkDisconnect);
	SLOT(CONNECTOR, 11, NdkCompleteConnectEx);
	SLOT(CONNECTOR, 12, NdkAcceptEx);
	SLOTS(CONNECTOR, 13);

	SLOT(LISTENER, 0, NdkCloseListener);
	SLOT(LISTENER, 1, NdkQueryExtension);
	SLOT(LISTENER, 2, NdkListen);
	SLOT(LISTENER, 3, NdkGetLocalAddress);
	SLOT(LISTENER, 4, NdkControlConnectEvents);
	SLOTS(LISTENER, 5);

	SLOT(SRQ, 0, NdkCloseSrq);
	SLOT(SRQ, 1, NdkQueryExtension);
	SLOT(SRQ, 2, NdkModifySrq);
	SLOT(SRQ, 3, NdkSrqReceive);
	SLOTS(SRQ, 4);

	SLOT(MW, 0, NdkCloseMw);
	SLOT(MW, 1, NdkQueryExtension);
	SLOT(MW, 2, NdkGetRemoteTokenFromMw);
	SLOTS(MW, 3);

	SLOT(SHARED_ENDPOINT, 0, NdkCloseSharedEndpoint);
	SLOT(SHARED_ENDPOINT, 1, NdkQueryExtension);
	SLOT(SHARED_ENDPOINT, 2, NdkGetLocalAddress);
	SLOTS(SHARED_ENDPOINT, 3);
}

/* --- the inline calls --------------------------------------------------------- */

static struct call {
	const char *slot;
	uint64_t value[8];
} call;

static uint64_t bits(const void *pointer)
{
	return (uint64_t)(uintptr_t)pointer;
}

static void *pointer(uintptr_t bits)
{
	return (void *)bits;
}

static NTSTATUS fake_read(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG sges, UINT64 address,
			  UINT32 token, ULONG flags)
{
	call = (struct call){ "read",
			      { bits(qp), bits(context), bits(sgl), sges, address, token, flags } };
	return STATUS_SUCCESS;
}

static NTSTATUS fake_write(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG sges,
			   UINT64 address, UINT32 token, ULONG flags)
{
	call = (struct call){ "write",
			      { bits(qp), bits(context), bits(sgl), sges, address, token, flags } };
	return STATUS_NO_MORE_ENTRIES;
}

static NTSTATUS fake_send_and_invalidate(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG sges,
					 ULONG flags, UINT32 token)
{
	call = (struct call){ "send and invalidate",
			      { bits(qp), bits(context), bits(sgl), sges, flags, token } };
	return STATUS_CONNECTION_INVALID;
}

static NTSTATUS fake_bind(NDK_QP *qp, PVOID context, NDK_MR *mr, NDK_MW *mw, PVOID address,
			  SIZE_T length, ULONG flags)
{
	call = (struct call){ "bind",
			      { bits(qp), bits(context), bits(mr), bits(mw), bits(address), length,
				flags } };
	return STATUS_ACCESS_VIOLATION;
}

static NTSTATUS fake_close(NDK_OBJECT_HEADER *header, NDK_FN_CLOSE_COMPLETION completion,
			   PVOID context)
{
	call = (struct call){ "close",
			      { bits(header), (uint64_t)(uintptr_t)completion, bits(context) } };
	return STATUS_PENDING;
}

static void closed(PVOID context)
{
}

static void expect_call(const char *slot, const uint64_t *value, size_t count)
{
	cr_assert_not_null(call.slot);
	cr_assert_str_eq(call.slot, slot);
	for (size_t i = 0; i < count; i++)
		cr_expect_eq(call.value[i], value[i], "argument %zu of %s", i, slot);
}

#define EXPECT_CALL(slot, ...)                                                 \
	do {                                                                   \
		const uint64_t wanted[] = { __VA_ARGS__ };                     \
		expect_call(slot, wanted, sizeof(wanted) / sizeof(wanted[0])); \
	} while (0)

static const NDK_QP_DISPATCH qp_table = {
	.NdkCloseQp = fake_close,
	.NdkBind = fake_bind,
	.NdkRead = fake_read,
	.NdkWrite = fake_write,
	.NdkSendAndInvalidate = fake_send_and_invalidate,
};

/*
 * Posts reach their own slot with each argument in NDKPI's place: read and write have the
 * token before the flags, send-and-invalidate behind them.
 */
Test(ndk_calls, posts_pass_their_arguments_in_order)
{
	NDK_QP qp = { .Dispatch = &qp_table };
	NDK_SGE sge = { 0 };
	NDK_MR mr;
	NDK_MW mw;

	cr_expect_eq(NdkRead(&qp, pointer(1), &sge, 2, 3, 4, 5), STATUS_SUCCESS);
	EXPECT_CALL("read", bits(&qp), 1, bits(&sge), 2, 3, 4, 5);
	cr_expect_eq(NdkWrite(&qp, pointer(1), &sge, 2, 3, 4, 5), STATUS_NO_MORE_ENTRIES);
	EXPECT_CALL("write", bits(&qp), 1, bits(&sge), 2, 3, 4, 5);
	cr_expect_eq(NdkSendAndInvalidate(&qp, pointer(1), &sge, 2, 3, 4),
		     STATUS_CONNECTION_INVALID);
	EXPECT_CALL("send and invalidate", bits(&qp), 1, bits(&sge), 2, 3, 4);
	cr_expect_eq(NdkBind(&qp, pointer(1), &mr, &mw, pointer(0x1000), 2, 3),
		     STATUS_ACCESS_VIOLATION);
	EXPECT_CALL("bind", bits(&qp), 1, bits(&mr), bits(&mw), 0x1000, 2, 3);
}

#define EXPECT_CLOSE(type, function)                                                        \
	do {                                                                                \
		static const type##_DISPATCH table = { .function = fake_close };            \
		type object = { .Dispatch = &table };                                       \
                                                                                            \
		call.slot = NULL;                                                           \
		cr_expect_eq(function(&object, closed, pointer(7)), STATUS_PENDING);        \
		EXPECT_CALL("close", bits(&object.Header), (uint64_t)(uintptr_t)closed, 7); \
	} while (0)

/* NDK_FN_CLOSE_OBJECT takes the header. */
Test(ndk_calls, closes_pass_the_header)
{
	EXPECT_CLOSE(NDK_PD, NdkClosePd);
	EXPECT_CLOSE(NDK_CQ, NdkCloseCq);
	EXPECT_CLOSE(NDK_MR, NdkCloseMr);
	EXPECT_CLOSE(NDK_QP, NdkCloseQp);
	EXPECT_CLOSE(NDK_CONNECTOR, NdkCloseConnector);
	EXPECT_CLOSE(NDK_LISTENER, NdkCloseListener);
	EXPECT_CLOSE(NDK_SRQ, NdkCloseSrq);
	EXPECT_CLOSE(NDK_MW, NdkCloseMw);
	EXPECT_CLOSE(NDK_SHARED_ENDPOINT, NdkCloseSharedEndpoint);
}

static UINT32 local_token(NDK_MR *mr)
{
	return 11;
}

static UINT32 remote_token(NDK_MR *mr)
{
	return 22;
}

/* Two getters of one type: neither gives the other's token, which would hand a peer the wrong one.
 */
Test(ndk_calls, token_getters_are_not_exchanged)
{
	static const NDK_MR_DISPATCH table = {
		.NdkGetLocalTokenFromMr = local_token,
		.NdkGetRemoteTokenFromMr = remote_token,
	};
	NDK_MR mr = { .Dispatch = &table };

	cr_expect_eq(NdkGetLocalTokenFromMr(&mr), 11);
	cr_expect_eq(NdkGetRemoteTokenFromMr(&mr), 22);
}

static NTSTATUS local_address(NDK_CONNECTOR *connector, PSOCKADDR address, ULONG *length)
{
	*length = 1;
	return STATUS_SUCCESS;
}

static NTSTATUS peer_address(NDK_CONNECTOR *connector, PSOCKADDR address, ULONG *length)
{
	*length = 2;
	return STATUS_SUCCESS;
}

static NTSTATUS listener_address(NDK_LISTENER *listener, PSOCKADDR address, ULONG *length)
{
	*length = 3;
	return STATUS_SUCCESS;
}

static NTSTATUS endpoint_address(NDK_SHARED_ENDPOINT *endpoint, PSOCKADDR address, ULONG *length)
{
	*length = 4;
	return STATUS_SUCCESS;
}

/* NDKPI has three slots named NdkGetLocalAddress, of three types. */
Test(ndk_calls, address_getters_reach_their_own_object)
{
	static const NDK_CONNECTOR_DISPATCH connector_table = {
		.NdkGetLocalAddress = local_address,
		.NdkGetPeerAddress = peer_address,
	};
	static const NDK_LISTENER_DISPATCH listener_table = {
		.NdkGetLocalAddress = listener_address,
	};
	static const NDK_SHARED_ENDPOINT_DISPATCH endpoint_table = {
		.NdkGetLocalAddress = endpoint_address,
	};
	NDK_CONNECTOR connector = { .Dispatch = &connector_table };
	NDK_LISTENER listener = { .Dispatch = &listener_table };
	NDK_SHARED_ENDPOINT endpoint = { .Dispatch = &endpoint_table };
	ULONG length = 0;

	cr_expect_eq(NdkGetLocalAddress(&connector, NULL, &length), STATUS_SUCCESS);
	cr_expect_eq(length, 1);
	cr_expect_eq(NdkGetPeerAddress(&connector, NULL, &length), STATUS_SUCCESS);
	cr_expect_eq(length, 2);
	cr_expect_eq(NdkGetListenerLocalAddress(&listener, NULL, &length), STATUS_SUCCESS);
	cr_expect_eq(length, 3);
	cr_expect_eq(NdkGetSharedEndpointLocalAddress(&endpoint, NULL, &length), STATUS_SUCCESS);
	cr_expect_eq(length, 4);
}
