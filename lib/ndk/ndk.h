/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NDKPI for Linux programs: names, values and rules of Microsoft's Network Direct Kernel
 * Provider Interface, and below them Oriel's own extensions (Oriel..., ORIEL_...).
 *
 * The objects are those of NDKPI: each begins with a header and a dispatch table. NdkXxx()
 * inline functions call through the table. Base types have Windows' widths, so
 * ULONG is 32 bits here too. Programs link with libndk (pkg-config ndk).
 *
 * Threads. Nothing runs behind the caller's back: callbacks run in the thread that calls
 * OrielProgress() (or OrielCloseAdapter()), unless ORIEL_OPEN_PROGRESS_THREAD asked for one. The
 * consumer does not post to one queue, nor get results of and arm one CQ, from two threads at once;
 * all else may be called from any thread. A callback may call every function but OrielProgress(),
 * OrielWait() and OrielCloseAdapter().
 *
 * Results. Functions return NTSTATUS. STATUS_PENDING means that the completion callback will run
 * exactly once; anything else means that it will not. Posting functions never return
 * STATUS_PENDING: STATUS_SUCCESS promises one completion entry (none for a successful request with
 * NDK_OP_FLAG_SILENT_SUCCESS), an error promises none. Every function may also return
 * STATUS_DEVICE_REMOVED once the daemon is gone, and every create and asynchronous request
 * STATUS_INSUFFICIENT_RESOURCES, inline or in the completion: no memory here, or the daemon's
 * tables are full.
 *
 * Ownership. A create function does not write its last argument: the object comes with the callback
 * and is the consumer's until it closes it. SGEs, addresses, private data, page arrays and
 * parameter structures are read during the call and may be reused when it returns; so may the
 * bytes of NDK_OP_FLAG_INLINE, but no others before their request has completed. Contexts are
 * only handed back. Lengths are bytes.
 */
#ifndef NDK_NDK_H
#define NDK_NDK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
#define NDK_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define NDK_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* --- base types ---------------------------------------------------------------------------- */

typedef uint8_t UCHAR, BOOLEAN;
typedef uint16_t USHORT;
typedef uint32_t ULONG, UINT32;
typedef int32_t LONG, NTSTATUS;
typedef uint64_t UINT64, ULONG64;
typedef size_t SIZE_T;
typedef uintptr_t ULONG_PTR;
typedef void *PVOID;
typedef struct sockaddr *PSOCKADDR;

#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif

typedef struct _GUID {
	uint32_t Data1;
	uint16_t Data2;
	uint16_t Data3;
	uint8_t Data4[8];
} GUID;

typedef struct _GROUP_AFFINITY {
	ULONG_PTR Mask;
	USHORT Group;
	USHORT Reserved[3];
} GROUP_AFFINITY;

/*
 * A piece of registrable memory: a range of a sealed memfd, mapped in this process. Made by
 * OrielAllocateMemory() or OrielAdoptMemory(). Pieces chained by Next must follow each other in
 * virtual addresses. Only Next and ByteCount may be changed (ByteCount only made smaller).
 */
typedef struct _MDL {
	struct _MDL *Next;
	PVOID StartVa;     /* first byte */
	SIZE_T ByteCount;  /* bytes */
	PVOID OrielMemory; /* the library's */
} MDL;

/* --- statuses ----------------------------------------------------------------------------- */

#define NT_SUCCESS(status) ((NTSTATUS)(status) >= 0)

#define STATUS_SUCCESS                    ((NTSTATUS)0x00000000)
#define STATUS_TIMEOUT                    ((NTSTATUS)0x00000102)
#define STATUS_PENDING                    ((NTSTATUS)0x00000103)
#define STATUS_BUFFER_OVERFLOW            ((NTSTATUS)0x80000005)
#define STATUS_DEVICE_BUSY                ((NTSTATUS)0x80000011)
#define STATUS_NO_MORE_ENTRIES            ((NTSTATUS)0x8000001A)
#define STATUS_UNSUCCESSFUL               ((NTSTATUS)0xC0000001)
#define STATUS_ACCESS_VIOLATION           ((NTSTATUS)0xC0000005)
#define STATUS_INVALID_HANDLE             ((NTSTATUS)0xC0000008)
#define STATUS_INVALID_PARAMETER          ((NTSTATUS)0xC000000D)
#define STATUS_INVALID_DEVICE_REQUEST     ((NTSTATUS)0xC0000010)
#define STATUS_NO_MEMORY                  ((NTSTATUS)0xC0000017)
#define STATUS_BUFFER_TOO_SMALL           ((NTSTATUS)0xC0000023)
#define STATUS_INVALID_PARAMETER_MIX      ((NTSTATUS)0xC0000030)
#define STATUS_DATA_OVERRUN               ((NTSTATUS)0xC000003C)
#define STATUS_DATA_ERROR                 ((NTSTATUS)0xC000003E)
#define STATUS_SHARING_VIOLATION          ((NTSTATUS)0xC0000043)
#define STATUS_INSUFFICIENT_RESOURCES     ((NTSTATUS)0xC000009A)
#define STATUS_DEVICE_NOT_READY           ((NTSTATUS)0xC00000A3)
#define STATUS_IO_TIMEOUT                 ((NTSTATUS)0xC00000B5)
#define STATUS_NOT_SUPPORTED              ((NTSTATUS)0xC00000BB)
#define STATUS_BAD_NETWORK_NAME           ((NTSTATUS)0xC00000CC)
#define STATUS_INTERNAL_ERROR             ((NTSTATUS)0xC00000E5)
#define STATUS_INVALID_PARAMETER_1        ((NTSTATUS)0xC00000EF)
#define STATUS_INVALID_PARAMETER_2        ((NTSTATUS)0xC00000F0)
#define STATUS_INVALID_PARAMETER_3        ((NTSTATUS)0xC00000F1)
#define STATUS_INVALID_PARAMETER_4        ((NTSTATUS)0xC00000F2)
#define STATUS_INVALID_PARAMETER_5        ((NTSTATUS)0xC00000F3)
#define STATUS_INVALID_PARAMETER_6        ((NTSTATUS)0xC00000F4)
#define STATUS_INVALID_PARAMETER_7        ((NTSTATUS)0xC00000F5)
#define STATUS_INVALID_PARAMETER_8        ((NTSTATUS)0xC00000F6)
#define STATUS_INVALID_PARAMETER_9        ((NTSTATUS)0xC00000F7)
#define STATUS_INVALID_PARAMETER_10       ((NTSTATUS)0xC00000F8)
#define STATUS_CANCELLED                  ((NTSTATUS)0xC0000120)
#define STATUS_REMOTE_RESOURCES           ((NTSTATUS)0xC000013D)
#define STATUS_INVALID_ADDRESS            ((NTSTATUS)0xC0000141)
#define STATUS_INVALID_DEVICE_STATE       ((NTSTATUS)0xC0000184)
#define STATUS_INVALID_BUFFER_SIZE        ((NTSTATUS)0xC0000206)
#define STATUS_TOO_MANY_ADDRESSES         ((NTSTATUS)0xC0000209)
#define STATUS_ADDRESS_ALREADY_EXISTS     ((NTSTATUS)0xC000020A)
#define STATUS_CONNECTION_DISCONNECTED    ((NTSTATUS)0xC000020C)
#define STATUS_CONNECTION_RESET           ((NTSTATUS)0xC000020D)
#define STATUS_CONNECTION_REFUSED         ((NTSTATUS)0xC0000236)
#define STATUS_ADDRESS_ALREADY_ASSOCIATED ((NTSTATUS)0xC0000238)
#define STATUS_CONNECTION_INVALID         ((NTSTATUS)0xC000023A)
#define STATUS_CONNECTION_ACTIVE          ((NTSTATUS)0xC000023B)
#define STATUS_NETWORK_UNREACHABLE        ((NTSTATUS)0xC000023C)
#define STATUS_HOST_UNREACHABLE           ((NTSTATUS)0xC000023D)
#define STATUS_REQUEST_ABORTED            ((NTSTATUS)0xC0000240)
#define STATUS_CONNECTION_ABORTED         ((NTSTATUS)0xC0000241)
#define STATUS_DEVICE_REMOVED             ((NTSTATUS)0xC00002B6)
#define STATUS_IMPLEMENTATION_LIMIT       ((NTSTATUS)0xC000042B)
#define NDIS_STATUS_BAD_VERSION           ((NTSTATUS)0xC0010004)
#define NDIS_STATUS_ADAPTER_NOT_READY     ((NTSTATUS)0xC0010011)
#define NDIS_STATUS_RESOURCES             ((NTSTATUS)0xC000009A)

/* --- versions, objects --------------------------------------------------------------- */

typedef struct _NDK_VERSION {
	USHORT Major;
	USHORT Minor;
} NDK_VERSION;

typedef enum _NDK_OBJECT_TYPE {
	NdkObjectTypeUndefined = 0,
	NdkObjectTypeAdapter = 1,
	NdkObjectTypeQp = 2,
	NdkObjectTypeCq = 3,
	NdkObjectTypeMr = 4,
	NdkObjectTypeMw = 5,
	NdkObjectTypePd = 6,
	NdkObjectTypeSharedEndpoint = 7,
	NdkObjectTypeConnector = 8,
	NdkObjectTypeListener = 9,
	NdkObjectTypeSrq = 10,
	NdkObjectTypeMax = 11,
	/* Ours. */
	OrielObjectTypeAddress = 0x100
} NDK_OBJECT_TYPE;

typedef struct _NDK_OBJECT_HEADER_RESERVED_BLOCK {
	PVOID rf[4];
} NDK_OBJECT_HEADER_RESERVED_BLOCK;

typedef struct _NDK_OBJECT_HEADER {
	NDK_VERSION Version;
	NDK_OBJECT_TYPE ObjectType;
	NDK_OBJECT_HEADER_RESERVED_BLOCK NdkReserved; /* zero; the library does not touch it */
} NDK_OBJECT_HEADER;

typedef struct _NDK_ADAPTER_DISPATCH NDK_ADAPTER_DISPATCH;
typedef struct _NDK_QP_DISPATCH NDK_QP_DISPATCH;
typedef struct _NDK_CQ_DISPATCH NDK_CQ_DISPATCH;
typedef struct _NDK_MR_DISPATCH NDK_MR_DISPATCH;
typedef struct _NDK_MW_DISPATCH NDK_MW_DISPATCH;
typedef struct _NDK_PD_DISPATCH NDK_PD_DISPATCH;
typedef struct _NDK_SHARED_ENDPOINT_DISPATCH NDK_SHARED_ENDPOINT_DISPATCH;
typedef struct _NDK_CONNECTOR_DISPATCH NDK_CONNECTOR_DISPATCH;
typedef struct _NDK_LISTENER_DISPATCH NDK_LISTENER_DISPATCH;
typedef struct _NDK_SRQ_DISPATCH NDK_SRQ_DISPATCH;

/* The table may be replaced by the consumer; the library never reads it back. */
typedef struct _NDK_ADAPTER {
	NDK_OBJECT_HEADER Header;
	const NDK_ADAPTER_DISPATCH *Dispatch;
} NDK_ADAPTER;

typedef struct _NDK_QP {
	NDK_OBJECT_HEADER Header;
	const NDK_QP_DISPATCH *Dispatch;
} NDK_QP;

typedef struct _NDK_CQ {
	NDK_OBJECT_HEADER Header;
	const NDK_CQ_DISPATCH *Dispatch;
} NDK_CQ;

typedef struct _NDK_MR {
	NDK_OBJECT_HEADER Header;
	const NDK_MR_DISPATCH *Dispatch;
} NDK_MR;

typedef struct _NDK_MW {
	NDK_OBJECT_HEADER Header;
	const NDK_MW_DISPATCH *Dispatch;
} NDK_MW;

typedef struct _NDK_PD {
	NDK_OBJECT_HEADER Header;
	const NDK_PD_DISPATCH *Dispatch;
} NDK_PD;

typedef struct _NDK_SHARED_ENDPOINT {
	NDK_OBJECT_HEADER Header;
	const NDK_SHARED_ENDPOINT_DISPATCH *Dispatch;
} NDK_SHARED_ENDPOINT;

typedef struct _NDK_CONNECTOR {
	NDK_OBJECT_HEADER Header;
	const NDK_CONNECTOR_DISPATCH *Dispatch;
} NDK_CONNECTOR;

typedef struct _NDK_LISTENER {
	NDK_OBJECT_HEADER Header;
	const NDK_LISTENER_DISPATCH *Dispatch;
} NDK_LISTENER;

typedef struct _NDK_SRQ {
	NDK_OBJECT_HEADER Header;
	const NDK_SRQ_DISPATCH *Dispatch;
} NDK_SRQ;

/* --- flags and enumerations ---------------------------------------------------------- */

/* Requests on the initiator queue. ALLOW_REMOTE_WRITE is two bits: its own and ALLOW_LOCAL_WRITE.
 */
#define NDK_OP_FLAG_SILENT_SUCCESS             0x00000001u
#define NDK_OP_FLAG_READ_FENCE                 0x00000002u
#define NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT     0x00000004u
#define NDK_OP_FLAG_ALLOW_REMOTE_READ          0x00000008u
#define NDK_OP_FLAG_ALLOW_LOCAL_WRITE          0x00000010u
#define NDK_OP_FLAG_ALLOW_REMOTE_WRITE         0x00000030u
#define NDK_OP_FLAG_INLINE                     0x00000040u
#define NDK_OP_FLAG_RDMA_READ_SINK             0x00000080u
#define NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE 0x00000100u
#define NDK_OP_FLAG_DEFER                      0x00000200u
/* Ours, for NdkBind: only the queue pair that binds may use the window (InfiniBand's type 2B). */
#define ORIEL_OP_FLAG_TIE_TO_QP 0x00010000u
/*
 * Ours, for NdkBind: may be posted before the queue pair is connected, and then executes before
 * anything of the peer is looked at. So an accept can carry the window's token.
 */
#define ORIEL_OP_FLAG_EARLY 0x00040000u
/* Ours, for NdkBind: peers may run atomics; the region needs local write. */
#define ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC 0x00020000u

#define NDK_MR_FLAG_ALLOW_LOCAL_READ   0x00000000u
#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE  0x00000001u
#define NDK_MR_FLAG_ALLOW_REMOTE_READ  0x00000002u
#define NDK_MR_FLAG_ALLOW_REMOTE_WRITE 0x00000005u
#define NDK_MR_FLAG_RDMA_READ_SINK     0x00000008u
/* Ours; contains local write. */
#define ORIEL_MR_FLAG_ALLOW_REMOTE_ATOMIC 0x00010001u

#define NDK_CQ_NOTIFY_ERRORS    0u
#define NDK_CQ_NOTIFY_ANY       1u
#define NDK_CQ_NOTIFY_SOLICITED 2u

#define NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED               0x00000001u
#define NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED          0x00000002u
#define NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED    0x00000004u
#define NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED               0x00000008u
#define NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED 0x00000010u
#define NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED                  0x00000100u
#define NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED       0x00010000u

typedef enum _NDK_OPERATION_TYPE {
	NdkOperationTypeReceive = 1,
	NdkOperationTypeReceiveAndInvalidate = 0x8001,
	NdkOperationTypeSend = 2,
	NdkOperationTypeFastRegister = 4,
	NdkOperationTypeBind = 8,
	NdkOperationTypeInvalidate = 16,
	NdkOperationTypeRead = 32,
	NdkOperationTypeWrite = 64,
	/* Ours. The receives keep bit 0, as NDKPI's two do. */
	OrielOperationTypeFetchAdd = 0x100,
	OrielOperationTypeCompareSwap = 0x200,
	OrielOperationTypeReceiveImmediate = 0x2001,
	OrielOperationTypeReceiveWriteImmediate = 0x4001
} NDK_OPERATION_TYPE;

typedef enum _NDK_RDMA_TECHNOLOGY {
	NdkUndefined = 0,
	NdkiWarp = 1,
	NdkInfiniBand = 2,
	NdkRoCE = 3,
	NdkRoCEv2 = 4,
	NdkMaxTechnology = 5
} NDK_RDMA_TECHNOLOGY;

/* --- structures ---------------------------------------------------------------------- */

typedef struct _NDK_LOGICAL_ADDRESS {
	int64_t QuadPart;
} NDK_LOGICAL_ADDRESS;

typedef struct _NDK_LOGICAL_ADDRESS_MAPPING {
	PVOID AdapterContext; /* the library's */
	ULONG AdapterPageCount;
	NDK_LOGICAL_ADDRESS AdapterPageArray[1]; /* really AdapterPageCount of them */
} NDK_LOGICAL_ADDRESS_MAPPING;

/* One piece of a local buffer: address, bytes, local token of its region. */
typedef struct _NDK_SGE {
	union {
		PVOID VirtualAddress;
		NDK_LOGICAL_ADDRESS LogicalAddress;
	};
	ULONG Length;
	UINT32 MemoryRegionToken;
} NDK_SGE;

typedef struct _NDK_RESULT {
	NTSTATUS Status;
	ULONG BytesTransferred; /* receives only */
	PVOID QPContext;
	PVOID RequestContext;
} NDK_RESULT;

typedef struct _NDK_RESULT_EX {
	NTSTATUS Status;
	ULONG BytesTransferred; /* receives only */
	PVOID QPContext;
	PVOID RequestContext;
	NDK_OPERATION_TYPE Type; /* valid on failure too */
	ULONG ProviderErrorCode; /* 0, or the daemon's number for the reason: orielctl names them */
	/* ReceiveAndInvalidate: the token that is dead now. Ours: the immediate, as on the wire. */
	ULONG_PTR TypeSpecificCompletionOutput;
} NDK_RESULT_EX;

typedef struct _NDK_EXTENSION_INTERFACE {
	const void *Dispatch;
} NDK_EXTENSION_INTERFACE;

typedef struct _NDK_ADAPTER_INFO {
	NDK_VERSION Version;
	UINT32 VendorId;
	UINT32 DeviceId;
	SIZE_T MaxRegistrationSize;
	SIZE_T MaxWindowSize;
	ULONG FRMRPageCount;
	ULONG MaxInitiatorRequestSge;
	ULONG MaxReceiveRequestSge;
	ULONG MaxReadRequestSge;
	ULONG MaxTransferLength;
	ULONG MaxInlineDataSize;
	ULONG MaxInboundReadLimit;
	ULONG MaxOutboundReadLimit;
	ULONG MaxReceiveQueueDepth;
	ULONG MaxInitiatorQueueDepth;
	ULONG MaxSrqDepth; /* 0: no SRQ */
	ULONG MaxCqDepth;
	ULONG LargeRequestThreshold;
	ULONG MaxCallerData;
	ULONG MaxCalleeData;
	ULONG AdapterFlags;
	NDK_RDMA_TECHNOLOGY RdmaTechnology;
} NDK_ADAPTER_INFO;

#if UINTPTR_MAX == UINT64_MAX
NDK_STATIC_ASSERT(sizeof(NDK_VERSION) == 4, "NDK_VERSION");
NDK_STATIC_ASSERT(sizeof(NDK_OBJECT_HEADER) == 40, "NDK_OBJECT_HEADER");
NDK_STATIC_ASSERT(sizeof(NDK_QP) == 48 && offsetof(NDK_QP, Dispatch) == 40, "objects");
NDK_STATIC_ASSERT(sizeof(NDK_SGE) == 16, "NDK_SGE");
NDK_STATIC_ASSERT(sizeof(NDK_RESULT) == 24, "NDK_RESULT");
NDK_STATIC_ASSERT(sizeof(NDK_RESULT_EX) == 40, "NDK_RESULT_EX");
NDK_STATIC_ASSERT(offsetof(NDK_RESULT_EX, ProviderErrorCode) == 28, "NDK_RESULT_EX");
NDK_STATIC_ASSERT(offsetof(NDK_RESULT_EX, TypeSpecificCompletionOutput) == 32, "NDK_RESULT_EX");
NDK_STATIC_ASSERT(offsetof(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) == 16, "LAM");
NDK_STATIC_ASSERT(sizeof(NDK_ADAPTER_INFO) == 104, "NDK_ADAPTER_INFO");
NDK_STATIC_ASSERT(offsetof(NDK_ADAPTER_INFO, AdapterFlags) == 92, "NDK_ADAPTER_INFO");
#endif

/* --- callbacks of the consumer ------------------------------------------------------- */

/* A create function has finished; pNdkObject is NULL unless Status is STATUS_SUCCESS. */
typedef void (*NDK_FN_CREATE_COMPLETION)(PVOID Context, NTSTATUS Status,
					 NDK_OBJECT_HEADER *pNdkObject);
/* Another asynchronous request has finished. */
typedef void (*NDK_FN_REQUEST_COMPLETION)(PVOID Context, NTSTATUS Status);
/* An object is gone: the last callback that concerns it. */
typedef void (*NDK_FN_CLOSE_COMPLETION)(PVOID Context);
/* An arm was satisfied (STATUS_SUCCESS), or the CQ failed. Serialised for each CQ. */
typedef void (*NDK_FN_CQ_NOTIFICATION_CALLBACK)(PVOID CqNotificationContext, NTSTATUS CqStatus);
/* Fewer receives are left than the threshold (STATUS_SUCCESS); NdkModifySrq arms the next. */
typedef void (*NDK_FN_SRQ_NOTIFICATION_CALLBACK)(PVOID SrqNotificationContext, NTSTATUS SrqStatus);
/* A peer wants to connect; the connector is the consumer's: accept, reject or close it. */
typedef void (*NDK_FN_CONNECT_EVENT_CALLBACK)(PVOID ConnectEventContext,
					      NDK_CONNECTOR *pNdkConnector);
/* The peer has disconnected or the connection broke. At most once; queues are not flushed by it. */
typedef void (*NDK_FN_DISCONNECT_EVENT_CALLBACK)(PVOID DisconnectEventContext);
/* The same with the daemon's reason; 0 for an orderly end. */
typedef void (*NDK_FN_DISCONNECT_EVENT_CALLBACK_EX)(PVOID DisconnectEventContext,
						    ULONG ProviderDisconnectReason);

/* --- functions of the provider, by object -------------------------------------------- */

/*
 * Closes any object but an adapter. STATUS_SUCCESS (no callback) or STATUS_PENDING; cannot fail.
 * An object that others need (CQ and SRQ of a QP, QP of a connector, listener of its connectors, PD
 * of all made in it, region of bound windows) goes when the last of them has gone; a listener
 * refuses new requests at once.
 */
typedef NTSTATUS (*NDK_FN_CLOSE_OBJECT)(NDK_OBJECT_HEADER *pNdkObject,
					NDK_FN_CLOSE_COMPLETION CloseCompletion,
					PVOID RequestContext);
/* STATUS_NOT_SUPPORTED for every ID: there are none. */
typedef NTSTATUS (*NDK_FN_QUERY_EXTENSION_INTERFACE)(NDK_OBJECT_HEADER *pNdkObject,
						     GUID *ExtensionInterfaceID,
						     NDK_VERSION ExtensionInterfaceVersion,
						     NDK_EXTENSION_INTERFACE *pExtensionInterface);

/* True limits. STATUS_BUFFER_TOO_SMALL: *pBufferSize is what is needed. */
typedef NTSTATUS (*NDK_FN_QUERY_ADAPTER_INFO)(NDK_ADAPTER *pNdkAdapter, NDK_ADAPTER_INFO *pInfo,
					      ULONG *pBufferSize);
/*
 * CqDepth: entries; more of them than that at once is the CQ's end and its queue pairs'.
 * CqNotification is called for arms only (NdkArmCq). STATUS_INVALID_PARAMETER: depth 0 or above
 * MaxCqDepth. Affinity is ignored: callbacks run where progress is driven.
 */
typedef NTSTATUS (*NDK_FN_CREATE_CQ)(NDK_ADAPTER *pNdkAdapter, ULONG CqDepth,
				     NDK_FN_CQ_NOTIFICATION_CALLBACK CqNotification,
				     PVOID CqNotificationContext, GROUP_AFFINITY *Affinity,
				     NDK_FN_CREATE_COMPLETION CreateCompletion,
				     PVOID RequestContext, NDK_CQ **ppNdkCq);
/* Regions, windows, queue pairs and SRQs work together when they are of one domain. */
typedef NTSTATUS (*NDK_FN_CREATE_PD)(NDK_ADAPTER *pNdkAdapter,
				     NDK_FN_CREATE_COMPLETION CreateCompletion,
				     PVOID RequestContext, NDK_PD **ppNdkPd);
/*
 * A local address from which many connectors may connect. Port 0: a free one of 49152-65535, told
 * by the endpoint's NdkGetLocalAddress. In the completion: STATUS_INVALID_ADDRESS is no address of
 * the data plane, STATUS_SHARING_VIOLATION a listener, endpoint or connector has it,
 * STATUS_TOO_MANY_ADDRESSES no port is free.
 */
typedef NTSTATUS (*NDK_FN_CREATE_SHARED_ENDPOINT)(NDK_ADAPTER *pNdkAdapter,
						  const PSOCKADDR pAddress, ULONG AddressLength,
						  NDK_FN_CREATE_COMPLETION CreateCompletion,
						  PVOID RequestContext,
						  NDK_SHARED_ENDPOINT **ppNdkSharedEndpoint);
/* For one connection that we ask for; those that are asked of us bring their own connector. */
typedef NTSTATUS (*NDK_FN_CREATE_CONNECTOR)(NDK_ADAPTER *pNdkAdapter,
					    NDK_FN_CREATE_COMPLETION CreateCompletion,
					    PVOID RequestContext, NDK_CONNECTOR **ppNdkConnector);
/* ConnectEvent is called once for each request, from NdkListen on; it need not answer at once. */
typedef NTSTATUS (*NDK_FN_CREATE_LISTENER)(NDK_ADAPTER *pNdkAdapter,
					   NDK_FN_CONNECT_EVENT_CALLBACK ConnectEvent,
					   PVOID ConnectEventContext,
					   NDK_FN_CREATE_COMPLETION CreateCompletion,
					   PVOID RequestContext, NDK_LISTENER **ppNdkListener);
/*
 * Logical addresses of the pages of 4096 bytes that the first Length bytes of the MDL touch. Inline
 * once the library knows the memfd, else by the callback; until then the three outputs must stay.
 * *pLAMSize: room on entry, bytes written on return. STATUS_BUFFER_TOO_SMALL: *pLAMSize is what is
 * needed; STATUS_INVALID_PARAMETER: not contiguous; STATUS_INVALID_BUFFER_SIZE: Length 0.
 */
typedef NTSTATUS (*NDK_FN_BUILD_LAM)(NDK_ADAPTER *pNdkAdapter, MDL *Mdl, SIZE_T Length,
				     NDK_FN_REQUEST_COMPLETION RequestCompletion,
				     PVOID RequestContext, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM,
				     ULONG *pLAMSize, ULONG *pFBO);
/* When every request built on it has completed. */
typedef void (*NDK_FN_RELEASE_LAM)(NDK_ADAPTER *pNdkAdapter, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM);

/* FastRegister: for NdkFastRegister only, else for NdkRegisterMr only. */
typedef NTSTATUS (*NDK_FN_CREATE_MR)(NDK_PD *pNdkPd, BOOLEAN FastRegister,
				     NDK_FN_CREATE_COMPLETION CreateCompletion,
				     PVOID RequestContext, NDK_MR **ppNdkMr);
/* A window, not bound to anything yet. */
typedef NTSTATUS (*NDK_FN_CREATE_MW)(NDK_PD *pNdkPd, NDK_FN_CREATE_COMPLETION CreateCompletion,
				     PVOID RequestContext, NDK_MW **ppNdkMw);
/*
 * Receives that queue pairs share, taken in the order in which messages arrive. Its SGEs name
 * regions of its own domain. The threshold is armed from the start (0: not), but an SRQ that was
 * never filled owes nothing: only a message that takes a receive, or finds none, can notify.
 * STATUS_INVALID_PARAMETER: depth 0 or above MaxSrqDepth, MaxReceiveRequestSge above the adapter's.
 * Affinity is ignored.
 */
typedef NTSTATUS (*NDK_FN_CREATE_SRQ)(NDK_PD *pNdkPd, ULONG SrqDepth, ULONG MaxReceiveRequestSge,
				      ULONG NotifyThreshold,
				      NDK_FN_SRQ_NOTIFICATION_CALLBACK SrqNotification,
				      PVOID SrqNotificationContext, GROUP_AFFINITY *Affinity,
				      NDK_FN_CREATE_COMPLETION CreateCompletion,
				      PVOID RequestContext, NDK_SRQ **ppNdkSrq);
/*
 * Depths: requests under way; SGEs: of one request; InlineDataSize: bytes of one send or write. All
 * are fixed for life. The CQs may be one. QPContext comes back with each entry.
 * STATUS_INVALID_PARAMETER: a number above the adapter's limit. Receives may be posted at once,
 * before connecting.
 */
typedef NTSTATUS (*NDK_FN_CREATE_QP)(NDK_PD *pNdkPd, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq,
				     PVOID QPContext, ULONG ReceiveQueueDepth,
				     ULONG InitiatorQueueDepth, ULONG MaxReceiveRequestSge,
				     ULONG MaxInitiatorRequestSge, ULONG InlineDataSize,
				     NDK_FN_CREATE_COMPLETION CreateCompletion,
				     PVOID RequestContext, NDK_QP **ppNdkQp);
/* The same without a receive queue of its own: NdkReceive is refused, receives go to the SRQ. */
typedef NTSTATUS (*NDK_FN_CREATE_QP_WITH_SRQ)(NDK_PD *pNdkPd, NDK_CQ *pReceiveCq,
					      NDK_CQ *pInitiatorCq, NDK_SRQ *pSrq, PVOID QPContext,
					      ULONG InitiatorQueueDepth,
					      ULONG MaxInitiatorRequestSge, ULONG InlineDataSize,
					      NDK_FN_CREATE_COMPLETION CreateCompletion,
					      PVOID RequestContext, NDK_QP **ppNdkQp);
/*
 * The token with which an SGE's LogicalAddress is one of NdkBuildLAM: local read and write of the
 * memory behind it without a region, sinks of reads included; of no use to a peer. Any byte from
 * the mapping's first page on, NdkReleaseLAM or not, until OrielFreeMemory().
 */
typedef void (*NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN)(NDK_PD *pNdkPd, UINT32 *pToken);

/*
 * Larger or smaller, under traffic; entries that are there are kept, whatever the new depth.
 * STATUS_INVALID_PARAMETER: depth 0 or above MaxCqDepth; STATUS_DEVICE_BUSY: another resize is
 * under way, or what was in the CQ before the last one has not been taken yet.
 */
typedef NTSTATUS (*NDK_FN_RESIZE_CQ)(NDK_CQ *pNdkCq, ULONG CqDepth,
				     NDK_FN_REQUEST_COMPLETION RequestCompletion,
				     PVOID RequestContext);
/*
 * Asks for one notification: NDK_CQ_NOTIFY_*. A stronger arm replaces a weaker one, never the
 * reverse (ANY, SOLICITED, ERRORS). Entries that came after the last callback satisfy it at once.
 */
typedef void (*NDK_FN_ARM_CQ)(NDK_CQ *pNdkCq, ULONG Type);
/* Takes up to nResults entries; returns how many. */
typedef ULONG (*NDK_FN_GET_CQ_RESULTS)(NDK_CQ *pNdkCq, NDK_RESULT Results[], ULONG nResults);
/* The same, with the type of the request and the token that the peer has ended. */
typedef ULONG (*NDK_FN_GET_CQ_RESULTS_EX)(NDK_CQ *pNdkCq, NDK_RESULT_EX Results[], ULONG nResults);
/*
 * The callback of an arm waits until ModerationCount entries are there or ModerationInterval
 * microseconds have passed since the arm was satisfied; entries can be taken meanwhile. Interval 0
 * or count 0 or 1: no moderation. Interval 0xffffffff: only the count; count 0xffffffff or above
 * the CQ's depth: only the interval; both: STATUS_INVALID_PARAMETER_MIX. A failure of the CQ is
 * told at once.
 */
typedef NTSTATUS (*NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION)(NDK_CQ *pNdkCq, ULONG ModerationInterval,
							   ULONG ModerationCount);

/*
 * Registers the first Length bytes of the MDL (OrielAllocateMemory, OrielAdoptMemory); peers and
 * SGEs name them by their virtual addresses. Flags: NDK_MR_FLAG_*. STATUS_INVALID_PARAMETER: not
 * contiguous; STATUS_INVALID_BUFFER_SIZE: Length 0; STATUS_INVALID_DEVICE_STATE: registered
 * already.
 */
typedef NTSTATUS (*NDK_FN_REGISTER_MR)(NDK_MR *pNdkMr, MDL *Mdl, SIZE_T Length, ULONG Flags,
				       NDK_FN_REQUEST_COMPLETION RequestCompletion,
				       PVOID RequestContext);
/*
 * STATUS_DEVICE_BUSY while a window is bound to it. When it completes, nobody reaches the memory
 * through the region any more.
 */
typedef NTSTATUS (*NDK_FN_DEREGISTER_MR)(NDK_MR *pNdkMr,
					 NDK_FN_REQUEST_COMPLETION RequestCompletion,
					 PVOID RequestContext);
/*
 * Gives the region its tokens for life; dead until NdkFastRegister. STATUS_IMPLEMENTATION_LIMIT:
 * AdapterPageCount 0 or above FRMRPageCount; STATUS_INVALID_DEVICE_STATE: has them already;
 * STATUS_INVALID_DEVICE_REQUEST: not a fast-register region.
 */
typedef NTSTATUS (*NDK_FN_INITIALIZE_FAST_REGISTER_MR)(NDK_MR *pNdkMr, ULONG AdapterPageCount,
						       BOOLEAN RemoteAccess,
						       NDK_FN_REQUEST_COMPLETION RequestCompletion,
						       PVOID RequestContext);
/*
 * For peers; 0 when the region has no remote right. A number in host order: it goes onto the wire
 * big-endian, so send it to the peer as the application's protocol wants.
 */
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MR)(NDK_MR *pNdkMr);
/* For SGEs; of no use to a peer. */
typedef UINT32 (*NDK_FN_GET_LOCAL_TOKEN_FROM_MR)(NDK_MR *pNdkMr);

/* Cancels everything on both queues (STATUS_CANCELLED entries follow). The queue pair carries no
 * data after it. */
typedef void (*NDK_FN_FLUSH)(NDK_QP *pNdkQp);
/*
 * Statuses of all posts to the initiator queue: STATUS_CONNECTION_INVALID not connected,
 * STATUS_NO_MORE_ENTRIES queue full, STATUS_DATA_OVERRUN too many SGEs, STATUS_BUFFER_OVERFLOW more
 * than MaxTransferLength, STATUS_INVALID_BUFFER_SIZE inline data above the queue pair's size,
 * STATUS_INVALID_PARAMETER flags that do not belong. An error hands all earlier requests with DEFER
 * over.
 */
typedef NTSTATUS (*NDK_FN_SEND)(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				ULONG nSge, ULONG Flags);
/* The peer's token is dead before the peer's receive completes. */
typedef NTSTATUS (*NDK_FN_SEND_AND_INVALIDATE)(NDK_QP *pNdkQp, PVOID RequestContext,
					       const NDK_SGE *pSgl, ULONG nSge, ULONG Flags,
					       UINT32 RemoteToken);
/*
 * May be posted before the queue pair is connected. STATUS_NO_MORE_ENTRIES, STATUS_DATA_OVERRUN,
 * STATUS_BUFFER_OVERFLOW as above; STATUS_INVALID_DEVICE_REQUEST: it has an SRQ.
 */
typedef NTSTATUS (*NDK_FN_RECEIVE)(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				   ULONG nSge);
/*
 * Fetches as many bytes as the SGEs have room for from the peer's memory; they lie there when it
 * completes. RemoteAddress is a number in host order, into which the caller may count. At most
 * MaxReadRequestSge SGEs, in regions with local write. It waits in the queue while as many reads
 * are under way as the connection allows; where that is none, it completes with
 * STATUS_INVALID_DEVICE_REQUEST. Flags: SILENT_SUCCESS, READ_FENCE, DEFER;
 * RDMA_READ_LOCAL_INVALIDATE is ignored. Statuses as NdkSend's.
 */
typedef NTSTATUS (*NDK_FN_READ)(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken, ULONG Flags);
/* The bytes lie in the peer's memory when it completes; flags as NdkSend's but for the solicit. */
typedef NTSTATUS (*NDK_FN_WRITE)(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				 ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken, ULONG Flags);
/*
 * Opens the window on [VirtualAddress, VirtualAddress + Length) of the region, in queue order. The
 * new token can be read when this returns and is good for peers from the moment that the bind
 * executes, so a send behind it may carry it. Flags: SILENT_SUCCESS, READ_FENCE, DEFER,
 * ALLOW_REMOTE_READ, ALLOW_REMOTE_WRITE, and ours: ORIEL_OP_FLAG_TIE_TO_QP, ORIEL_OP_FLAG_EARLY,
 * ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC. No right at all is legal. STATUS_ACCESS_VIOLATION: remote
 * write or atomic on a region without local write; STATUS_INVALID_PARAMETER: range not in the
 * region, Length 0, other domain, region not registered; STATUS_INVALID_DEVICE_STATE: the window is
 * bound (invalidate it first); STATUS_INSUFFICIENT_RESOURCES: no token in stock, try again after
 * OrielProgress().
 */
typedef NTSTATUS (*NDK_FN_BIND)(NDK_QP *pNdkQp, PVOID RequestContext, NDK_MR *pMr, NDK_MW *pMw,
				PVOID VirtualAddress, SIZE_T Length, ULONG Flags);
/*
 * Registers pages of a mapping in queue order, under the region's tokens: peers and SGEs find the
 * first byte (FBO bytes into the first page) at BaseVirtualAddress, which may be any that lies FBO
 * bytes into a page. The pages must follow each other in the mapping. Flags: SILENT_SUCCESS,
 * READ_FENCE, DEFER, ALLOW_REMOTE_READ, ALLOW_LOCAL_WRITE, ALLOW_REMOTE_WRITE, RDMA_READ_SINK
 * (means nothing here) and ours, ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC (with ALLOW_LOCAL_WRITE).
 * STATUS_ACCESS_VIOLATION: remote access without RemoteAccess; STATUS_INVALID_PARAMETER: range,
 * base, pages, other domain, no tokens; STATUS_INVALID_DEVICE_STATE: valid (invalidate it first).
 */
typedef NTSTATUS (*NDK_FN_FAST_REGISTER)(NDK_QP *pNdkQp, PVOID RequestContext, NDK_MR *pMr,
					 ULONG AdapterPageCount,
					 const NDK_LOGICAL_ADDRESS *AdapterPageArray, ULONG FBO,
					 SIZE_T Length, PVOID BaseVirtualAddress, ULONG Flags);
/*
 * Ends a window or a fast registration. When it completes no peer reads or writes through the token
 * any more; that of a region also waits for the requests before it on its queue pair.
 * STATUS_INVALID_DEVICE_REQUEST: nothing to end.
 */
typedef NTSTATUS (*NDK_FN_INVALIDATE)(NDK_QP *pNdkQp, PVOID RequestContext,
				      NDK_OBJECT_HEADER *pNdkMrOrMw, ULONG Flags);

/*
 * Completes when the peer accepts or refuses; then NdkCompleteConnect or NdkReject. Source port 0:
 * one of 49152 to 65535. Read limits (requests) are capped in silence to the adapter's and the
 * peer's. At most MaxCallerData bytes of private data, else STATUS_INVALID_BUFFER_SIZE and nothing
 * is used up.
 *
 * May be tried again, with this connector: STATUS_CONNECTION_REFUSED nobody listens or the peer
 * says no (its data can be read), STATUS_IO_TIMEOUT no answer, STATUS_HOST_UNREACHABLE,
 * STATUS_NETWORK_UNREACHABLE. Else: STATUS_INVALID_ADDRESS the source is not the data plane's,
 * STATUS_SHARING_VIOLATION a listener, endpoint or connector has it, STATUS_TOO_MANY_ADDRESSES no
 * port is free, STATUS_CONNECTION_ACTIVE connector or queue pair is in use, STATUS_NOT_SUPPORTED
 * the queue pair is of type UC or UD.
 */
typedef NTSTATUS (*NDK_FN_CONNECT)(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp,
				   const PSOCKADDR pSrcAddress, ULONG SrcAddressLength,
				   const PSOCKADDR pDestAddress, ULONG DestAddressLength,
				   ULONG InboundReadLimit, ULONG OutboundReadLimit,
				   const PVOID pPrivateData, ULONG PrivateDataLength,
				   NDK_FN_REQUEST_COMPLETION RequestCompletion,
				   PVOID RequestContext);
/*
 * As NdkConnect, from the endpoint's address. STATUS_ADDRESS_ALREADY_EXISTS: a connection of the
 * endpoint goes to that destination.
 */
typedef NTSTATUS (*NDK_FN_CONNECT_WITH_SHARED_ENDPOINT)(
	NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
	const PSOCKADDR pDestAddress, ULONG DestAddressLength, ULONG InboundReadLimit,
	ULONG OutboundReadLimit, const PVOID pPrivateData, ULONG PrivateDataLength,
	NDK_FN_REQUEST_COMPLETION RequestCompletion, PVOID RequestContext);
/*
 * After an NdkConnect that completed well. Requests can be posted when it has completed.
 * DisconnectEvent may be NULL. STATUS_CONNECTION_INVALID: there is nothing to complete;
 * STATUS_CONNECTION_ABORTED: the peer has given up; STATUS_HOST_UNREACHABLE. A failure in the
 * completion is the connector's end.
 */
typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT)(NDK_CONNECTOR *pNdkConnector,
					    NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
					    PVOID DisconnectEventContext,
					    NDK_FN_REQUEST_COMPLETION RequestCompletion,
					    PVOID RequestContext);
/*
 * Completes when the peer has completed the connection. Read limits are capped in silence to the
 * adapter's and the peer's; at most MaxCalleeData bytes of private data. STATUS_CONNECTION_REFUSED:
 * the peer rejected; STATUS_CONNECTION_ABORTED: it gave up; STATUS_IO_TIMEOUT: it does not answer;
 * these are the connector's end. Inline: STATUS_CONNECTION_INVALID it is no request that waits;
 * STATUS_INVALID_BUFFER_SIZE, STATUS_CONNECTION_ACTIVE the queue pair is in use: try again.
 */
typedef NTSTATUS (*NDK_FN_ACCEPT)(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp,
				  ULONG InboundReadLimit, ULONG OutboundReadLimit,
				  const PVOID pPrivateData, ULONG PrivateDataLength,
				  NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
				  PVOID DisconnectEventContext,
				  NDK_FN_REQUEST_COMPLETION RequestCompletion,
				  PVOID RequestContext);
/*
 * An incoming request, or the answer to an NdkConnect. Synchronous. At most MaxCalleeData bytes,
 * else STATUS_INVALID_BUFFER_SIZE; STATUS_CONNECTION_ABORTED: the peer had given up;
 * STATUS_CONNECTION_INVALID: nothing to reject.
 */
typedef NTSTATUS (*NDK_FN_REJECT)(NDK_CONNECTOR *pNdkConnector, const PVOID pPrivateData,
				  ULONG PrivateDataLength);
/*
 * What the peer sent and what the limits are. The length is that of the transport's field, not what
 * the peer meant. NULL and 0: STATUS_SUCCESS with the size.
 */
typedef NTSTATUS (*NDK_FN_GET_CONNECTION_DATA)(NDK_CONNECTOR *pNdkConnector,
					       ULONG *pInboundReadLimit, ULONG *pOutboundReadLimit,
					       PVOID pPrivateData, ULONG *pPrivateDataLength);
/* STATUS_CONNECTION_INVALID without a peer; STATUS_BUFFER_TOO_SMALL: *pAddressLength is needed. */
typedef NTSTATUS (*NDK_FN_GET_LOCAL_ADDRESS)(NDK_CONNECTOR *pNdkConnector, PSOCKADDR pAddress,
					     ULONG *pAddressLength);
/* As NdkGetLocalAddress. */
typedef NTSTATUS (*NDK_FN_GET_PEER_ADDRESS)(NDK_CONNECTOR *pNdkConnector, PSOCKADDR pAddress,
					    ULONG *pAddressLength);
/*
 * Completes when the peer has answered (or STATUS_IO_TIMEOUT) and all work of the queue pair is
 * over; the queue pair is flushed then. No disconnect event comes of it here.
 * STATUS_CONNECTION_INVALID: not connected.
 */
typedef NTSTATUS (*NDK_FN_DISCONNECT)(NDK_CONNECTOR *pNdkConnector,
				      NDK_FN_REQUEST_COMPLETION RequestCompletion,
				      PVOID RequestContext);
/* 2.1: NdkCompleteConnect whose event tells a reason: the daemon's, 0 for an orderly end. */
typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT_EX)(NDK_CONNECTOR *pNdkConnector,
					       NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
					       PVOID DisconnectEventContext,
					       NDK_FN_REQUEST_COMPLETION RequestCompletion,
					       PVOID RequestContext);
/* 2.1: NdkAccept whose event tells a reason. */
typedef NTSTATUS (*NDK_FN_ACCEPT_EX)(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp,
				     ULONG InboundReadLimit, ULONG OutboundReadLimit,
				     const PVOID pPrivateData, ULONG PrivateDataLength,
				     NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
				     PVOID DisconnectEventContext,
				     NDK_FN_REQUEST_COMPLETION RequestCompletion,
				     PVOID RequestContext);

/*
 * Port 0: one of 49152 to 65535 is chosen, which NdkGetLocalAddress tells. The unspecified address:
 * all of the data plane. STATUS_ADDRESS_ALREADY_ASSOCIATED: it listens already; in the completion:
 * STATUS_SHARING_VIOLATION a listener, endpoint or connector has the address,
 * STATUS_INVALID_ADDRESS it is not the data plane's, STATUS_TOO_MANY_ADDRESSES no port is free.
 */
typedef NTSTATUS (*NDK_FN_LISTEN)(NDK_LISTENER *pNdkListener, const PSOCKADDR pAddress,
				  ULONG AddressLength, NDK_FN_REQUEST_COMPLETION RequestCompletion,
				  PVOID RequestContext);
/* STATUS_INVALID_DEVICE_STATE before it listens; STATUS_BUFFER_TOO_SMALL: *pAddressLength. */
typedef NTSTATUS (*NDK_FN_GET_LISTENER_LOCAL_ADDRESS)(NDK_LISTENER *pNdkListener,
						      PSOCKADDR pAddress, ULONG *pAddressLength);
/* Paused, peers are refused as if nobody listened; requests told before are not affected. */
typedef void (*NDK_FN_CONTROL_CONNECT_EVENTS)(NDK_LISTENER *pNdkListener, BOOLEAN Pause);

/*
 * SrqDepth 0 keeps the depth. STATUS_INVALID_PARAMETER: above MaxSrqDepth; and in the completion,
 * nothing having changed: STATUS_INSUFFICIENT_RESOURCES above the power of two that the depth at
 * creation was rounded up to, STATUS_BUFFER_OVERFLOW more receives are queued than that.
 * NotifyThreshold 0 keeps threshold and arm; another arms one notification: when fewer receives
 * are left than that, at once if it is so already.
 */
typedef NTSTATUS (*NDK_FN_MODIFY_SRQ)(NDK_SRQ *pNdkSrq, ULONG SrqDepth, ULONG NotifyThreshold,
				      NDK_FN_REQUEST_COMPLETION RequestCompletion,
				      PVOID RequestContext);
/* The result's QPContext names the queue pair whose message took it. Statuses as NdkReceive's. */
typedef NTSTATUS (*NDK_FN_SRQ_RECEIVE)(NDK_SRQ *pNdkSrq, PVOID RequestContext, const NDK_SGE *pSgl,
				       ULONG nSge);
/* The token of the latest bind, from its return on; 0 before the first and after an invalidate. */
typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MW)(NDK_MW *pNdkMw);
/* STATUS_BUFFER_TOO_SMALL: *pAddressLength is what is needed. */
typedef NTSTATUS (*NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS)(
	NDK_SHARED_ENDPOINT *pNdkSharedEndpoint, PSOCKADDR pAddress, ULONG *pAddressLength);

/* --- dispatch tables; the order of the members is the interface ----------------------------- */

struct _NDK_ADAPTER_DISPATCH {
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_QUERY_ADAPTER_INFO NdkQueryAdapterInfo;
	NDK_FN_CREATE_CQ NdkCreateCq;
	NDK_FN_CREATE_PD NdkCreatePd;
	NDK_FN_CREATE_SHARED_ENDPOINT NdkCreateSharedEndpoint;
	NDK_FN_CREATE_CONNECTOR NdkCreateConnector;
	NDK_FN_CREATE_LISTENER NdkCreateListener;
	NDK_FN_BUILD_LAM NdkBuildLAM;
	NDK_FN_RELEASE_LAM NdkReleaseLAM;
};

struct _NDK_PD_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkClosePd;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_CREATE_MR NdkCreateMr;
	NDK_FN_CREATE_MW NdkCreateMw;
	NDK_FN_CREATE_SRQ NdkCreateSrq;
	NDK_FN_CREATE_QP NdkCreateQp;
	NDK_FN_CREATE_QP_WITH_SRQ NdkCreateQpWithSrq;
	NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN NdkGetPrivilegedMemoryRegionToken;
};

struct _NDK_CQ_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseCq;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_RESIZE_CQ NdkResizeCq;
	NDK_FN_ARM_CQ NdkArmCq;
	NDK_FN_GET_CQ_RESULTS NdkGetCqResults;
	NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION NdkControlCqInterruptModeration;
	NDK_FN_GET_CQ_RESULTS_EX NdkGetCqResultsEx;
};

struct _NDK_MR_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseMr;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_REGISTER_MR NdkRegisterMr;
	NDK_FN_DEREGISTER_MR NdkDeregisterMr;
	NDK_FN_INITIALIZE_FAST_REGISTER_MR NdkInitializeFastRegisterMr;
	NDK_FN_GET_REMOTE_TOKEN_FROM_MR NdkGetRemoteTokenFromMr;
	NDK_FN_GET_LOCAL_TOKEN_FROM_MR NdkGetLocalTokenFromMr;
};

struct _NDK_MW_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseMw;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_GET_REMOTE_TOKEN_FROM_MW NdkGetRemoteTokenFromMw;
};

struct _NDK_QP_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseQp;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_FLUSH NdkFlush;
	NDK_FN_SEND NdkSend;
	NDK_FN_RECEIVE NdkReceive;
	NDK_FN_BIND NdkBind;
	NDK_FN_FAST_REGISTER NdkFastRegister;
	NDK_FN_INVALIDATE NdkInvalidate;
	NDK_FN_READ NdkRead;
	NDK_FN_WRITE NdkWrite;
	NDK_FN_SEND_AND_INVALIDATE NdkSendAndInvalidate;
};

struct _NDK_SRQ_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseSrq;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_MODIFY_SRQ NdkModifySrq;
	NDK_FN_SRQ_RECEIVE NdkSrqReceive;
};

struct _NDK_CONNECTOR_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseConnector;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_CONNECT NdkConnect;
	NDK_FN_CONNECT_WITH_SHARED_ENDPOINT NdkConnectWithSharedEndpoint;
	NDK_FN_COMPLETE_CONNECT NdkCompleteConnect;
	NDK_FN_ACCEPT NdkAccept;
	NDK_FN_REJECT NdkReject;
	NDK_FN_GET_CONNECTION_DATA NdkGetConnectionData;
	NDK_FN_GET_LOCAL_ADDRESS NdkGetLocalAddress;
	NDK_FN_GET_PEER_ADDRESS NdkGetPeerAddress;
	NDK_FN_DISCONNECT NdkDisconnect;
	NDK_FN_COMPLETE_CONNECT_EX NdkCompleteConnectEx;
	NDK_FN_ACCEPT_EX NdkAcceptEx;
};

struct _NDK_LISTENER_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseListener;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_LISTEN NdkListen;
	NDK_FN_GET_LISTENER_LOCAL_ADDRESS NdkGetLocalAddress;
	NDK_FN_CONTROL_CONNECT_EVENTS NdkControlConnectEvents;
};

struct _NDK_SHARED_ENDPOINT_DISPATCH {
	NDK_FN_CLOSE_OBJECT NdkCloseSharedEndpoint;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
	NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS NdkGetLocalAddress;
};

#if UINTPTR_MAX == UINT64_MAX
NDK_STATIC_ASSERT(sizeof(NDK_QP_DISPATCH) == 11 * 8 && offsetof(NDK_QP_DISPATCH, NdkBind) == 5 * 8,
		  "QP table");
NDK_STATIC_ASSERT(sizeof(NDK_CONNECTOR_DISPATCH) == 13 * 8, "connector table");
NDK_STATIC_ASSERT(sizeof(NDK_ADAPTER_DISPATCH) == 9 * 8, "adapter table");
#endif

/* --- calls through the tables -------------------------------------------------------- */

static inline NTSTATUS NdkQueryAdapterInfo(NDK_ADAPTER *pNdkAdapter, NDK_ADAPTER_INFO *pInfo,
					   ULONG *pBufferSize)
{
	return pNdkAdapter->Dispatch->NdkQueryAdapterInfo(pNdkAdapter, pInfo, pBufferSize);
}

static inline NTSTATUS NdkCreateCq(NDK_ADAPTER *pNdkAdapter, ULONG CqDepth,
				   NDK_FN_CQ_NOTIFICATION_CALLBACK CqNotification,
				   PVOID CqNotificationContext, GROUP_AFFINITY *Affinity,
				   NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
				   NDK_CQ **ppNdkCq)
{
	return pNdkAdapter->Dispatch->NdkCreateCq(pNdkAdapter, CqDepth, CqNotification,
						  CqNotificationContext, Affinity, CreateCompletion,
						  RequestContext, ppNdkCq);
}

static inline NTSTATUS NdkCreatePd(NDK_ADAPTER *pNdkAdapter,
				   NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
				   NDK_PD **ppNdkPd)
{
	return pNdkAdapter->Dispatch->NdkCreatePd(pNdkAdapter, CreateCompletion, RequestContext,
						  ppNdkPd);
}

static inline NTSTATUS NdkCreateSharedEndpoint(NDK_ADAPTER *pNdkAdapter, const PSOCKADDR pAddress,
					       ULONG AddressLength,
					       NDK_FN_CREATE_COMPLETION CreateCompletion,
					       PVOID RequestContext,
					       NDK_SHARED_ENDPOINT **ppNdkSharedEndpoint)
{
	return pNdkAdapter->Dispatch->NdkCreateSharedEndpoint(pNdkAdapter, pAddress, AddressLength,
							      CreateCompletion, RequestContext,
							      ppNdkSharedEndpoint);
}

static inline NTSTATUS NdkCreateConnector(NDK_ADAPTER *pNdkAdapter,
					  NDK_FN_CREATE_COMPLETION CreateCompletion,
					  PVOID RequestContext, NDK_CONNECTOR **ppNdkConnector)
{
	return pNdkAdapter->Dispatch->NdkCreateConnector(pNdkAdapter, CreateCompletion,
							 RequestContext, ppNdkConnector);
}

static inline NTSTATUS NdkCreateListener(NDK_ADAPTER *pNdkAdapter,
					 NDK_FN_CONNECT_EVENT_CALLBACK ConnectEvent,
					 PVOID ConnectEventContext,
					 NDK_FN_CREATE_COMPLETION CreateCompletion,
					 PVOID RequestContext, NDK_LISTENER **ppNdkListener)
{
	return pNdkAdapter->Dispatch->NdkCreateListener(pNdkAdapter, ConnectEvent,
							ConnectEventContext, CreateCompletion,
							RequestContext, ppNdkListener);
}

static inline NTSTATUS NdkBuildLAM(NDK_ADAPTER *pNdkAdapter, MDL *Mdl, SIZE_T Length,
				   NDK_FN_REQUEST_COMPLETION RequestCompletion,
				   PVOID RequestContext, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM,
				   ULONG *pLAMSize, ULONG *pFBO)
{
	return pNdkAdapter->Dispatch->NdkBuildLAM(pNdkAdapter, Mdl, Length, RequestCompletion,
						  RequestContext, pNdkLAM, pLAMSize, pFBO);
}

static inline void NdkReleaseLAM(NDK_ADAPTER *pNdkAdapter, NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM)
{
	pNdkAdapter->Dispatch->NdkReleaseLAM(pNdkAdapter, pNdkLAM);
}

static inline NTSTATUS NdkClosePd(NDK_PD *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
				  PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkClosePd(&pNdkObject->Header, CloseCompletion,
						RequestContext);
}

static inline NTSTATUS NdkCreateMr(NDK_PD *pNdkPd, BOOLEAN FastRegister,
				   NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
				   NDK_MR **ppNdkMr)
{
	return pNdkPd->Dispatch->NdkCreateMr(pNdkPd, FastRegister, CreateCompletion, RequestContext,
					     ppNdkMr);
}

static inline NTSTATUS NdkCreateMw(NDK_PD *pNdkPd, NDK_FN_CREATE_COMPLETION CreateCompletion,
				   PVOID RequestContext, NDK_MW **ppNdkMw)
{
	return pNdkPd->Dispatch->NdkCreateMw(pNdkPd, CreateCompletion, RequestContext, ppNdkMw);
}

static inline NTSTATUS NdkCreateSrq(NDK_PD *pNdkPd, ULONG SrqDepth, ULONG MaxReceiveRequestSge,
				    ULONG NotifyThreshold,
				    NDK_FN_SRQ_NOTIFICATION_CALLBACK SrqNotification,
				    PVOID SrqNotificationContext, GROUP_AFFINITY *Affinity,
				    NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
				    NDK_SRQ **ppNdkSrq)
{
	return pNdkPd->Dispatch->NdkCreateSrq(
		pNdkPd, SrqDepth, MaxReceiveRequestSge, NotifyThreshold, SrqNotification,
		SrqNotificationContext, Affinity, CreateCompletion, RequestContext, ppNdkSrq);
}

static inline NTSTATUS NdkCreateQp(NDK_PD *pNdkPd, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq,
				   PVOID QPContext, ULONG ReceiveQueueDepth,
				   ULONG InitiatorQueueDepth, ULONG MaxReceiveRequestSge,
				   ULONG MaxInitiatorRequestSge, ULONG InlineDataSize,
				   NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
				   NDK_QP **ppNdkQp)
{
	return pNdkPd->Dispatch->NdkCreateQp(
		pNdkPd, pReceiveCq, pInitiatorCq, QPContext, ReceiveQueueDepth, InitiatorQueueDepth,
		MaxReceiveRequestSge, MaxInitiatorRequestSge, InlineDataSize, CreateCompletion,
		RequestContext, ppNdkQp);
}

static inline NTSTATUS NdkCreateQpWithSrq(NDK_PD *pNdkPd, NDK_CQ *pReceiveCq, NDK_CQ *pInitiatorCq,
					  NDK_SRQ *pSrq, PVOID QPContext, ULONG InitiatorQueueDepth,
					  ULONG MaxInitiatorRequestSge, ULONG InlineDataSize,
					  NDK_FN_CREATE_COMPLETION CreateCompletion,
					  PVOID RequestContext, NDK_QP **ppNdkQp)
{
	return pNdkPd->Dispatch->NdkCreateQpWithSrq(
		pNdkPd, pReceiveCq, pInitiatorCq, pSrq, QPContext, InitiatorQueueDepth,
		MaxInitiatorRequestSge, InlineDataSize, CreateCompletion, RequestContext, ppNdkQp);
}

static inline void NdkGetPrivilegedMemoryRegionToken(NDK_PD *pNdkPd, UINT32 *pToken)
{
	pNdkPd->Dispatch->NdkGetPrivilegedMemoryRegionToken(pNdkPd, pToken);
}

static inline NTSTATUS NdkCloseCq(NDK_CQ *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
				  PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseCq(&pNdkObject->Header, CloseCompletion,
						RequestContext);
}

static inline NTSTATUS NdkResizeCq(NDK_CQ *pNdkCq, ULONG CqDepth,
				   NDK_FN_REQUEST_COMPLETION RequestCompletion,
				   PVOID RequestContext)
{
	return pNdkCq->Dispatch->NdkResizeCq(pNdkCq, CqDepth, RequestCompletion, RequestContext);
}

static inline void NdkArmCq(NDK_CQ *pNdkCq, ULONG Type)
{
	pNdkCq->Dispatch->NdkArmCq(pNdkCq, Type);
}

static inline ULONG NdkGetCqResults(NDK_CQ *pNdkCq, NDK_RESULT Results[], ULONG nResults)
{
	return pNdkCq->Dispatch->NdkGetCqResults(pNdkCq, Results, nResults);
}

static inline NTSTATUS NdkControlCqInterruptModeration(NDK_CQ *pNdkCq, ULONG ModerationInterval,
						       ULONG ModerationCount)
{
	return pNdkCq->Dispatch->NdkControlCqInterruptModeration(pNdkCq, ModerationInterval,
								 ModerationCount);
}

static inline ULONG NdkGetCqResultsEx(NDK_CQ *pNdkCq, NDK_RESULT_EX Results[], ULONG nResults)
{
	return pNdkCq->Dispatch->NdkGetCqResultsEx(pNdkCq, Results, nResults);
}

static inline NTSTATUS NdkCloseMr(NDK_MR *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
				  PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseMr(&pNdkObject->Header, CloseCompletion,
						RequestContext);
}

static inline NTSTATUS NdkRegisterMr(NDK_MR *pNdkMr, MDL *Mdl, SIZE_T Length, ULONG Flags,
				     NDK_FN_REQUEST_COMPLETION RequestCompletion,
				     PVOID RequestContext)
{
	return pNdkMr->Dispatch->NdkRegisterMr(pNdkMr, Mdl, Length, Flags, RequestCompletion,
					       RequestContext);
}

static inline NTSTATUS NdkDeregisterMr(NDK_MR *pNdkMr, NDK_FN_REQUEST_COMPLETION RequestCompletion,
				       PVOID RequestContext)
{
	return pNdkMr->Dispatch->NdkDeregisterMr(pNdkMr, RequestCompletion, RequestContext);
}

static inline NTSTATUS NdkInitializeFastRegisterMr(NDK_MR *pNdkMr, ULONG AdapterPageCount,
						   BOOLEAN RemoteAccess,
						   NDK_FN_REQUEST_COMPLETION RequestCompletion,
						   PVOID RequestContext)
{
	return pNdkMr->Dispatch->NdkInitializeFastRegisterMr(pNdkMr, AdapterPageCount, RemoteAccess,
							     RequestCompletion, RequestContext);
}

static inline UINT32 NdkGetRemoteTokenFromMr(NDK_MR *pNdkMr)
{
	return pNdkMr->Dispatch->NdkGetRemoteTokenFromMr(pNdkMr);
}

static inline UINT32 NdkGetLocalTokenFromMr(NDK_MR *pNdkMr)
{
	return pNdkMr->Dispatch->NdkGetLocalTokenFromMr(pNdkMr);
}

static inline NTSTATUS NdkCloseMw(NDK_MW *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
				  PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseMw(&pNdkObject->Header, CloseCompletion,
						RequestContext);
}

static inline UINT32 NdkGetRemoteTokenFromMw(NDK_MW *pNdkMw)
{
	return pNdkMw->Dispatch->NdkGetRemoteTokenFromMw(pNdkMw);
}

static inline NTSTATUS NdkCloseQp(NDK_QP *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
				  PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseQp(&pNdkObject->Header, CloseCompletion,
						RequestContext);
}

static inline void NdkFlush(NDK_QP *pNdkQp)
{
	pNdkQp->Dispatch->NdkFlush(pNdkQp);
}

static inline NTSTATUS NdkSend(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
			       ULONG nSge, ULONG Flags)
{
	return pNdkQp->Dispatch->NdkSend(pNdkQp, RequestContext, pSgl, nSge, Flags);
}

static inline NTSTATUS NdkReceive(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				  ULONG nSge)
{
	return pNdkQp->Dispatch->NdkReceive(pNdkQp, RequestContext, pSgl, nSge);
}

static inline NTSTATUS NdkBind(NDK_QP *pNdkQp, PVOID RequestContext, NDK_MR *pMr, NDK_MW *pMw,
			       PVOID VirtualAddress, SIZE_T Length, ULONG Flags)
{
	return pNdkQp->Dispatch->NdkBind(pNdkQp, RequestContext, pMr, pMw, VirtualAddress, Length,
					 Flags);
}

static inline NTSTATUS NdkFastRegister(NDK_QP *pNdkQp, PVOID RequestContext, NDK_MR *pMr,
				       ULONG AdapterPageCount,
				       const NDK_LOGICAL_ADDRESS *AdapterPageArray, ULONG FBO,
				       SIZE_T Length, PVOID BaseVirtualAddress, ULONG Flags)
{
	return pNdkQp->Dispatch->NdkFastRegister(pNdkQp, RequestContext, pMr, AdapterPageCount,
						 AdapterPageArray, FBO, Length, BaseVirtualAddress,
						 Flags);
}

static inline NTSTATUS NdkInvalidate(NDK_QP *pNdkQp, PVOID RequestContext,
				     NDK_OBJECT_HEADER *pNdkMrOrMw, ULONG Flags)
{
	return pNdkQp->Dispatch->NdkInvalidate(pNdkQp, RequestContext, pNdkMrOrMw, Flags);
}

static inline NTSTATUS NdkRead(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
			       ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken, ULONG Flags)
{
	return pNdkQp->Dispatch->NdkRead(pNdkQp, RequestContext, pSgl, nSge, RemoteAddress,
					 RemoteToken, Flags);
}

static inline NTSTATUS NdkWrite(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken, ULONG Flags)
{
	return pNdkQp->Dispatch->NdkWrite(pNdkQp, RequestContext, pSgl, nSge, RemoteAddress,
					  RemoteToken, Flags);
}

static inline NTSTATUS NdkSendAndInvalidate(NDK_QP *pNdkQp, PVOID RequestContext,
					    const NDK_SGE *pSgl, ULONG nSge, ULONG Flags,
					    UINT32 RemoteToken)
{
	return pNdkQp->Dispatch->NdkSendAndInvalidate(pNdkQp, RequestContext, pSgl, nSge, Flags,
						      RemoteToken);
}

static inline NTSTATUS NdkCloseSrq(NDK_SRQ *pNdkObject, NDK_FN_CLOSE_COMPLETION CloseCompletion,
				   PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseSrq(&pNdkObject->Header, CloseCompletion,
						 RequestContext);
}

static inline NTSTATUS NdkModifySrq(NDK_SRQ *pNdkSrq, ULONG SrqDepth, ULONG NotifyThreshold,
				    NDK_FN_REQUEST_COMPLETION RequestCompletion,
				    PVOID RequestContext)
{
	return pNdkSrq->Dispatch->NdkModifySrq(pNdkSrq, SrqDepth, NotifyThreshold,
					       RequestCompletion, RequestContext);
}

static inline NTSTATUS NdkSrqReceive(NDK_SRQ *pNdkSrq, PVOID RequestContext, const NDK_SGE *pSgl,
				     ULONG nSge)
{
	return pNdkSrq->Dispatch->NdkSrqReceive(pNdkSrq, RequestContext, pSgl, nSge);
}

static inline NTSTATUS NdkCloseConnector(NDK_CONNECTOR *pNdkObject,
					 NDK_FN_CLOSE_COMPLETION CloseCompletion,
					 PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseConnector(&pNdkObject->Header, CloseCompletion,
						       RequestContext);
}

static inline NTSTATUS NdkConnect(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp,
				  const PSOCKADDR pSrcAddress, ULONG SrcAddressLength,
				  const PSOCKADDR pDestAddress, ULONG DestAddressLength,
				  ULONG InboundReadLimit, ULONG OutboundReadLimit,
				  const PVOID pPrivateData, ULONG PrivateDataLength,
				  NDK_FN_REQUEST_COMPLETION RequestCompletion, PVOID RequestContext)
{
	return pNdkConnector->Dispatch->NdkConnect(
		pNdkConnector, pNdkQp, pSrcAddress, SrcAddressLength, pDestAddress,
		DestAddressLength, InboundReadLimit, OutboundReadLimit, pPrivateData,
		PrivateDataLength, RequestCompletion, RequestContext);
}

static inline NTSTATUS NdkConnectWithSharedEndpoint(
	NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
	const PSOCKADDR pDestAddress, ULONG DestAddressLength, ULONG InboundReadLimit,
	ULONG OutboundReadLimit, const PVOID pPrivateData, ULONG PrivateDataLength,
	NDK_FN_REQUEST_COMPLETION RequestCompletion, PVOID RequestContext)
{
	return pNdkConnector->Dispatch->NdkConnectWithSharedEndpoint(
		pNdkConnector, pNdkQp, pNdkSharedEndpoint, pDestAddress, DestAddressLength,
		InboundReadLimit, OutboundReadLimit, pPrivateData, PrivateDataLength,
		RequestCompletion, RequestContext);
}

static inline NTSTATUS NdkCompleteConnect(NDK_CONNECTOR *pNdkConnector,
					  NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
					  PVOID DisconnectEventContext,
					  NDK_FN_REQUEST_COMPLETION RequestCompletion,
					  PVOID RequestContext)
{
	return pNdkConnector->Dispatch->NdkCompleteConnect(pNdkConnector, DisconnectEvent,
							   DisconnectEventContext,
							   RequestCompletion, RequestContext);
}

static inline NTSTATUS NdkAccept(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp,
				 ULONG InboundReadLimit, ULONG OutboundReadLimit,
				 const PVOID pPrivateData, ULONG PrivateDataLength,
				 NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
				 PVOID DisconnectEventContext,
				 NDK_FN_REQUEST_COMPLETION RequestCompletion, PVOID RequestContext)
{
	return pNdkConnector->Dispatch->NdkAccept(
		pNdkConnector, pNdkQp, InboundReadLimit, OutboundReadLimit, pPrivateData,
		PrivateDataLength, DisconnectEvent, DisconnectEventContext, RequestCompletion,
		RequestContext);
}

static inline NTSTATUS NdkReject(NDK_CONNECTOR *pNdkConnector, const PVOID pPrivateData,
				 ULONG PrivateDataLength)
{
	return pNdkConnector->Dispatch->NdkReject(pNdkConnector, pPrivateData, PrivateDataLength);
}

static inline NTSTATUS NdkGetConnectionData(NDK_CONNECTOR *pNdkConnector, ULONG *pInboundReadLimit,
					    ULONG *pOutboundReadLimit, PVOID pPrivateData,
					    ULONG *pPrivateDataLength)
{
	return pNdkConnector->Dispatch->NdkGetConnectionData(pNdkConnector, pInboundReadLimit,
							     pOutboundReadLimit, pPrivateData,
							     pPrivateDataLength);
}

static inline NTSTATUS NdkGetLocalAddress(NDK_CONNECTOR *pNdkConnector, PSOCKADDR pAddress,
					  ULONG *pAddressLength)
{
	return pNdkConnector->Dispatch->NdkGetLocalAddress(pNdkConnector, pAddress, pAddressLength);
}

static inline NTSTATUS NdkGetPeerAddress(NDK_CONNECTOR *pNdkConnector, PSOCKADDR pAddress,
					 ULONG *pAddressLength)
{
	return pNdkConnector->Dispatch->NdkGetPeerAddress(pNdkConnector, pAddress, pAddressLength);
}

static inline NTSTATUS NdkDisconnect(NDK_CONNECTOR *pNdkConnector,
				     NDK_FN_REQUEST_COMPLETION RequestCompletion,
				     PVOID RequestContext)
{
	return pNdkConnector->Dispatch->NdkDisconnect(pNdkConnector, RequestCompletion,
						      RequestContext);
}

static inline NTSTATUS NdkCompleteConnectEx(NDK_CONNECTOR *pNdkConnector,
					    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
					    PVOID DisconnectEventContext,
					    NDK_FN_REQUEST_COMPLETION RequestCompletion,
					    PVOID RequestContext)
{
	return pNdkConnector->Dispatch->NdkCompleteConnectEx(pNdkConnector, DisconnectEvent,
							     DisconnectEventContext,
							     RequestCompletion, RequestContext);
}

static inline NTSTATUS NdkAcceptEx(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp,
				   ULONG InboundReadLimit, ULONG OutboundReadLimit,
				   const PVOID pPrivateData, ULONG PrivateDataLength,
				   NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
				   PVOID DisconnectEventContext,
				   NDK_FN_REQUEST_COMPLETION RequestCompletion,
				   PVOID RequestContext)
{
	return pNdkConnector->Dispatch->NdkAcceptEx(
		pNdkConnector, pNdkQp, InboundReadLimit, OutboundReadLimit, pPrivateData,
		PrivateDataLength, DisconnectEvent, DisconnectEventContext, RequestCompletion,
		RequestContext);
}

static inline NTSTATUS NdkCloseListener(NDK_LISTENER *pNdkObject,
					NDK_FN_CLOSE_COMPLETION CloseCompletion,
					PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseListener(&pNdkObject->Header, CloseCompletion,
						      RequestContext);
}

static inline NTSTATUS NdkListen(NDK_LISTENER *pNdkListener, const PSOCKADDR pAddress,
				 ULONG AddressLength, NDK_FN_REQUEST_COMPLETION RequestCompletion,
				 PVOID RequestContext)
{
	return pNdkListener->Dispatch->NdkListen(pNdkListener, pAddress, AddressLength,
						 RequestCompletion, RequestContext);
}

static inline NTSTATUS NdkGetListenerLocalAddress(NDK_LISTENER *pNdkListener, PSOCKADDR pAddress,
						  ULONG *pAddressLength)
{
	return pNdkListener->Dispatch->NdkGetLocalAddress(pNdkListener, pAddress, pAddressLength);
}

static inline void NdkControlConnectEvents(NDK_LISTENER *pNdkListener, BOOLEAN Pause)
{
	pNdkListener->Dispatch->NdkControlConnectEvents(pNdkListener, Pause);
}

static inline NTSTATUS NdkCloseSharedEndpoint(NDK_SHARED_ENDPOINT *pNdkObject,
					      NDK_FN_CLOSE_COMPLETION CloseCompletion,
					      PVOID RequestContext)
{
	return pNdkObject->Dispatch->NdkCloseSharedEndpoint(&pNdkObject->Header, CloseCompletion,
							    RequestContext);
}

static inline NTSTATUS NdkGetSharedEndpointLocalAddress(NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
							PSOCKADDR pAddress, ULONG *pAddressLength)
{
	return pNdkSharedEndpoint->Dispatch->NdkGetLocalAddress(pNdkSharedEndpoint, pAddress,
								pAddressLength);
}

/* ===================== Oriel's extensions: none of what follows is NDKPI's ======================
 */

#define ORIEL_API __attribute__((visibility("default")))

/* --- adapter ------------------------------------------------------------------------- */

/*
 * The library starts a thread that drives progress, so that callbacks come by themselves, in that
 * thread, until OrielCloseAdapter(). Signals are blocked there. Waiting for a callback is the
 * program's affair then; OrielProgress() and OrielWait() are not needed and do no harm.
 */
#define ORIEL_OPEN_PROGRESS_THREAD 0x1u

/* Before the name of a configuration file, instead of a socket: see OrielOpenAdapter(). */
#define ORIEL_IN_PROCESS "in-process:"

typedef struct _ORIEL_OPEN_PARAMETERS {
	ULONG Size;          /* sizeof(ORIEL_OPEN_PARAMETERS) */
	NDK_VERSION Version; /* the lowest that the program can use: 1.1, 1.2 or 2.1 */
	/* NULL or "": $ORIEL_SOCKET, else /run/oriel/ndk.sock; or "in-process:FILE" */
	const char *Socket;
	ULONG Flags; /* ORIEL_OPEN_* */
} ORIEL_OPEN_PARAMETERS;

/*
 * Opens a session with the daemon. Blocks for as long as the daemon takes to answer (10 s at most).
 * Parameters may be NULL: version 1.2, default socket. NDIS_STATUS_BAD_VERSION,
 * STATUS_DEVICE_NOT_READY (no daemon there), STATUS_ACCESS_VIOLATION (not allowed to connect),
 * STATUS_INSUFFICIENT_RESOURCES.
 *
 * "in-process:FILE" instead of a socket's path: no daemon; the data plane is in the process itself
 * and FILE is its configuration, as orield's. It is served by the calls of the program and stands
 * still between them: OrielProgress(), OrielWait(), and taking results from an empty CQ. One such
 * adapter at a time in a process. Opening takes as long as the devices do. Besides those above
 * STATUS_NOT_SUPPORTED (libndk-inprocess is not installed), STATUS_INVALID_PARAMETER (FILE),
 * STATUS_DEVICE_BUSY (the process has one).
 */
ORIEL_API NTSTATUS OrielOpenAdapter(const ORIEL_OPEN_PARAMETERS *Parameters,
				    NDK_ADAPTER **ppNdkAdapter);

/* Why this thread's last OrielOpenAdapter() failed, for a person. Never NULL. */
ORIEL_API const char *OrielOpenErrorText(void);

/* Closes everything and returns when the last callback has. Not from a callback. */
ORIEL_API void OrielCloseAdapter(NDK_ADAPTER *pNdkAdapter);

/* The data plane's own addresses. *pCount: room on entry, how many there are on return. */
ORIEL_API NTSTATUS OrielQueryAddresses(NDK_ADAPTER *pNdkAdapter,
				       struct sockaddr_storage *pAddresses, ULONG *pCount);

/* --- progress ------------------------------------------------------------------------ */

/* Runs what is due: completions, events, notifications. Returns how many callbacks ran. */
ORIEL_API ULONG OrielProgress(NDK_ADAPTER *pNdkAdapter);

/*
 * Sleeps until OrielProgress() has something to do or the time is over (-1: no limit).
 * STATUS_SUCCESS, STATUS_TIMEOUT, STATUS_DEVICE_REMOVED.
 */
ORIEL_API NTSTATUS OrielWait(NDK_ADAPTER *pNdkAdapter, LONG TimeoutMilliseconds);

/*
 * A descriptor that polls readable when OrielProgress() has something to do. It stays the
 * adapter's. Call OrielProgress() until it returns 0 before sleeping on it. -1: in-process, and the
 * process has no descriptors left.
 */
ORIEL_API int OrielGetEventFd(NDK_ADAPTER *pNdkAdapter);

typedef enum _ORIEL_EVENT {
	OrielEventQpFatal = 1,
	OrielEventQpAccessError,
	OrielEventQpInvalidRequest,
	OrielEventQpLastWqeReached,
	OrielEventSrqLimit,
	OrielEventCqError,
	OrielEventDeviceRemoved /* pNdkObject is the adapter; close it and open anew */
} ORIEL_EVENT;

/* Runs as all callbacks do. Reason: the daemon's number, 0 if it has none. */
typedef void (*ORIEL_FN_EVENT_CALLBACK)(PVOID Context, ORIEL_EVENT Event,
					NDK_OBJECT_HEADER *pNdkObject, ULONG Reason);
/* One handler for the adapter; NULL: none. */
ORIEL_API void OrielSetEventHandler(NDK_ADAPTER *pNdkAdapter, ORIEL_FN_EVENT_CALLBACK Handler,
				    PVOID Context);

/* --- memory that can be registered --------------------------------------------------- */

#define ORIEL_MEMORY_HUGE_PAGES    0x1u /* 2 MiB pages if there are enough */
#define ORIEL_MEMORY_HUGE_REQUIRED 0x2u /* 2 MiB pages or STATUS_NO_MEMORY */

/*
 * Zeroed, page-aligned memory in a memfd that can neither shrink nor be sealed further, touched so
 * that it is there. Belongs to the process, not to an adapter: it outlives a restart of the daemon.
 */
ORIEL_API NTSTATUS OrielAllocateMemory(SIZE_T Length, ULONG Flags, MDL **ppMdl);

/*
 * The same of a memfd that the program has: sealed with F_SEAL_SHRINK and F_SEAL_SEAL
 * (STATUS_ACCESS_VIOLATION if not). Offset: a multiple of the page size. The descriptor stays the
 * caller's.
 */
ORIEL_API NTSTATUS OrielAdoptMemory(int MemFd, UINT64 Offset, SIZE_T Length, MDL **ppMdl);

/* Unmaps. No region of any adapter may be registered in it. */
ORIEL_API void OrielFreeMemory(MDL *Mdl);

/* --- queue pairs: what NDKPI lacks --------------------------------------------------- */

typedef enum _ORIEL_QP_TYPE {
	OrielQpTypeRc = 0, /* reliable connection: what NdkCreateQp makes */
	OrielQpTypeUc = 1, /* unreliable connection: no acknowledgement, what is lost is lost */
	OrielQpTypeUd = 3  /* datagrams of one packet to and from anybody */
} ORIEL_QP_TYPE;

typedef struct _ORIEL_QP_PARAMETERS {
	ULONG Size; /* sizeof(ORIEL_QP_PARAMETERS) */
	ORIEL_QP_TYPE Type;
	NDK_CQ *ReceiveCq;
	NDK_CQ *InitiatorCq; /* may be the same */
	NDK_SRQ *Srq;        /* NULL: a receive queue of its own */
	PVOID QPContext;
	ULONG ReceiveQueueDepth; /* with Srq: 0 */
	ULONG InitiatorQueueDepth;
	ULONG MaxReceiveRequestSge; /* with Srq: 0 */
	ULONG MaxInitiatorRequestSge;
	ULONG InlineDataSize;
	ULONG Flags; /* 0 */
} ORIEL_QP_PARAMETERS;

/*
 * As NdkCreateQp and NdkCreateQpWithSrq, of any type. STATUS_INVALID_PARAMETER: no such type,
 * flags, no CQ, a number above the adapter's limit; STATUS_INVALID_PARAMETER_MIX: an SRQ and a
 * receive queue.
 *
 * UC and UD are connected by OrielConnectQp() only (NdkConnect and NdkAccept:
 * STATUS_NOT_SUPPORTED). A request that the type does not know is refused inline,
 * STATUS_INVALID_DEVICE_REQUEST. RC knows all but OrielSendDatagram(); UC no reads, atomics and
 * NdkSendAndInvalidate; UD only OrielSendDatagram() and receives. What UC and UD send completes
 * when it has left. A UC message that lacks a packet, and a message that finds no receive, is
 * dropped without a word: the receive serves the next.
 */
ORIEL_API NTSTATUS OrielCreateQp(NDK_PD *pNdkPd, const ORIEL_QP_PARAMETERS *Parameters,
				 NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
				 NDK_QP **ppNdkQp);

/* 24 bits, never 0; the same for life. */
ORIEL_API ULONG OrielGetQpNumber(NDK_QP *pNdkQp);

/* As NdkSend and NdkWrite; Immediate is four bytes that reach the peer as they lie in memory. */
ORIEL_API NTSTATUS OrielSendImmediate(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				      ULONG nSge, ULONG Flags, UINT32 Immediate);
ORIEL_API NTSTATUS OrielWriteImmediate(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				       ULONG nSge, UINT64 RemoteAddress, UINT32 RemoteToken,
				       ULONG Flags, UINT32 Immediate);

/*
 * 64-bit atomics at a remote address that is a multiple of 8. The SGE of 8 bytes gets the old
 * value, in host order. They count as reads for the read limits and READ_FENCE.
 */
ORIEL_API NTSTATUS OrielFetchAdd(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pResult,
				 UINT64 RemoteAddress, UINT32 RemoteToken, UINT64 Addend,
				 ULONG Flags);
ORIEL_API NTSTATUS OrielCompareSwap(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pResult,
				    UINT64 RemoteAddress, UINT32 RemoteToken, UINT64 Compare,
				    UINT64 Swap, ULONG Flags);

/* A Q_Key with this bit in a datagram: the sending queue pair's own. None can be set with it. */
#define ORIEL_QKEY_OWN 0x80000000u

typedef struct _ORIEL_QP_CONNECTION {
	ULONG Size; /* sizeof(ORIEL_QP_CONNECTION) */
	ULONG RemoteQpNumber;
	ULONG SendPsn;    /* the first that we send; 24 bits */
	ULONG ReceivePsn; /* the first that we expect; 24 bits */
	ULONG PathMtu; /* bytes: 256, 512, 1024, 2048, 4096, none above the port's; 0: the port's */
	ULONG InboundReadLimit;
	ULONG OutboundReadLimit;
	UCHAR Timeout;       /* code: 4.096 us << Timeout; 0: none; at most 31 */
	UCHAR RetryCount;    /* at most 7 */
	UCHAR RnrRetryCount; /* 7: for ever */
	UCHAR MinRnrTimer;   /* code, at most 31 */
	UCHAR TrafficClass;
	UCHAR HopLimit; /* 0: 64 */
	UCHAR Reserved[2];
	UINT32 QKey;             /* UD: that datagrams must bring, below ORIEL_QKEY_OWN */
	PSOCKADDR LocalAddress;  /* of the data plane; the port is ignored */
	PSOCKADDR RemoteAddress; /* the same, of the same family */
} ORIEL_QP_CONNECTION;

/*
 * Connects by queue pair number, both sides told out of band, as perftest does. Completes when
 * the peer's Ethernet address is known and requests are served. UC ignores read limits, timer and
 * retries. UD is made ready to send and to receive: only SendPsn, PathMtu (the longest datagram),
 * QKey and LocalAddress are looked at.
 *
 * STATUS_INVALID_PARAMETER: a value that cannot be, or a PathMtu above the port's (that in the
 * completion); STATUS_INVALID_PARAMETER_MIX: addresses of two families; STATUS_INVALID_ADDRESS:
 * LocalAddress is not the data plane's; STATUS_CONNECTION_ACTIVE: connected already;
 * STATUS_HOST_UNREACHABLE: nobody answers there; STATUS_NETWORK_UNREACHABLE: no way there.
 */
ORIEL_API NTSTATUS OrielConnectQp(NDK_QP *pNdkQp, const ORIEL_QP_CONNECTION *Connection,
				  NDK_FN_REQUEST_COMPLETION RequestCompletion,
				  PVOID RequestContext);

/* --- datagrams ----------------------------------------------------------------------- */

/*
 * Datagrams reach a receive behind 40 bytes that say where they came from: the IPv6 header, or 20
 * bytes that mean nothing and the IPv4 header. So a receive needs room for 40 bytes more than
 * the longest datagram; BytesTransferred counts them. One that is too small, or a wrong
 * Q_Key, drops the datagram.
 */
#define ORIEL_GRH_SIZE 40u

typedef struct _ORIEL_ADDRESS ORIEL_ADDRESS;

typedef struct _ORIEL_ADDRESS_DISPATCH {
	NDK_FN_CLOSE_OBJECT OrielCloseAddress;
	NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
} ORIEL_ADDRESS_DISPATCH;

/* Where datagrams go: an object like NDK's. */
struct _ORIEL_ADDRESS {
	NDK_OBJECT_HEADER Header; /* OrielObjectTypeAddress */
	const ORIEL_ADDRESS_DISPATCH *Dispatch;
};

typedef struct _ORIEL_ADDRESS_PARAMETERS {
	ULONG Size;      /* sizeof(ORIEL_ADDRESS_PARAMETERS) */
	ULONG FlowLabel; /* 20 bits: seed of the UDP source port; 0: from both QP numbers */
	UCHAR TrafficClass;
	UCHAR HopLimit; /* 0: 64 */
	UCHAR Reserved[6];
	PSOCKADDR LocalAddress;  /* of the data plane: the source; the port is ignored */
	PSOCKADDR RemoteAddress; /* the same, of the same family */
} ORIEL_ADDRESS_PARAMETERS;

/*
 * Completes when the peer's Ethernet address is known; it is not asked for again later: when the
 * peer changes its adapter, make a new address. STATUS_INVALID_PARAMETER: a value that cannot
 * be; STATUS_INVALID_PARAMETER_MIX: addresses of two families; STATUS_NOT_SUPPORTED: a
 * group; STATUS_INVALID_ADDRESS, STATUS_HOST_UNREACHABLE, STATUS_NETWORK_UNREACHABLE as above.
 */
ORIEL_API NTSTATUS OrielCreateAddress(NDK_PD *pNdkPd, const ORIEL_ADDRESS_PARAMETERS *Parameters,
				      NDK_FN_CREATE_COMPLETION CreateCompletion,
				      PVOID RequestContext, ORIEL_ADDRESS **ppAddress);

/*
 * As all closes. Not before the datagrams to it have completed: one that has not left fails
 * with STATUS_INVALID_HANDLE, and its queue pair with it.
 */
static inline NTSTATUS OrielCloseAddress(ORIEL_ADDRESS *pAddress,
					 NDK_FN_CLOSE_COMPLETION CloseCompletion,
					 PVOID RequestContext)
{
	return pAddress->Dispatch->OrielCloseAddress(&pAddress->Header, CloseCompletion,
						     RequestContext);
}

#define ORIEL_DATAGRAM_IMMEDIATE 0x1u /* it carries Immediate */

typedef struct _ORIEL_DATAGRAM {
	ORIEL_ADDRESS *Address;
	ULONG RemoteQpNumber;
	UINT32 QKey;      /* the receiver's, or ORIEL_QKEY_OWN */
	UINT32 Immediate; /* four bytes that reach the peer as they lie in memory */
	ULONG Flags;      /* ORIEL_DATAGRAM_* */
} ORIEL_DATAGRAM;

/*
 * Flags: those of NdkSend. As all posts, and: STATUS_INVALID_BUFFER_SIZE longer than the path MTU,
 * the queue pair's or that of the port by which the address is reached;
 * STATUS_INVALID_DEVICE_REQUEST not a UD queue pair; STATUS_INVALID_PARAMETER no such queue
 * pair number, other flags; STATUS_NOT_SUPPORTED number 0xffffff, a group's;
 * STATUS_INVALID_PARAMETER_MIX the address belongs to another domain.
 */
ORIEL_API NTSTATUS OrielSendDatagram(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl,
				     ULONG nSge, ULONG Flags, const ORIEL_DATAGRAM *Datagram);

/* --- services of datagrams ------------------------------------------------------------- */

/*
 * As NdkListen, in the port space of datagrams (rdma_cm's RDMA_PS_UDP), which is apart from that of
 * connections. Its connect events bring connectors that ask which queue pair takes datagrams:
 * answer by OrielAcceptDatagram() or NdkReject() (at most 136 bytes), then close the connector.
 */
ORIEL_API NTSTATUS OrielListenDatagram(NDK_LISTENER *pNdkListener, const PSOCKADDR pAddress,
				       ULONG AddressLength,
				       NDK_FN_REQUEST_COMPLETION RequestCompletion,
				       PVOID RequestContext);

/* Whether the connector of a connect event is such a question, not answered yet. */
ORIEL_API BOOLEAN OrielIsDatagramRequest(NDK_CONNECTOR *pNdkConnector);

/*
 * Tells the peer the number and the Q_Key of a UD queue pair that is ready (OrielConnectQp), and up
 * to 136 bytes. Nothing is connected: one queue pair may answer everybody. STATUS_NOT_SUPPORTED:
 * not UD; STATUS_CONNECTION_INVALID: not a question, or answered; STATUS_INVALID_BUFFER_SIZE; in
 * the completion STATUS_INVALID_DEVICE_STATE: not ready, STATUS_CONNECTION_ABORTED: the listener is
 * gone.
 */
ORIEL_API NTSTATUS OrielAcceptDatagram(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, UINT32 QKey,
				       const void *pPrivateData, ULONG PrivateDataLength,
				       NDK_FN_REQUEST_COMPLETION RequestCompletion,
				       PVOID RequestContext);

/*
 * Asks a service which queue pair takes its datagrams, with up to 180 bytes (the peer gets 180,
 * padded with zeros). When it completes OrielGetDatagramPeer() and NdkGetConnectionData() (136
 * bytes) have the answer; for the address itself see OrielCreateAddress().
 * STATUS_CONNECTION_REFUSED: nobody listens, or the service says no (its data can be read);
 * STATUS_IO_TIMEOUT: no answer; STATUS_CONNECTION_ACTIVE: the connector is in use; the rest as
 * NdkConnect.
 */
ORIEL_API NTSTATUS OrielResolveDatagram(NDK_CONNECTOR *pNdkConnector, const PSOCKADDR pSrcAddress,
					ULONG SrcAddressLength, const PSOCKADDR pDestAddress,
					ULONG DestAddressLength, const void *pPrivateData,
					ULONG PrivateDataLength,
					NDK_FN_REQUEST_COMPLETION RequestCompletion,
					PVOID RequestContext);

/* STATUS_CONNECTION_INVALID: no answer so far. */
ORIEL_API NTSTATUS OrielGetDatagramPeer(NDK_CONNECTOR *pNdkConnector, ULONG *pQpNumber,
					UINT32 *pQKey);

/* --- results ------------------------------------------------------------------------- */

#define ORIEL_RESULT_IMMEDIATE 0x1u /* Immediate is the peer's */
#define ORIEL_RESULT_GRH       0x2u /* the receive begins with ORIEL_GRH_SIZE bytes of header */

typedef struct _ORIEL_RESULT {
	NDK_RESULT_EX Ndk;
	ULONG QpNumber;
	ULONG SourceQpNumber; /* receives of UD: who sent it, else 0 */
	UINT32 Immediate;     /* as on the wire */
	ULONG Flags;          /* ORIEL_RESULT_* */
} ORIEL_RESULT;

/* As NdkGetCqResultsEx, which it may be mixed with. */
ORIEL_API ULONG OrielGetCqResults(NDK_CQ *pNdkCq, ORIEL_RESULT Results[], ULONG nResults);

/* "STATUS_ACCESS_VIOLATION"; never NULL. */
ORIEL_API const char *OrielStatusName(NTSTATUS Status);

#ifdef __cplusplus
}
#endif

#endif
