/* SPDX-License-Identifier: BSD-3-Clause */
/* Types of queue pairs, addresses, datagrams, results of all kinds. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

#include "rig.h"

#define DOORBELL_2ND 71u

static struct sockaddr_in local = { .sin_family = AF_INET };
static struct sockaddr_in remote = { .sin_family = AF_INET };
static struct sockaddr_in6 six = { .sin6_family = AF_INET6 };

static NDK_QP *create(struct rig *rig, ORIEL_QP_TYPE type)
{
	const ORIEL_QP_PARAMETERS parameters = { .Size = sizeof(parameters),
						 .Type = type,
						 .ReceiveCq = rig->cq,
						 .InitiatorCq = rig->cq,
						 .ReceiveQueueDepth = 4,
						 .InitiatorQueueDepth = 4,
						 .MaxReceiveRequestSge = 2,
						 .MaxInitiatorRequestSge = 2,
						 .InlineDataSize = 64 };
	struct outcome outcome = { 0 };

	cr_assert_eq(OrielCreateQp(rig->pd, &parameters, on_created, &outcome, NULL),
		     STATUS_PENDING);
	rig_run(rig);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	return (NDK_QP *)outcome.object;
}

static ORIEL_QP_CONNECTION connection(void)
{
	inet_pton(AF_INET, "10.0.0.1", &local.sin_addr);
	inet_pton(AF_INET, "10.0.0.2", &remote.sin_addr);
	inet_pton(AF_INET6, "fd00::2", &six.sin6_addr);
	return (ORIEL_QP_CONNECTION){ .Size = sizeof(ORIEL_QP_CONNECTION),
				      .RemoteQpNumber = 0x200,
				      .PathMtu = 512,
				      .QKey = 0x7777,
				      .LocalAddress = (PSOCKADDR)&local,
				      .RemoteAddress = (PSOCKADDR)&remote };
}

static NTSTATUS connect_qp(struct rig *rig, NDK_QP *qp, const ORIEL_QP_CONNECTION *to)
{
	struct outcome outcome = { 0 };
	NTSTATUS status = OrielConnectQp(qp, to, on_done, &outcome);

	if (status != STATUS_PENDING)
		return status;
	rig_run(rig);
	cr_assert_eq(outcome.calls, 1);
	return outcome.status;
}

static NTSTATUS create_address(struct rig *rig, const void *to, ULONG flow_label,
			       ORIEL_ADDRESS **address)
{
	const ORIEL_ADDRESS_PARAMETERS parameters = { .Size = sizeof(parameters),
						      .FlowLabel = flow_label,
						      .TrafficClass = 0x28,
						      .HopLimit = 3,
						      .LocalAddress = (PSOCKADDR)&local,
						      .RemoteAddress = (PSOCKADDR)to };
	struct outcome outcome = { 0 };
	NTSTATUS status = OrielCreateAddress(rig->pd, &parameters, on_created, &outcome, NULL);

	if (status != STATUS_PENDING)
		return status;
	rig_run(rig);
	*address = (ORIEL_ADDRESS *)outcome.object;
	return outcome.status;
}

/* A UD queue pair that is ready, and an address. Its memory is the fake daemon's second. */
static NDK_QP *ready(struct rig *rig, ORIEL_ADDRESS **address)
{
	const ORIEL_QP_CONNECTION own = connection();
	NDK_QP *qp;

	rig_queues(rig);
	rig_memory(rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	qp = create(rig, OrielQpTypeUd);
	cr_assert_eq(connect_qp(rig, qp, &own), STATUS_SUCCESS);
	cr_assert_eq(create_address(rig, &remote, 0x12345, address), STATUS_SUCCESS);
	fake_rung(&rig->fake, 1, DOORBELL_2ND);
	return qp;
}

/* --- queue pairs ---------------------------------------------------------------------------- */

Test(qp_type, what_is_asked_for_reaches_the_daemon)
{
	const struct shm_create_qp *want;
	struct rig rig;

	rig_queues(&rig);
	create(&rig, OrielQpTypeUc);
	want = &rig.fake.last[SHM_OP_CREATE_QP].create_qp;
	cr_expect_eq(want->type, SHM_QP_UC);
	cr_expect_eq(want->receive_depth, 4);
	cr_expect_eq(want->inline_size, 64);
	cr_expect_eq(want->srq, 0);
	rig_close(&rig);
}

Test(qp_type, wrong_parameters_are_refused)
{
	ORIEL_QP_PARAMETERS good = { .Size = sizeof(good), .Type = OrielQpTypeRc };
	ORIEL_QP_PARAMETERS bad;
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_queues(&rig);
	good.ReceiveCq = good.InitiatorCq = rig.cq;
	cr_expect_eq(OrielCreateQp(rig.pd, NULL, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	bad = good;
	bad.Size--;
	cr_expect_eq(OrielCreateQp(rig.pd, &bad, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	bad = good;
	bad.Type = (ORIEL_QP_TYPE)2;
	cr_expect_eq(OrielCreateQp(rig.pd, &bad, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	bad = good;
	bad.Flags = 1;
	cr_expect_eq(OrielCreateQp(rig.pd, &bad, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	bad = good;
	bad.InitiatorCq = NULL;
	cr_expect_eq(OrielCreateQp(rig.pd, &bad, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	bad = good;
	bad.InitiatorQueueDepth = 100000;
	cr_expect_eq(OrielCreateQp(rig.pd, &bad, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	rig_run(&rig);
	cr_expect_eq(outcome.calls, 0);
	rig_close(&rig);
}

Test(qp_type, an_srq_and_a_receive_queue_exclude_each_other)
{
	ORIEL_QP_PARAMETERS parameters = { .Size = sizeof(parameters), .ReceiveQueueDepth = 1 };
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_queues(&rig);
	cr_assert_eq(NdkCreateSrq(rig.pd, 4, 1, 0, NULL, NULL, NULL, on_created, &outcome, NULL),
		     STATUS_PENDING);
	rig_run(&rig);
	parameters.ReceiveCq = parameters.InitiatorCq = rig.cq;
	parameters.Srq = (NDK_SRQ *)outcome.object;
	cr_expect_eq(OrielCreateQp(rig.pd, &parameters, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER_MIX);
	rig_close(&rig);
}

/* What a type does not know is refused before anything else is looked at. */
Test(qp_type, requests_by_type)
{
	const ORIEL_QP_CONNECTION to = connection();
	ORIEL_DATAGRAM datagram = { .RemoteQpNumber = 0x300 };
	struct rig rig;
	NDK_QP *uc;

	rig_connected(&rig);
	rig_memory(&rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	uc = create(&rig, OrielQpTypeUc);
	cr_assert_eq(connect_qp(&rig, uc, &to), STATUS_SUCCESS);
	cr_assert_eq(create_address(&rig, &remote, 0, &datagram.Address), STATUS_SUCCESS);
	cr_expect_eq(NdkRead(uc, NULL, NULL, 0, 0, 1, 0), STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(NdkSendAndInvalidate(uc, NULL, NULL, 0, 0, 1), STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(OrielSendDatagram(uc, NULL, NULL, 0, 0, &datagram),
		     STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(OrielSendDatagram(rig.qp, NULL, NULL, 0, 0, &datagram),
		     STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(NdkSend(uc, NULL, NULL, 0, 0), STATUS_SUCCESS);
	cr_expect_eq(NdkWrite(uc, NULL, NULL, 0, 0, 1, 0), STATUS_SUCCESS);
	cr_expect_eq(NdkBind(uc, NULL, rig.mr, rig.mw, rig.mdl->StartVa, 8, 0), STATUS_SUCCESS);
	cr_expect_eq(fake_sqe(rig.fake.qp[1], 2)->opcode, SHM_WR_BIND);
	rig_close(&rig);
}

/* The CM makes reliable connections. */
Test(qp_type, connectors_take_reliable_ones_only)
{
	struct outcome outcome = { 0 };
	struct rig rig;
	NDK_CONNECTOR *connector;
	NDK_QP *qp;

	rig_queues(&rig);
	connection();
	qp = create(&rig, OrielQpTypeUd);
	NdkCreateConnector(rig.adapter, on_created, &outcome, NULL);
	rig_run(&rig);
	connector = (NDK_CONNECTOR *)outcome.object;
	cr_expect_eq(NdkConnect(connector, qp, (PSOCKADDR)&local, sizeof(local), (PSOCKADDR)&remote,
				sizeof(remote), 0, 0, NULL, 0, on_done, &outcome),
		     STATUS_NOT_SUPPORTED);
	rig_close(&rig);
}

/* --- connecting by number ------------------------------------------------------------------- */

Test(connect_qp, values_that_cannot_be)
{
	ORIEL_QP_CONNECTION bad[12];
	struct rig rig;

	rig_queues(&rig);
	for (unsigned int i = 0; i < 12; i++)
		bad[i] = connection();
	bad[0].Size--;
	bad[1].PathMtu = 128;
	bad[2].PathMtu = 8192;
	bad[3].PathMtu = 1000;
	bad[4].SendPsn = 0x1000000;
	bad[5].ReceivePsn = 0x1000000;
	bad[6].RemoteQpNumber = 1;
	bad[7].RemoteQpNumber = 0xffffff;
	bad[8].Timeout = 32;
	bad[9].RetryCount = 8;
	bad[10].RnrRetryCount = 8;
	bad[11].MinRnrTimer = 32;
	for (unsigned int i = 0; i < 12; i++)
		cr_expect_eq(connect_qp(&rig, rig.qp, &bad[i]), STATUS_INVALID_PARAMETER, "%u", i);
	cr_expect_eq(connect_qp(&rig, rig.qp, NULL), STATUS_INVALID_PARAMETER);
	bad[0] = connection();
	bad[0].RemoteAddress = (PSOCKADDR)&six;
	cr_expect_eq(connect_qp(&rig, rig.qp, &bad[0]), STATUS_INVALID_PARAMETER_MIX);
	bad[0].RemoteAddress = NULL;
	cr_expect_eq(connect_qp(&rig, rig.qp, &bad[0]), STATUS_INVALID_ADDRESS);
	cr_expect_eq(rig.fake.requests[SHM_OP_CONNECT_QP], 0);
	rig_close(&rig);
}

/* UD has no peer: what is said of one is not looked at. A privileged Q_Key is nobody's. */
Test(connect_qp, datagrams)
{
	ORIEL_QP_CONNECTION own = connection();
	const struct shm_connect_qp *want;
	struct rig rig;
	NDK_QP *qp;

	rig_queues(&rig);
	qp = create(&rig, OrielQpTypeUd);
	own.RemoteAddress = NULL;
	own.RemoteQpNumber = 0;
	own.QKey = ORIEL_QKEY_OWN | 5;
	cr_expect_eq(connect_qp(&rig, qp, &own), STATUS_INVALID_PARAMETER);
	own.QKey = 0x12345;
	own.PathMtu = 0;
	cr_assert_eq(connect_qp(&rig, qp, &own), STATUS_SUCCESS);
	want = &rig.fake.last[SHM_OP_CONNECT_QP].connect_qp;
	cr_expect_eq(want->qkey, 0x12345);
	cr_expect_eq(want->path_mtu, 0);
	rig_close(&rig);
}

/* --- addresses ------------------------------------------------------------------------------ */

Test(address, creation)
{
	const struct shm_create_ah *want;
	ORIEL_ADDRESS *address;
	struct rig rig;

	ready(&rig, &address);
	cr_expect_eq(address->Header.ObjectType, OrielObjectTypeAddress);
	want = &rig.fake.last[SHM_OP_CREATE_AH].create_ah;
	cr_expect_eq(want->flow_label, 0x12345);
	cr_expect_eq(want->traffic_class, 0x28);
	cr_expect_eq(want->hop_limit, 3);
	cr_expect_eq(want->remote.family, 4);
	cr_expect_eq(want->remote.gid[15], 2);
	cr_expect_eq(want->local.gid[15], 1);
	rig_close(&rig);
}

Test(address, what_cannot_be)
{
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_addr = { htonl(0xe0000001) } };
	ORIEL_ADDRESS *address;
	struct rig rig;

	rig_queues(&rig);
	connection();
	cr_expect_eq(create_address(&rig, &group, 0, &address), STATUS_NOT_SUPPORTED);
	cr_expect_eq(create_address(&rig, &six, 0, &address), STATUS_INVALID_PARAMETER_MIX);
	cr_expect_eq(create_address(&rig, &remote, 0x100000, &address), STATUS_INVALID_PARAMETER);
	cr_expect_eq(create_address(&rig, NULL, 0, &address), STATUS_INVALID_ADDRESS);
	cr_expect_eq(OrielCreateAddress(rig.pd, NULL, on_created, NULL, NULL),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(rig.fake.requests[SHM_OP_CREATE_AH], 0);
	rig.fake.status[SHM_OP_CREATE_AH] = STATUS_HOST_UNREACHABLE;
	cr_expect_eq(create_address(&rig, &remote, 0, &address), STATUS_HOST_UNREACHABLE);
	cr_expect_null(address);
	rig_close(&rig);
}

/* Life cycle: the domain goes after it. */
Test(address, close)
{
	struct outcome closed = { 0 }, domain = { 0 };
	ORIEL_ADDRESS *address;
	struct rig rig;
	NDK_PD *pd;

	rig_queues(&rig);
	connection();
	pd = rig.pd;
	rig.pd = rig_create_pd(&rig);
	cr_assert_eq(create_address(&rig, &remote, 0, &address), STATUS_SUCCESS);
	cr_assert_eq(NdkClosePd(rig.pd, on_closed, &domain), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(domain.calls, 0);
	cr_assert_eq(OrielCloseAddress(address, on_closed, &closed), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(closed.calls, 1);
	cr_expect_eq(domain.calls, 1);
	rig.pd = pd;
	rig_close(&rig);
}

/* --- datagrams ------------------------------------------------------------------------------ */

Test(datagram, entry)
{
	ORIEL_DATAGRAM to = { .RemoteQpNumber = 0x345, .QKey = ORIEL_QKEY_OWN };
	const struct shm_sqe *sqe;
	struct rig rig;
	NDK_QP *qp = ready(&rig, &to.Address);
	uint32_t handle = rig.fake.last_handle;

	cr_assert_eq(OrielSendDatagram(qp, (PVOID)9, &rig.sge, 1,
				       NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, &to),
		     STATUS_SUCCESS);
	cr_expect(fake_rung(&rig.fake, 1, DOORBELL_2ND));
	sqe = fake_sqe(rig.fake.qp[1], 0);
	cr_expect_eq(sqe->opcode, SHM_WR_SEND);
	cr_expect_eq(sqe->flags, SHM_FLAG_SOLICIT);
	cr_expect_eq(sqe->request_context, 9);
	cr_expect_eq(sqe->token, 0x345);
	cr_expect_eq(sqe->mr, ORIEL_QKEY_OWN);
	cr_expect_eq(sqe->mw, handle);
	cr_expect_eq(sqe->nsge, 1);
	to.Flags = ORIEL_DATAGRAM_IMMEDIATE;
	to.Immediate = 0x01020304;
	cr_assert_eq(OrielSendDatagram(qp, NULL, &rig.sge, 1, NDK_OP_FLAG_INLINE, &to),
		     STATUS_SUCCESS);
	sqe = fake_sqe(rig.fake.qp[1], 1);
	cr_expect_eq(sqe->opcode, SHM_WR_SEND_IMMEDIATE);
	cr_expect_eq(sqe->immediate, 0x01020304);
	cr_expect_eq(sqe->inline_length, 64);
	rig_close(&rig);
}

/* UD is one packet: longer than the path MTU is refused inline. */
Test(datagram, length)
{
	ORIEL_DATAGRAM to = { .RemoteQpNumber = 0x345 };
	struct rig rig;
	NDK_QP *qp = ready(&rig, &to.Address);
	NDK_SGE sgl[2] = { rig.sge, rig.sge };

	sgl[0].Length = 256;
	sgl[1].Length = 257;
	cr_expect_eq(OrielSendDatagram(qp, NULL, sgl, 2, 0, &to), STATUS_INVALID_BUFFER_SIZE);
	sgl[1].Length = 256;
	cr_expect_eq(OrielSendDatagram(qp, NULL, sgl, 2, 0, &to), STATUS_SUCCESS);
	sgl[0].Length = 65;
	cr_expect_eq(OrielSendDatagram(qp, NULL, sgl, 1, NDK_OP_FLAG_INLINE, &to),
		     STATUS_INVALID_BUFFER_SIZE);
	rig_close(&rig);
}

/* Nor longer than what the port carries by which it leaves. */
Test(datagram, length_of_its_address)
{
	ORIEL_DATAGRAM to = { .RemoteQpNumber = 0x345 };
	struct rig rig;
	NDK_QP *qp = ready(&rig, &to.Address);
	NDK_SGE sgl[2] = { rig.sge, rig.sge };

	rig.fake.address_mtu = 256;
	cr_assert_eq(create_address(&rig, &remote, 0, &to.Address), STATUS_SUCCESS);
	sgl[0].Length = 256;
	sgl[1].Length = 0;
	cr_expect_eq(OrielSendDatagram(qp, NULL, sgl, 2, 0, &to), STATUS_SUCCESS);
	sgl[1].Length = 1;
	cr_expect_eq(OrielSendDatagram(qp, NULL, sgl, 2, 0, &to), STATUS_INVALID_BUFFER_SIZE);
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 2, 0, &to), STATUS_INVALID_PARAMETER);
	rig_close(&rig);
}

/* NDK_OP_FLAG_DEFER: what is refused hands over what was deferred before it. */
Test(datagram, refused_hands_over_what_was_deferred)
{
	ORIEL_DATAGRAM to = { .RemoteQpNumber = 0x345 };
	struct rig rig;
	NDK_QP *qp = ready(&rig, &to.Address);

	cr_assert_eq(OrielSendDatagram(qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER, &to), STATUS_SUCCESS);
	cr_assert_not(fake_rung(&rig.fake, 1, DOORBELL_2ND));
	to.RemoteQpNumber = 0;
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER, &to),
		     STATUS_INVALID_PARAMETER);
	cr_expect(fake_rung(&rig.fake, 1, DOORBELL_2ND));
	cr_expect_eq(rig.fake.qp[1]->send.tail, 1);
	rig_close(&rig);
}

Test(datagram, what_cannot_be)
{
	ORIEL_DATAGRAM good = { .RemoteQpNumber = 0x345 }, bad;
	struct rig rig;
	NDK_QP *qp = ready(&rig, &good.Address);
	NDK_PD *pd = rig.pd;

	bad = good;
	bad.RemoteQpNumber = 0xffffff;
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, 0, &bad), STATUS_NOT_SUPPORTED);
	bad.RemoteQpNumber = 1;
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, 0, &bad), STATUS_INVALID_PARAMETER);
	bad.RemoteQpNumber = 0x1000000;
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, 0, &bad), STATUS_INVALID_PARAMETER);
	bad = good;
	bad.Flags = 2;
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, 0, &bad), STATUS_INVALID_PARAMETER);
	bad = good;
	bad.Address = NULL;
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, 0, &bad), STATUS_INVALID_PARAMETER);
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, 0, NULL), STATUS_INVALID_PARAMETER);
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, NDK_OP_FLAG_ALLOW_REMOTE_READ, &good),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(NdkSend(qp, NULL, NULL, 0, 0), STATUS_INVALID_DEVICE_REQUEST);
	rig.pd = rig_create_pd(&rig);
	cr_assert_eq(create_address(&rig, &remote, 0, &bad.Address), STATUS_SUCCESS);
	cr_expect_eq(OrielSendDatagram(qp, NULL, NULL, 0, 0, &bad), STATUS_INVALID_PARAMETER_MIX);
	rig.pd = pd;
	rig_close(&rig);
}

/* --- results -------------------------------------------------------------------------------- */

Test(oriel_results, sender_immediate_and_header)
{
	const struct shm_cqe cqe = { .type = OrielOperationTypeReceiveImmediate,
				     .request_context = 4,
				     .bytes = 140,
				     .output = 0x01020304,
				     .qpn = 0x101,
				     .source_qpn = 0x99,
				     .flags = SHM_CQE_GRH };
	ORIEL_RESULT entry;
	struct rig rig;

	rig_queues(&rig);
	fake_complete(&rig.fake, 0, 1, &cqe);
	cr_assert_eq(OrielGetCqResults(rig.cq, &entry, 1), 1);
	cr_expect_eq(entry.Flags, ORIEL_RESULT_IMMEDIATE | ORIEL_RESULT_GRH);
	cr_expect_eq(entry.Immediate, 0x01020304);
	cr_expect_eq(entry.QpNumber, 0x101);
	cr_expect_eq(entry.SourceQpNumber, 0x99);
	cr_expect_eq(entry.Ndk.BytesTransferred, 140);
	cr_expect_eq(entry.Ndk.RequestContext, (PVOID)4);
	cr_expect_eq(entry.Ndk.TypeSpecificCompletionOutput, 0x01020304);
	rig_close(&rig);
}

/* A token that a peer has ended is no immediate, and a failed receive has none. */
Test(oriel_results, no_immediate_where_there_is_none)
{
	struct shm_cqe cqe = { .type = NdkOperationTypeReceiveAndInvalidate, .output = 0x55 };
	ORIEL_RESULT entry;
	struct rig rig;

	rig_queues(&rig);
	fake_complete(&rig.fake, 0, 0, &cqe);
	cr_assert_eq(OrielGetCqResults(rig.cq, &entry, 1), 1);
	cr_expect_eq(entry.Flags, 0);
	cr_expect_eq(entry.Immediate, 0);
	cr_expect_eq(entry.SourceQpNumber, 0);
	cr_expect_eq(entry.Ndk.TypeSpecificCompletionOutput, 0x55);
	cqe.type = OrielOperationTypeReceiveImmediate;
	cqe.status = STATUS_CANCELLED;
	fake_complete(&rig.fake, 0, 0, &cqe);
	cr_assert_eq(OrielGetCqResults(rig.cq, &entry, 1), 1);
	cr_expect_eq(entry.Flags, 0);
	rig_close(&rig);
}
