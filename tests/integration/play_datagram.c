/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with datagrams: addresses, what arrives with them, what is refused, ends. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "common/sync.h"
#include "play.h"

#define MTU  1024u
#define QKEY 0x11223344u
#define ROOM (ORIEL_GRH_SIZE + MTU)

/* One side: a queue pair for datagrams and the way to the other. */
struct speaker {
	struct end *end;
	NDK_QP *qp;
	ORIEL_ADDRESS *to;
	ULONG number;
};

struct talk {
	struct speaker a, b;
};

/* --- set-up ------------------------------------------------------------------------------- */

static NTSTATUS create_address(struct end *from, const struct sockaddr_storage *local,
			       const struct sockaddr_storage *remote, ORIEL_ADDRESS **address)
{
	const ORIEL_ADDRESS_PARAMETERS parameters = { .Size = sizeof(parameters),
						      .TrafficClass = 0x28,
						      .HopLimit = 17,
						      .LocalAddress = (PSOCKADDR)local,
						      .RemoteAddress = (PSOCKADDR)remote };
	struct sync sync = sync_begin(from->adapter);
	NTSTATUS status = sync_end(
		&sync, OrielCreateAddress(from->pd, &parameters, sync_created, &sync, NULL));

	*address = (ORIEL_ADDRESS *)sync.object;
	return status;
}

static void make_ready(struct speaker *speaker, ULONG mtu)
{
	const ORIEL_QP_CONNECTION connection = {
		.Size = sizeof(connection),
		.SendPsn = 0xfffffe,
		.PathMtu = mtu,
		.QKey = QKEY,
		.LocalAddress = (PSOCKADDR)&speaker->end->address,
	};

	SUCCEEDS(connect_qp(speaker->end, speaker->qp, &connection));
	speaker->number = OrielGetQpNumber(speaker->qp);
}

static void meet(struct talk *talk, struct end *a, struct end *b, NDK_SRQ *srq)
{
	*talk = (struct talk){ .a.end = a, .b.end = b };
	talk->a.qp = create_qp_of_type(a, OrielQpTypeUd, NULL, &talk->a);
	talk->b.qp = create_qp_of_type(b, OrielQpTypeUd, srq, &talk->b);
	make_ready(&talk->a, MTU);
	make_ready(&talk->b, MTU);
	SUCCEEDS(create_address(a, &a->address, &b->address, &talk->a.to));
	SUCCEEDS(create_address(b, &b->address, &a->address, &talk->b.to));
	DEMAND(talk->a.to->Header.ObjectType == OrielObjectTypeAddress, "its type");
}

/* --- sending and receiving ------------------------------------------------------------------ */

static NTSTATUS say(struct speaker *from, ULONG number, ULONG length, ULONG flags, UINT32 qkey,
		    const UINT32 *immediate)
{
	NDK_SGE sge = sge_at(from->end, 0, length);
	ORIEL_DATAGRAM datagram = { .Address = from->to, .RemoteQpNumber = number, .QKey = qkey };

	if (immediate) {
		datagram.Flags = ORIEL_DATAGRAM_IMMEDIATE;
		datagram.Immediate = *immediate;
	}
	return OrielSendDatagram(from->qp, NULL, &sge, 1, flags, &datagram);
}

static void await(struct speaker *to, uintptr_t context, ULONG room)
{
	NDK_SGE sge = sge_at(to->end, MEMORY / 2 + context * 2 * ROOM, room);

	SUCCEEDS(NdkReceive(to->qp, (PVOID)context, &sge, 1));
}

static ORIEL_RESULT heard(struct speaker *to)
{
	ORIEL_RESULT entry;

	for (unsigned int waited = 0; OrielGetCqResults(to->end->cq, &entry, 1) == 0; waited++) {
		DEMAND(waited < PATIENCE, "nothing is heard at %s", to->end->name);
		OrielProgress(to->end->adapter);
		usleep(1000);
	}
	SUCCEEDS(entry.Ndk.Status);
	return entry;
}

/* Annex A17: the IPv6 header, or 20 bytes of nothing and the IPv4 header. */
static void check_header(const struct speaker *from, const struct speaker *to, const uint8_t *grh)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&from->end->address;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&from->end->address;
	const struct sockaddr_in *own = (const struct sockaddr_in *)&to->end->address;

	if (from->end->address.ss_family == AF_INET6) {
		DEMAND(grh[0] >> 4 == 6 && grh[7] == 17, "%02x, hop limit %u", grh[0], grh[7]);
		DEMAND(!memcmp(grh + 8, &v6->sin6_addr, 16), "its source");
		return;
	}
	DEMAND(grh[20] == 0x45 && grh[28] == 17 && grh[29] == 17, "%02x, TTL %u, protocol %u",
	       grh[20], grh[28], grh[29]);
	DEMAND((grh[21] & 0xfc) == 0x28, "traffic class %02x", grh[21]);
	DEMAND(!memcmp(grh + 32, &v4->sin_addr, 4), "its source");
	DEMAND(!memcmp(grh + 36, &own->sin_addr, 4), "its destination");
}

static void check_heard(const struct speaker *from, const struct speaker *to,
			const ORIEL_RESULT *entry, uintptr_t context, ULONG length,
			const UINT32 *immediate)
{
	const uint8_t *bytes = to->end->bytes + MEMORY / 2 + context * 2 * ROOM;

	DEMAND(entry->Ndk.RequestContext == (PVOID)context, "receive %p",
	       entry->Ndk.RequestContext);
	DEMAND(entry->Ndk.QPContext == to, "queue pair %p", entry->Ndk.QPContext);
	DEMAND(entry->Ndk.BytesTransferred == ORIEL_GRH_SIZE + length, "%u bytes of %u",
	       entry->Ndk.BytesTransferred, length);
	DEMAND(entry->QpNumber == to->number, "number %x", entry->QpNumber);
	DEMAND(entry->SourceQpNumber == from->number, "from %x", entry->SourceQpNumber);
	DEMAND(entry->Flags == (ORIEL_RESULT_GRH | (immediate ? ORIEL_RESULT_IMMEDIATE : 0u)),
	       "flags %x", entry->Flags);
	DEMAND(entry->Immediate == (immediate ? *immediate : 0), "immediate %x", entry->Immediate);
	DEMAND(entry->Ndk.Type ==
		       (immediate ? OrielOperationTypeReceiveImmediate : NdkOperationTypeReceive),
	       "type %x", (unsigned int)entry->Ndk.Type);
	check_header(from, to, bytes);
	DEMAND(!memcmp(bytes + ORIEL_GRH_SIZE, from->end->bytes, length), "%u bytes differ",
	       length);
}

static void expect_completion(struct speaker *from, NTSTATUS status)
{
	NDK_RESULT_EX entry = result(from->end, status, "a datagram's own completion");

	DEMAND(entry.Type == NdkOperationTypeSend, "type %x", (unsigned int)entry.Type);
}

/* --- scenes --------------------------------------------------------------------------------- */

/* Any length up to the path MTU, with or without an immediate, inline or not, there and back. */
static void exchange(struct end *a, struct end *b)
{
	static const ULONG lengths[] = { 0, 1, 3, 4, 63, 128, 129, 1000, MTU - 1, MTU };
	struct talk talk;

	meet(&talk, a, b, NULL);
	for (unsigned int i = 0; i < 40; i++) {
		struct speaker *from = i & 1 ? &talk.b : &talk.a;
		struct speaker *to = i & 1 ? &talk.a : &talk.b;
		ULONG length = lengths[i / 4];
		UINT32 immediate = htonl(0xabc00000 + i);
		const UINT32 *with = i & 2 ? &immediate : NULL;
		ULONG flags = length <= 128 && i & 4 ? NDK_OP_FLAG_INLINE : 0;
		ORIEL_RESULT entry;

		for (ULONG byte = 0; byte < length; byte++)
			from->end->bytes[byte] = (uint8_t)(byte * 7 + i);
		await(to, i, ROOM);
		SUCCEEDS(say(from, to->number, length, flags, i & 8 ? ORIEL_QKEY_OWN : QKEY, with));
		expect_completion(from, STATUS_SUCCESS);
		entry = heard(to);
		check_heard(from, to, &entry, i, length, with);
	}
}

/* What is dropped where it arrives costs no receive, and nobody fails. */
static void dropped(struct end *a, struct end *b)
{
	struct talk talk;
	ORIEL_RESULT entry;

	meet(&talk, a, b, NULL);
	SUCCEEDS(say(&talk.a, talk.b.number, 100, 0, QKEY, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
	no_result(b, "a datagram that finds no receive");
	await(&talk.b, 1, ORIEL_GRH_SIZE + 99);
	SUCCEEDS(say(&talk.a, talk.b.number, 100, 0, QKEY, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
	no_result(b, "a datagram longer than the receive");
	SUCCEEDS(say(&talk.a, talk.b.number, 99, 0, QKEY + 1, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
	no_result(b, "a datagram with a wrong Q_Key");
	SUCCEEDS(say(&talk.a, talk.b.number ^ 0x5555, 99, 0, QKEY, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
	no_result(b, "a datagram for nobody");
	SUCCEEDS(say(&talk.a, talk.b.number, 99, 0, QKEY, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
	entry = heard(&talk.b);
	check_heard(&talk.a, &talk.b, &entry, 1, 99, NULL);
}

/* What cannot be is refused where it is asked for, and the queue pair goes on. */
static void refused(struct end *a, struct end *b)
{
	struct talk talk;
	ORIEL_RESULT entry;
	NDK_SGE sge;

	meet(&talk, a, b, NULL);
	sge = sge_at(a, 0, 8);
	expect_status(say(&talk.a, talk.b.number, MTU + 1, 0, QKEY, NULL),
		      STATUS_INVALID_BUFFER_SIZE, "longer than the path MTU");
	expect_status(say(&talk.a, talk.b.number, 129, NDK_OP_FLAG_INLINE, QKEY, NULL),
		      STATUS_INVALID_BUFFER_SIZE, "more inline than was agreed");
	expect_status(say(&talk.a, 0xffffff, 8, 0, QKEY, NULL), STATUS_NOT_SUPPORTED, "a group");
	expect_status(say(&talk.a, 0, 8, 0, QKEY, NULL), STATUS_INVALID_PARAMETER, "number 0");
	expect_status(say(&talk.a, 0x1000000, 8, 0, QKEY, NULL), STATUS_INVALID_PARAMETER,
		      "more than 24 bits");
	expect_status(NdkSend(talk.a.qp, NULL, &sge, 1, 0), STATUS_INVALID_DEVICE_REQUEST,
		      "a send to nobody");
	expect_status(NdkRead(talk.a.qp, NULL, &sge, 1, 0, 1, 0), STATUS_INVALID_DEVICE_REQUEST,
		      "a read");
	expect_status(NdkWrite(talk.a.qp, NULL, &sge, 1, 0, 1, 0), STATUS_INVALID_DEVICE_REQUEST,
		      "a write");
	expect_status(OrielFetchAdd(talk.a.qp, NULL, &sge, 0, 1, 1, 0),
		      STATUS_INVALID_DEVICE_REQUEST, "an atomic");
	await(&talk.b, 3, ROOM);
	SUCCEEDS(say(&talk.a, talk.b.number, MTU, 0, QKEY, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
	entry = heard(&talk.b);
	check_heard(&talk.a, &talk.b, &entry, 3, MTU, NULL);
}

/* By another port, which carries less than the one at which the queue pair was made ready. */
static void narrow(struct end *a, struct end *b)
{
	struct sockaddr_storage from, to;
	struct talk talk;
	ORIEL_RESULT entry;

	DEMAND(parse_address("10.66.1.1", &from) && parse_address("10.66.1.2", &to), "addresses");
	meet(&talk, a, b, NULL);
	close_object(a, &talk.a.to->Header);
	SUCCEEDS(create_address(a, &from, &to, &talk.a.to));
	await(&talk.b, 4, ROOM);
	expect_status(say(&talk.a, talk.b.number, 513, 0, QKEY, NULL), STATUS_INVALID_BUFFER_SIZE,
		      "longer than the path MTU there");
	SUCCEEDS(say(&talk.a, talk.b.number, 512, 0, QKEY, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
	entry = heard(&talk.b);
	DEMAND(entry.Ndk.BytesTransferred == ORIEL_GRH_SIZE + 512, "%u bytes",
	       entry.Ndk.BytesTransferred);
}

static void expect_no_address(struct end *end, const char *local, const char *remote,
			      NTSTATUS status)
{
	struct sockaddr_storage from, to;
	ORIEL_ADDRESS *address;

	DEMAND(parse_address(local, &from) && parse_address(remote, &to), "%s", remote);
	expect_status(create_address(end, &from, &to, &address), status, remote);
	DEMAND(!address, "an object came with a failure");
}

static void addresses(struct end *a, struct end *b)
{
	ORIEL_ADDRESS *address[200];

	expect_no_address(a, "10.66.0.1", "239.1.2.3", STATUS_NOT_SUPPORTED);
	expect_no_address(a, "fd66::1", "ff02::1", STATUS_NOT_SUPPORTED);
	expect_no_address(a, "10.66.0.1", "fd66::2", STATUS_INVALID_PARAMETER_MIX);
	expect_no_address(a, "10.66.0.9", "10.66.0.2", STATUS_INVALID_ADDRESS);
	expect_no_address(a, "10.66.0.1", "10.99.0.2", STATUS_NETWORK_UNREACHABLE);
	expect_no_address(a, "10.66.0.1", "10.66.0.77", STATUS_HOST_UNREACHABLE);
	for (unsigned int i = 0; i < 200; i++)
		SUCCEEDS(create_address(a, &a->address, &b->address, &address[i]));
	for (unsigned int i = 0; i < 200; i++)
		close_object(a, &address[i]->Header);
}

/* Many requests at once for one neighbour that never answers: each is told. */
static void nobody(struct end *a, struct end *b)
{
	struct sockaddr_storage to;
	struct sync sync[50];

	(void)b;
	DEMAND(parse_address("10.66.0.78", &to), "address");
	for (unsigned int i = 0; i < 50; i++) {
		const ORIEL_ADDRESS_PARAMETERS parameters = { .Size = sizeof(parameters),
							      .LocalAddress =
								      (PSOCKADDR)&a->address,
							      .RemoteAddress = (PSOCKADDR)&to };

		sync[i] = sync_begin(a->adapter);
		expect_status(OrielCreateAddress(a->pd, &parameters, sync_created, &sync[i], NULL),
			      STATUS_PENDING, "address of a silent neighbour");
	}
	for (unsigned int i = 0; i < 50; i++)
		expect_status(sync_end(&sync[i], STATUS_PENDING), STATUS_HOST_UNREACHABLE,
			      "address of a silent neighbour");
}

/* Datagrams of two senders into receives that two queue pairs share. */
static void shared(struct end *a, struct end *b)
{
	NDK_SRQ *srq = create_srq(b, 16, 0, NULL, NULL);
	struct talk first, second;

	meet(&first, a, b, srq);
	meet(&second, a, b, srq);
	for (uintptr_t i = 0; i < 12; i++) {
		struct talk *talk = i % 3 ? &first : &second;
		NDK_SGE sge = sge_at(b, MEMORY / 2 + i * 2 * ROOM, ROOM);
		ORIEL_RESULT entry;

		a->bytes[0] = (uint8_t)i;
		SUCCEEDS(NdkSrqReceive(srq, (PVOID)i, &sge, 1));
		SUCCEEDS(say(&talk->a, talk->b.number, 77, 0, QKEY, NULL));
		expect_completion(&talk->a, STATUS_SUCCESS);
		entry = heard(&talk->b);
		check_heard(&talk->a, &talk->b, &entry, i, 77, NULL);
	}
}

/* An address that is closed under way: what has not left fails, and its queue pair with it. */
static void closing(struct end *a, struct end *b)
{
	struct talk talk;
	NDK_RESULT_EX entry;

	meet(&talk, a, b, NULL);
	for (unsigned int i = 0; i < QP_DEPTH; i++)
		SUCCEEDS(say(&talk.a, talk.b.number, MTU, 0, QKEY, NULL));
	close_object(a, &talk.a.to->Header);
	for (unsigned int i = 0; i < QP_DEPTH; i++) {
		entry = any_result(a, "a datagram to an address that is closed");
		DEMAND(entry.Status == STATUS_SUCCESS || entry.Status == STATUS_INVALID_HANDLE ||
			       entry.Status == STATUS_CANCELLED,
		       "%s", OrielStatusName(entry.Status));
	}
}

static void closed(PVOID context)
{
	++*(unsigned int *)context;
}

/* A domain, its queue pair and its address: closed in any order, the domain goes last. */
static void orders(struct end *a, struct end *b)
{
	static const uint8_t order[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					     { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

	for (unsigned int o = 0; o < 6; o++) {
		struct end other = *a;
		struct sync sync = sync_begin(a->adapter);
		unsigned int domain = 0, gone = 0;
		bool all = false;
		ORIEL_ADDRESS *address;
		NDK_QP *qp;

		SUCCEEDS(sync_end(&sync, NdkCreatePd(a->adapter, sync_created, &sync, NULL)));
		other.pd = (NDK_PD *)sync.object;
		qp = create_qp_of_type(&other, OrielQpTypeUd, NULL, NULL);
		SUCCEEDS(create_address(&other, &a->address, &b->address, &address));
		for (unsigned int i = 0; i < 3; i++) {
			if (order[o][i] == 0)
				NdkClosePd(other.pd, closed, &domain);
			else if (order[o][i] == 1)
				NdkCloseQp(qp, closed, &gone);
			else
				OrielCloseAddress(address, closed, &gone);
		}
		for (unsigned int tries = 0; tries < PATIENCE && !all; tries++) {
			OrielProgress(a->adapter);
			DEMAND(!domain || gone == 2, "order %u: the domain went before %u", o,
			       2 - gone);
			all = domain && gone == 2;
			usleep(1000);
		}
		DEMAND(all, "order %u: %u are gone", o, domain + gone);
	}
}

/* Values of OrielConnectQp that cannot be, and the path MTU that is in force. */
static void values(struct end *a, struct end *b)
{
	ORIEL_QP_CONNECTION good = { .Size = sizeof(good),
				     .QKey = QKEY,
				     .LocalAddress = (PSOCKADDR)&a->address };
	ORIEL_QP_CONNECTION bad = good;
	struct talk talk = { .a.end = a };

	(void)b;
	talk.a.qp = create_qp_of_type(a, OrielQpTypeUd, NULL, NULL);
	bad.PathMtu = 4096;
	expect_status(connect_qp(a, talk.a.qp, &bad), STATUS_INVALID_PARAMETER,
		      "more than the port's path MTU");
	bad.PathMtu = 1000;
	expect_status(OrielConnectQp(talk.a.qp, &bad, NULL, NULL), STATUS_INVALID_PARAMETER,
		      "no power of two");
	bad = good;
	bad.QKey |= ORIEL_QKEY_OWN;
	expect_status(OrielConnectQp(talk.a.qp, &bad, NULL, NULL), STATUS_INVALID_PARAMETER,
		      "a privileged Q_Key");
	expect_status(say(&talk.a, 5, 1, 0, QKEY, NULL), STATUS_INVALID_PARAMETER, "no address");
	SUCCEEDS(create_address(a, &a->address, &b->address, &talk.a.to));
	expect_status(say(&talk.a, 5, 1, 0, QKEY, NULL), STATUS_CONNECTION_INVALID, "not ready");
	SUCCEEDS(connect_qp(a, talk.a.qp, &good));
	expect_status(connect_qp(a, talk.a.qp, &good), STATUS_CONNECTION_ACTIVE, "ready already");
	/* The port's own: 1024 at an Ethernet MTU of 1500. */
	expect_status(say(&talk.a, 5, 1025, 0, QKEY, NULL), STATUS_INVALID_BUFFER_SIZE, "too long");
	SUCCEEDS(say(&talk.a, 5, 1024, 0, QKEY, NULL));
	expect_completion(&talk.a, STATUS_SUCCESS);
}

/* Waits with everything open and datagrams under way until it is killed. */
static void hang(struct end *a, struct end *b)
{
	ORIEL_ADDRESS *address;
	struct talk talk;

	meet(&talk, a, b, create_srq(b, 16, 3, NULL, NULL));
	for (unsigned int i = 0; i < 20; i++)
		SUCCEEDS(create_address(a, &a->address, &b->address, &address));
	for (unsigned int i = 0; i < QP_DEPTH; i++)
		SUCCEEDS(say(&talk.a, talk.b.number, MTU, 0, QKEY, NULL));
	printf("hanging\n");
	for (;;)
		pause();
}

const struct scene datagram_scenes[] = {
	{ "ud-exchange", exchange }, { "ud-dropped", dropped },     { "ud-refused", refused },
	{ "ud-narrow", narrow },     { "ud-addresses", addresses }, { "ud-nobody", nobody },
	{ "ud-shared", shared },     { "ud-closing", closing },     { "ud-orders", orders },
	{ "ud-values", values },     { "ud-hang", hang },           { NULL, NULL },
};
