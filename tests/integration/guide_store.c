/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store of values behind windows, and its client, written from doc/ndk.md alone: deferred binds,
 * windows ended by either side, a loop on the event descriptor, an end that both sides take part
 * in.
 *
 * To put a value the client asks for a window, writes, and ends the window with the message that
 * says so. To get four it asks for four windows, reads, and says that it is done; the store ends
 * them.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ndk/ndk.h>

#define PORT       7500
#define KEYS       8u
#define VALUE_SIZE 4096u
#define MESSAGES   8u /* receives of each side */
#define PEERS      4u
#define WINDOWS    4u /* of a peer, and values of one request */
#define ROUNDS     2

enum verb { PUT = 1, COMMIT, GET, DONE, GRANT };

struct message {
	uint32_t verb, count;
	uint32_t keys[WINDOWS];
	struct {
		uint64_t address;
		uint32_t token, length;
	} grants[WINDOWS];
};

struct peer {
	int used, connected, closing;
	NDK_CONNECTOR *connector;
	NDK_QP *qp;
	NDK_MW *mw[WINDOWS];
	int bound[WINDOWS];
	int objects; /* closes to come */
	int binds, invalidates, remote;
};

static NDK_ADAPTER *adapter;
static NDK_PD *pd;
static NDK_CQ *cq;
static NDK_MR *mr, *value_mr;
static MDL *memory, *values;
static struct peer peers[PEERS];
static int waiting, served, wanted;
static NTSTATUS last;
static NDK_OBJECT_HEADER *made;
static int event_fd;

static void die(const char *what, NTSTATUS status)
{
	fprintf(stderr, "%s: %s (%s)\n", what, OrielStatusName(status), OrielOpenErrorText());
	exit(1);
}

static void done(PVOID context, NTSTATUS status)
{
	(void)context;
	waiting = 0;
	last = status;
}

static void created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	done(context, status);
	made = object;
}

static void on_event(PVOID context, ORIEL_EVENT event, NDK_OBJECT_HEADER *object, ULONG reason)
{
	(void)context;
	(void)object;
	(void)reason;
	if (event != OrielEventDeviceRemoved)
		return;
	fprintf(stderr, "the daemon is gone\n");
	exit(1);
}

static void turn(void)
{
	struct pollfd poller = { .fd = event_fd, .events = POLLIN };

	if (OrielProgress(adapter) == 0)
		poll(&poller, 1, -1);
}

static void *wait_for(const char *what, NTSTATUS status)
{
	if (status == STATUS_PENDING)
		for (waiting = 1; waiting;)
			turn();
	else
		last = status;
	if (!NT_SUCCESS(last))
		die(what, last);
	return made;
}

static struct message *message_at(struct peer *peer, unsigned int slot)
{
	return (struct message *)((char *)memory->StartVa) + (peer - peers) * MESSAGES + slot;
}

static void post_receive(struct peer *peer, unsigned int slot)
{
	NDK_SGE sge = { .VirtualAddress = message_at(peer, slot),
			.Length = sizeof(struct message),
			.MemoryRegionToken = NdkGetLocalTokenFromMr(mr) };
	NTSTATUS status = NdkReceive(peer->qp, (PVOID)(uintptr_t)(slot + 1), &sge, 1);

	if (!NT_SUCCESS(status))
		die("receive", status);
}

static void say(struct peer *peer, struct message *message, ULONG flags)
{
	NDK_SGE sge = { .VirtualAddress = message, .Length = sizeof(*message) };
	NTSTATUS status = NdkSend(peer->qp, NULL, &sge, 1, NDK_OP_FLAG_INLINE | flags);

	if (!NT_SUCCESS(status))
		die("send", status);
}

/* What a completed request means to this side. */
static void (*use_result)(struct peer *peer, const NDK_RESULT_EX *result);

static void on_results(PVOID context, NTSTATUS status)
{
	NDK_RESULT_EX results[8];
	ULONG count;

	(void)context;
	if (!NT_SUCCESS(status))
		die("cq", status);
	while ((count = NdkGetCqResultsEx(cq, results, 8)))
		for (ULONG i = 0; i < count; i++) {
			if (results[i].Status == STATUS_CANCELLED)
				continue;
			if (!NT_SUCCESS(results[i].Status))
				die("request", results[i].Status);
			use_result(results[i].QPContext, &results[i]);
		}
	NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
}

/* --- store ------------------------------------------------------------------------------- */

static void *value_of(uint32_t key)
{
	return (char *)values->StartVa + (size_t)key * VALUE_SIZE;
}

static void grant(struct peer *peer, const struct message *request, ULONG right)
{
	struct message answer = { .verb = GRANT, .count = request->count };

	for (uint32_t i = 0; i < request->count && i < WINDOWS; i++) {
		void *value = value_of(request->keys[i] % KEYS);
		NTSTATUS status;

		status = NdkBind(peer->qp, NULL, value_mr, peer->mw[i], value, VALUE_SIZE,
				 right | NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER |
					 ORIEL_OP_FLAG_TIE_TO_QP);
		if (!NT_SUCCESS(status))
			die("bind", status);
		peer->bound[i] = 1;
		peer->binds++;
		answer.grants[i].address = (uintptr_t)value;
		answer.grants[i].token = NdkGetRemoteTokenFromMw(peer->mw[i]);
		answer.grants[i].length = VALUE_SIZE;
	}
	say(peer, &answer, NDK_OP_FLAG_SILENT_SUCCESS);
}

static void revoke(struct peer *peer)
{
	for (unsigned int i = 0; i < WINDOWS; i++) {
		NTSTATUS status;

		if (!peer->bound[i])
			continue;
		status = NdkInvalidate(peer->qp, NULL, &peer->mw[i]->Header,
				       NDK_OP_FLAG_SILENT_SUCCESS);
		if (!NT_SUCCESS(status))
			die("invalidate", status);
		peer->bound[i] = 0;
		peer->invalidates++;
	}
}

static void serve(struct peer *peer, const NDK_RESULT_EX *result)
{
	struct message *message;
	unsigned int slot;

	if (!(result->Type & NdkOperationTypeReceive))
		return;
	slot = (unsigned int)(uintptr_t)result->RequestContext - 1;
	message = message_at(peer, slot);
	if (result->Type == NdkOperationTypeReceiveAndInvalidate) {
		peer->bound[0] = 0;
		peer->remote++;
		if (NdkGetRemoteTokenFromMw(peer->mw[0]))
			fprintf(stderr, "the window still has a token\n");
	}
	switch (message->verb) {
	case PUT: grant(peer, message, NDK_OP_FLAG_ALLOW_REMOTE_WRITE); break;
	case GET: grant(peer, message, NDK_OP_FLAG_ALLOW_REMOTE_READ); break;
	case DONE:
		revoke(peer);
		/* fall through */
	case COMMIT:
		say(peer, &(struct message){ .verb = message->verb }, NDK_OP_FLAG_SILENT_SUCCESS);
	}
	post_receive(peer, slot);
}

static void on_closed(PVOID context)
{
	struct peer *peer = context;

	if (--peer->objects)
		return;
	printf("peer gone: %d binds, %d invalidates, %d by the peer\n", peer->binds,
	       peer->invalidates, peer->remote);
	fflush(stdout);
	memset(peer, 0, sizeof(*peer));
	served++;
}

static void peer_close(struct peer *peer)
{
	peer->objects = 2 + WINDOWS;
	NdkCloseConnector(peer->connector, on_closed, peer);
	NdkCloseQp(peer->qp, on_closed, peer);
	for (unsigned int i = 0; i < WINDOWS; i++)
		NdkCloseMw(peer->mw[i], on_closed, peer);
}

static void on_disconnected(PVOID context, NTSTATUS status)
{
	printf("disconnected: %s\n", OrielStatusName(status));
	peer_close(context);
}

static void on_disconnect(PVOID context)
{
	struct peer *peer = context;
	NTSTATUS status = NdkDisconnect(peer->connector, on_disconnected, peer);

	if (status != STATUS_PENDING)
		on_disconnected(peer, status);
}

static void on_accepted(PVOID context, NTSTATUS status)
{
	struct peer *peer = context;

	if (NT_SUCCESS(status))
		peer->connected = 1;
	else
		peer_close(peer);
}

static void on_object(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct peer *peer = context;

	if (!NT_SUCCESS(status))
		die("object of a peer", status);
	if (object->ObjectType == NdkObjectTypeQp)
		peer->qp = (NDK_QP *)object;
	for (unsigned int i = 0; i < WINDOWS && object->ObjectType == NdkObjectTypeMw; i++)
		if (!peer->mw[i]) {
			peer->mw[i] = (NDK_MW *)object;
			break;
		}
	if (--peer->objects)
		return;
	for (unsigned int i = 0; i < MESSAGES; i++)
		post_receive(peer, i);
	status = NdkAccept(peer->connector, peer->qp, 4, 4, NULL, 0, on_disconnect, peer,
			   on_accepted, peer);
	if (status != STATUS_PENDING)
		on_accepted(peer, status);
}

static void nothing(PVOID context)
{
	(void)context;
}

static void on_connect(PVOID context, NDK_CONNECTOR *connector)
{
	struct peer *peer = NULL;

	(void)context;
	for (unsigned int i = 0; i < PEERS && !peer; i++)
		if (!peers[i].used)
			peer = &peers[i];
	if (!peer) {
		NdkCloseConnector(connector, nothing, NULL);
		return;
	}
	peer->used = 1;
	peer->connector = connector;
	peer->objects = 1 + WINDOWS;
	NdkCreateQp(pd, cq, cq, peer, MESSAGES, 32, 1, 1, sizeof(struct message), on_object, peer,
		    NULL);
	for (unsigned int i = 0; i < WINDOWS; i++)
		NdkCreateMw(pd, on_object, peer, NULL);
}

static void store(struct sockaddr_in *here)
{
	NDK_LISTENER *listener;

	listener = wait_for("listener",
			    NdkCreateListener(adapter, on_connect, NULL, created, NULL, NULL));
	here->sin_port = htons(PORT);
	wait_for("listen", NdkListen(listener, (PSOCKADDR)here, sizeof(*here), done, NULL));
	NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
	printf("listening\n");
	fflush(stdout);
	while (served < wanted)
		turn();
}

/* --- client ------------------------------------------------------------------------------- */

static struct peer *home;
static struct message answer;
static int answers, finished;

static void hear(struct peer *peer, const NDK_RESULT_EX *result)
{
	unsigned int slot = (unsigned int)(uintptr_t)result->RequestContext - 1;

	if (!(result->Type & NdkOperationTypeReceive)) {
		finished++;
		return;
	}
	answer = *message_at(peer, slot);
	answers++;
	post_receive(peer, slot);
}

static void ask(struct message *message)
{
	int before = answers;

	say(home, message, NDK_OP_FLAG_SILENT_SUCCESS);
	while (answers == before)
		turn();
}

static void move(uint32_t i, int reading)
{
	NDK_SGE sge = { .VirtualAddress = value_of(i),
			.Length = VALUE_SIZE,
			.MemoryRegionToken = NdkGetLocalTokenFromMr(value_mr) };
	int before = finished;
	NTSTATUS status;

	status = reading ? NdkRead(home->qp, NULL, &sge, 1, answer.grants[i].address,
				   answer.grants[i].token, 0)
			 : NdkWrite(home->qp, NULL, &sge, 1, answer.grants[i].address,
				    answer.grants[i].token, 0);
	if (!NT_SUCCESS(status))
		die(reading ? "read" : "write", status);
	while (finished == before)
		turn();
}

static void put(uint32_t key)
{
	struct message message = { .verb = PUT, .count = 1, .keys = { key } };
	NDK_SGE sge = { .VirtualAddress = &message, .Length = sizeof(message) };
	NTSTATUS status;
	int before;

	ask(&message);
	memset(value_of(0), 'a' + (int)key, VALUE_SIZE);
	move(0, 0);
	message.verb = COMMIT;
	before = answers;
	status = NdkSendAndInvalidate(home->qp, NULL, &sge, 1,
				      NDK_OP_FLAG_INLINE | NDK_OP_FLAG_SILENT_SUCCESS,
				      answer.grants[0].token);
	if (!NT_SUCCESS(status))
		die("send and invalidate", status);
	while (answers == before)
		turn();
}

static int get(uint32_t first)
{
	struct message message = { .verb = GET,
				   .count = WINDOWS,
				   .keys = { first, first + 1, first + 2, first + 3 } };
	int wrong = 0;

	ask(&message);
	for (uint32_t i = 0; i < WINDOWS; i++)
		move(i, 1);
	for (uint32_t i = 0; i < WINDOWS; i++)
		for (unsigned int b = 0; b < VALUE_SIZE; b++)
			wrong += ((char *)value_of(i))[b] != (char)('a' + first + i);
	message = (struct message){ .verb = DONE };
	ask(&message);
	return wrong;
}

static void on_store_gone(PVOID context)
{
	(void)context;
	fprintf(stderr, "the store is gone\n");
	exit(1);
}

static void client(struct sockaddr_in *from, struct sockaddr_in *to, int rounds)
{
	int wrong = 0;

	home = &peers[0];
	home->qp = wait_for("qp", NdkCreateQp(pd, cq, cq, home, MESSAGES, 32, 1, 1,
					      sizeof(struct message), created, NULL, NULL));
	home->connector = wait_for("connector", NdkCreateConnector(adapter, created, NULL, NULL));
	for (unsigned int i = 0; i < MESSAGES; i++)
		post_receive(home, i);
	to->sin_port = htons(PORT);
	wait_for("connect", NdkConnect(home->connector, home->qp, (PSOCKADDR)from, sizeof(*from),
				       (PSOCKADDR)to, sizeof(*to), 4, 4, NULL, 0, done, NULL));
	wait_for("complete", NdkCompleteConnect(home->connector, on_store_gone, NULL, done, NULL));
	NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
	printf("connected\n");
	fflush(stdout);
	for (int round = 0; round < rounds; round++) {
		for (uint32_t key = 0; key < KEYS; key++)
			put(key);
		for (uint32_t key = 0; key < KEYS; key += WINDOWS)
			wrong += get(key);
	}
	wait_for("disconnect", NdkDisconnect(home->connector, done, NULL));
	printf("%d bytes wrong\n", wrong);
	if (wrong)
		exit(1);
}

/* store ADDRESS CLIENTS | client ADDRESS STORE [ROUNDS] */
int main(int argc, char **argv)
{
	struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
	int serving = argc > 3 && !strcmp(argv[1], "store");
	NTSTATUS status;

	if (argc < 4 || !inet_aton(argv[2], &from.sin_addr) ||
	    (!serving && !inet_aton(argv[3], &to.sin_addr)))
		return 2;
	use_result = serving ? serve : hear;
	status = OrielOpenAdapter(NULL, &adapter);
	if (!NT_SUCCESS(status))
		die("open", status);
	OrielSetEventHandler(adapter, on_event, NULL);
	event_fd = OrielGetEventFd(adapter);
	pd = wait_for("pd", NdkCreatePd(adapter, created, NULL, NULL));
	cq = wait_for("cq",
		      NdkCreateCq(adapter, 1024, on_results, NULL, NULL, created, NULL, NULL));
	if (!NT_SUCCESS(status = OrielAllocateMemory(PEERS * MESSAGES * sizeof(struct message), 0,
						     &memory)) ||
	    !NT_SUCCESS(status = OrielAllocateMemory(KEYS * VALUE_SIZE, 0, &values)))
		die("memory", status);
	mr = wait_for("mr", NdkCreateMr(pd, FALSE, created, NULL, NULL));
	wait_for("register", NdkRegisterMr(mr, memory, memory->ByteCount,
					   NDK_MR_FLAG_ALLOW_LOCAL_WRITE, done, NULL));
	value_mr = wait_for("mr", NdkCreateMr(pd, FALSE, created, NULL, NULL));
	wait_for("register", NdkRegisterMr(value_mr, values, values->ByteCount,
					   NDK_MR_FLAG_ALLOW_LOCAL_WRITE, done, NULL));
	if (serving) {
		wanted = atoi(argv[3]);
		store(&from);
	} else {
		client(&from, &to, argc > 4 ? atoi(argv[4]) : ROUNDS);
	}
	OrielCloseAdapter(adapter);
	OrielFreeMemory(memory);
	OrielFreeMemory(values);
	return 0;
}
