/* SPDX-License-Identifier: BSD-3-Clause */
/* Written from doc/ndk.md and ndk.h alone: windows used well and badly, statuses as promised. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ndk/ndk.h>

#define PAGE             4096
#define SIZE             (4 * PAGE)
#define PORT             7470
#define LOCAL            NDK_MR_FLAG_ALLOW_LOCAL_WRITE
#define READABLE         NDK_OP_FLAG_ALLOW_REMOTE_READ
#define WRITABLE         NDK_OP_FLAG_ALLOW_REMOTE_WRITE
#define DEADLINE         60 /* seconds for any one thing to happen */
#define EXPECT(is, want) expect(__LINE__, #is, is, want)
#define CHECK(condition) check(__LINE__, #condition, condition)

/* What the peer does with the window that it is granted; one connection for each. */
enum { GOOD, READ_ONLY, WRITE_ONLY, BEHIND, BEFORE, UNBOUND, ENDED_BY_PEER, GONE, ORDER, CASES };

struct grant {
	UINT64 address;
	UINT32 length;
	UINT32 token;
};

static NDK_ADAPTER *adapter;
static MDL *memory;
static NDK_PD *pd;
static NDK_CQ *cq;
static NDK_MR *mr;
static NDK_MW *mw, *spare;
static NDK_QP *qp;
static NDK_CONNECTOR *connector, *asking; /* in use; of the next connect event */
static NDK_LISTENER *listener;
static NTSTATUS last; /* STATUS_PENDING until the callback has run */
static void *made;
static int disconnected, closed, failures, number;
static const char *role;

static void check(int line, const char *what, int good)
{
	if (good)
		return;
	fprintf(stderr, "%s, case %d, line %d: not so: %s\n", role, number, line, what);
	failures++;
}

static void expect(int line, const char *what, NTSTATUS is, NTSTATUS want)
{
	if (is == want)
		return;
	fprintf(stderr, "%s, case %d, line %d: %s: %s, expected %s\n", role, number, line, what,
		OrielStatusName(is), OrielStatusName(want));
	failures++;
}

static void done(PVOID context, NTSTATUS status)
{
	(void)context;
	last = status;
}

static void created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	done(context, status);
	made = object;
}

/* Closes are numbered in the order in which they complete. */
static void gone(PVOID context)
{
	*(int *)context = ++closed;
}

static void on_disconnect(PVOID context)
{
	(void)context;
	disconnected = 1;
}

static void on_connect(PVOID context, NDK_CONNECTOR *incoming)
{
	(void)context;
	asking = incoming; /* maybe while the connection before it is still being closed */
}

static void progress(time_t *deadline, const char *what)
{
	if (!*deadline)
		*deadline = time(NULL) + DEADLINE;
	if (time(NULL) > *deadline) {
		fprintf(stderr, "%s, case %d: no end of %s\n", role, number, what);
		exit(1);
	}
	if (OrielProgress(adapter) || OrielWait(adapter, 10) != STATUS_DEVICE_REMOVED)
		return;
	fprintf(stderr, "%s, case %d: the daemon is gone: no end of %s\n", role, number, what);
	exit(1);
}

static NTSTATUS result(NTSTATUS status)
{
	time_t deadline = 0;

	if (status != STATUS_PENDING)
		return status;
	while (last == STATUS_PENDING)
		progress(&deadline, "a request");
	return last;
}

/* The call is made with "last" set, as its callback may not run before OrielProgress(). */
#define RUN(call) (last = STATUS_PENDING, result(call))

static void *object(NTSTATUS status)
{
	if (!NT_SUCCESS(status) || !made) {
		fprintf(stderr, "%s: create: %s\n", role, OrielStatusName(status));
		exit(1);
	}
	return made;
}

static NDK_RESULT_EX completion(void)
{
	time_t deadline = 0;
	NDK_RESULT_EX entry;

	while (!NdkGetCqResultsEx(cq, &entry, 1))
		progress(&deadline, "a completion");
	return entry;
}

static void wait_flag(const int *flag, const char *what)
{
	time_t deadline = 0;

	while (!*flag)
		progress(&deadline, what);
}

static NDK_SGE piece(ULONG offset, ULONG length)
{
	return (NDK_SGE){ .VirtualAddress = (char *)memory->StartVa + offset,
			  .Length = length,
			  .MemoryRegionToken = NdkGetLocalTokenFromMr(mr) };
}

static void receive(ULONG offset)
{
	NDK_SGE sge = piece(offset, 8);

	EXPECT(NdkReceive(qp, "receive", &sge, 1), STATUS_SUCCESS);
}

static void make_pair(void)
{
	disconnected = 0;
	qp = object(RUN(NdkCreateQp(pd, cq, cq, "qp", 8, 8, 2, 2, 64, created, NULL, NULL)));
	receive(3 * PAGE);
	receive(3 * PAGE + 8);
}

/* Queue pair first, though the connector needs it: it has to wait for the connector. */
static void close_pair(void)
{
	int qp_gone = 0, connector_gone = 0;
	NDK_RESULT_EX entry;

	EXPECT(NdkCloseQp(qp, gone, &qp_gone), STATUS_PENDING);
	EXPECT(NdkCloseConnector(connector, gone, &connector_gone), STATUS_PENDING);
	wait_flag(&qp_gone, "the close of a queue pair");
	CHECK(connector_gone && connector_gone < qp_gone);
	while (NdkGetCqResultsEx(cq, &entry, 1))
		EXPECT(entry.Status, STATUS_CANCELLED);
}

static UINT32 fill(UINT32 seed, unsigned char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
	return seed;
}

/* Everything that NdkBind and NdkInvalidate refuse at once; the window is bound, "spare" is not. */
static void misuse_binds(void)
{
	char *start = memory->StartVa;
	NDK_PD *other = object(RUN(NdkCreatePd(adapter, created, NULL, NULL)));
	NDK_MR *alien = object(RUN(NdkCreateMr(other, FALSE, created, NULL, NULL)));
	NDK_MR *fixed = object(RUN(NdkCreateMr(pd, FALSE, created, NULL, NULL)));
	int ends[3] = { 0 };

	EXPECT(NdkBind(qp, "x", fixed, spare, start, PAGE, READABLE), STATUS_INVALID_PARAMETER);
	EXPECT(RUN(NdkRegisterMr(alien, memory, 0, LOCAL, done, NULL)), STATUS_INVALID_BUFFER_SIZE);
	EXPECT(RUN(NdkRegisterMr(alien, memory, PAGE, 4, done, NULL)), STATUS_INVALID_PARAMETER);
	EXPECT(RUN(NdkRegisterMr(alien, memory, SIZE, LOCAL, done, NULL)), STATUS_SUCCESS);
	EXPECT(RUN(NdkRegisterMr(alien, memory, SIZE, LOCAL, done, NULL)),
	       STATUS_INVALID_DEVICE_STATE);
	EXPECT(RUN(NdkRegisterMr(fixed, memory, SIZE, 0, done, NULL)), STATUS_SUCCESS);
	EXPECT(NdkBind(qp, "x", alien, spare, start, PAGE, READABLE), STATUS_INVALID_PARAMETER);
	EXPECT(NdkBind(qp, "x", fixed, spare, start, PAGE, WRITABLE), STATUS_ACCESS_VIOLATION);
	EXPECT(NdkBind(qp, "x", mr, mw, start, PAGE, READABLE), STATUS_INVALID_DEVICE_STATE);
	EXPECT(NdkBind(qp, "x", mr, spare, start, 0, READABLE), STATUS_INVALID_PARAMETER);
	EXPECT(NdkBind(qp, "x", mr, spare, start + 1, SIZE, READABLE), STATUS_INVALID_PARAMETER);
	EXPECT(NdkBind(qp, "x", mr, spare, start - 1, PAGE, READABLE), STATUS_INVALID_PARAMETER);
	EXPECT(NdkBind(qp, "x", mr, spare, start, PAGE, 0x20), STATUS_INVALID_PARAMETER);
	EXPECT(NdkBind(qp, "x", mr, spare, start, ~(SIZE_T)0, 0), STATUS_INVALID_PARAMETER);
	EXPECT(NdkInvalidate(qp, "x", &spare->Header, 0), STATUS_INVALID_DEVICE_REQUEST);
	EXPECT(NdkInvalidate(qp, "x", &mr->Header, 0), STATUS_INVALID_DEVICE_REQUEST);
	EXPECT(RUN(NdkDeregisterMr(mr, done, NULL)), STATUS_DEVICE_BUSY);
	CHECK(!NdkGetRemoteTokenFromMw(spare) && !NdkGetRemoteTokenFromMr(mr));
	EXPECT(NdkClosePd(other, gone, &ends[0]), STATUS_PENDING);
	EXPECT(NdkCloseMr(alien, gone, &ends[1]), STATUS_PENDING);
	EXPECT(NdkCloseMr(fixed, gone, &ends[2]), STATUS_PENDING);
	wait_flag(&ends[0], "the close of a domain");
	wait_flag(&ends[2], "the close of a region");
	CHECK(ends[1] && ends[1] < ends[0]);
}

/* The peer's next request may end the connection, so it waits for this. */
static void tell(void)
{
	NDK_SGE sge = piece(0, 8);

	EXPECT(NdkSend(qp, "send", &sge, 1, 0), STATUS_SUCCESS);
	EXPECT(completion().Status, STATUS_SUCCESS);
}

static void rebind(UINT32 old)
{
	CHECK(!NdkGetRemoteTokenFromMw(mw));
	EXPECT(NdkBind(qp, "bind", mr, mw, memory->StartVa, PAGE, READABLE), STATUS_SUCCESS);
	EXPECT(completion().Status, STATUS_SUCCESS);
	CHECK(NdkGetRemoteTokenFromMw(mw) && NdkGetRemoteTokenFromMw(mw) != old);
	EXPECT(NdkInvalidate(qp, "invalidate", &mw->Header, 0), STATUS_SUCCESS);
	EXPECT(completion().Status, STATUS_SUCCESS);
}

static void serve_good(void)
{
	unsigned char want[2 * PAGE];
	NDK_RESULT_EX entry = completion();

	CHECK(entry.Type == NdkOperationTypeReceive && entry.BytesTransferred == 8);
	fill(1, want, sizeof(want));
	CHECK(!memcmp((char *)memory->StartVa + PAGE, want, sizeof(want)));
	misuse_binds();
	EXPECT(NdkInvalidate(qp, "invalidate", &mw->Header, 0), STATUS_SUCCESS);
	entry = completion();
	CHECK(entry.Type == NdkOperationTypeInvalidate && entry.Status == STATUS_SUCCESS);
	tell();
}

static void serve(void)
{
	static const ULONG rights[CASES] = { [GOOD] = READABLE | WRITABLE,
					     [READ_ONLY] = READABLE,
					     [WRITE_ONLY] = WRITABLE,
					     [BEHIND] = WRITABLE,
					     [BEFORE] = READABLE };
	ULONG size = sizeof(int), early = ORIEL_OP_FLAG_EARLY | ORIEL_OP_FLAG_TIE_TO_QP;
	struct grant grant = { (uintptr_t)memory->StartVa + PAGE, 2 * PAGE, 0 };
	NDK_RESULT_EX entry = { 0 };
	time_t deadline = 0;
	int bound, ended = 0;

	while (!asking)
		progress(&deadline, "waiting for a peer");
	connector = asking;
	asking = NULL;
	NdkGetConnectionData(connector, NULL, NULL, &number, &size);
	bound = number != UNBOUND;
	make_pair();
	mw = object(RUN(NdkCreateMw(pd, created, NULL, NULL)));
	EXPECT(NdkBind(qp, "early", mr, mw, (void *)(uintptr_t)grant.address, PAGE, READABLE),
	       STATUS_CONNECTION_INVALID);
	if (bound)
		EXPECT(NdkBind(qp, "early", mr, mw, (void *)(uintptr_t)grant.address, grant.length,
			       rights[number] | early),
		       STATUS_SUCCESS);
	grant.token = NdkGetRemoteTokenFromMw(mw);
	CHECK(!grant.token == !bound);
	EXPECT(RUN(NdkAccept(connector, qp, 4, 4, &grant, sizeof(grant), on_disconnect, NULL, done,
			     NULL)),
	       STATUS_SUCCESS);
	if (bound) {
		entry = completion();
		CHECK(entry.Type == NdkOperationTypeBind && entry.Status == STATUS_SUCCESS);
	}
	if (number == GOOD)
		serve_good();
	if (number == ENDED_BY_PEER) {
		entry = completion();
		CHECK(entry.Type == NdkOperationTypeReceiveAndInvalidate);
		CHECK(entry.TypeSpecificCompletionOutput == grant.token);
		rebind(grant.token);
		tell();
	}
	wait_flag(&disconnected, "waiting for the peer's end");
	close_pair();
	EXPECT(NdkCloseMw(mw, gone, &ended), STATUS_PENDING);
	wait_flag(&ended, "the close of a window");
}

/* The first request is refused by the target, the second is behind it. */
static void refused(int is_read, UINT64 address, ULONG length, UINT32 token)
{
	NDK_SGE sge = piece(0, length);

	EXPECT(is_read ? NdkRead(qp, "first", &sge, 1, address, token, 0)
		       : NdkWrite(qp, "first", &sge, 1, address, token, NDK_OP_FLAG_DEFER),
	       STATUS_SUCCESS);
	EXPECT(NdkSend(qp, "second", &sge, 1, 0), STATUS_SUCCESS);
	for (int i = 0, behind = 0; i < 2;) {
		NDK_RESULT_EX entry = completion();

		if (!strcmp(entry.RequestContext, "receive"))
			continue;
		EXPECT(entry.Status, behind ? STATUS_CANCELLED : STATUS_ACCESS_VIOLATION);
		CHECK(!strcmp(entry.RequestContext, behind ? "second" : "first"));
		behind = ++i;
	}
}

static void go_good(const struct grant *grant)
{
	NDK_SGE out[2] = { piece(0, PAGE), piece(PAGE, PAGE) }, in = piece(2 * PAGE, PAGE);
	NDK_SGE three[3] = { in, in, in }, eight = piece(0, 8);

	fill(1, memory->StartVa, 2 * PAGE);
	EXPECT(NdkWrite(qp, "x", three, 3, grant->address, grant->token, 0), STATUS_DATA_OVERRUN);
	EXPECT(NdkSend(qp, "x", out, 1, NDK_OP_FLAG_INLINE), STATUS_INVALID_BUFFER_SIZE);
	EXPECT(NdkSend(qp, "x", out, 1, READABLE), STATUS_INVALID_PARAMETER);
	EXPECT(NdkWrite(qp, "w", out, 2, grant->address, grant->token, 0), STATUS_SUCCESS);
	EXPECT(NdkRead(qp, "r", &in, 1, grant->address + PAGE, grant->token, 0), STATUS_SUCCESS);
	EXPECT(completion().Status, STATUS_SUCCESS);
	EXPECT(completion().Status, STATUS_SUCCESS);
	CHECK(!memcmp(in.VirtualAddress, out[1].VirtualAddress, PAGE));
	EXPECT(NdkSend(qp, "written", &eight, 1, NDK_OP_FLAG_INLINE), STATUS_SUCCESS);
	EXPECT(completion().Status, STATUS_SUCCESS);
	CHECK(completion().Type == NdkOperationTypeReceive); /* the target has invalidated it */
	refused(0, grant->address, PAGE, grant->token);
}

static void go(PSOCKADDR from, PSOCKADDR to)
{
	struct grant grant = { 0 };
	ULONG size = sizeof(grant);
	int cq_gone = 0, pd_gone = 0;
	NTSTATUS status;
	NDK_SGE sge;

	make_pair();
	sge = piece(0, 8);
	EXPECT(NdkSend(qp, "early", &sge, 1, 0), STATUS_CONNECTION_INVALID);
	connector = object(RUN(NdkCreateConnector(adapter, created, NULL, NULL)));
	EXPECT(NdkDisconnect(connector, done, NULL), STATUS_CONNECTION_INVALID);
	status = RUN(NdkConnect(connector, qp, from, sizeof(struct sockaddr_in), to,
				sizeof(struct sockaddr_in), 4, 4, &number, sizeof(number), done,
				NULL));
	if (!NT_SUCCESS(status)) {
		fprintf(stderr, "peer, case %d: connect: %s\n", number, OrielStatusName(status));
		exit(1);
	}
	NdkGetConnectionData(connector, NULL, NULL, &grant, &size);
	EXPECT(RUN(NdkCompleteConnect(connector, on_disconnect, NULL, done, NULL)), STATUS_SUCCESS);
	switch (number) {
	case GOOD: go_good(&grant); break;
	case READ_ONLY: refused(0, grant.address, 8, grant.token); break;
	case WRITE_ONLY: refused(1, grant.address, 8, grant.token); break;
	case BEHIND: refused(0, grant.address + grant.length - 7, 8, grant.token); break;
	case BEFORE: refused(1, grant.address - 1, 8, grant.token); break;
	case UNBOUND:
		CHECK(!grant.token);
		refused(0, grant.address, 8, grant.token);
		break;
	case ENDED_BY_PEER:
		EXPECT(NdkSendAndInvalidate(qp, "end", &sge, 1, 0, grant.token), STATUS_SUCCESS);
		EXPECT(completion().Status, STATUS_SUCCESS);
		CHECK(completion().Type == NdkOperationTypeReceive);
		refused(0, grant.address, 8, grant.token);
		break;
	case GONE:
		EXPECT(RUN(NdkDisconnect(connector, done, NULL)), STATUS_SUCCESS);
		EXPECT(NdkSend(qp, "x", &sge, 1, 0), STATUS_CONNECTION_INVALID);
		EXPECT(NdkWrite(qp, "x", &sge, 1, grant.address, grant.token, 0),
		       STATUS_CONNECTION_INVALID);
		EXPECT(NdkDisconnect(connector, done, NULL), STATUS_CONNECTION_INVALID);
		CHECK(!disconnected);
		break;
	case ORDER: /* What is needed is closed before what needs it. */
		EXPECT(NdkCloseCq(cq, gone, &cq_gone), STATUS_PENDING);
		EXPECT(NdkClosePd(pd, gone, &pd_gone), STATUS_PENDING);
		for (int i = 0; i < 20; i++)
			OrielWait(adapter, 1), OrielProgress(adapter);
		CHECK(!cq_gone && !pd_gone);
		break;
	}
	close_pair();
	if (number != ORDER)
		return;
	EXPECT(NdkCloseMw(spare, NULL, NULL), STATUS_PENDING);
	EXPECT(NdkCloseMr(mr, gone, &disconnected), STATUS_PENDING);
	wait_flag(&cq_gone, "the close of a queue");
	wait_flag(&pd_gone, "the close of a domain");
}

int main(int argc, char **argv) /* "target" OUR-ADDRESS, or "peer" OUR-ADDRESS TARGET */
{
	struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
	int is_target = argc == 3;
	NTSTATUS status;

	if (argc < 3 || argc > 4 || !inet_aton(argv[2], &from.sin_addr) ||
	    !inet_aton(argv[argc - 1], &to.sin_addr))
		return 2;
	role = is_target ? "target" : "peer";
	to.sin_port = htons(PORT);
	status = OrielOpenAdapter(NULL, &adapter);
	if (!NT_SUCCESS(status)) {
		fprintf(stderr, "open: %s: %s\n", OrielStatusName(status), OrielOpenErrorText());
		return 1;
	}
	EXPECT(OrielAllocateMemory(SIZE, 0, &memory), STATUS_SUCCESS);
	pd = object(RUN(NdkCreatePd(adapter, created, NULL, NULL)));
	cq = object(RUN(NdkCreateCq(adapter, 64, NULL, NULL, NULL, created, NULL, NULL)));
	mr = object(RUN(NdkCreateMr(pd, FALSE, created, NULL, NULL)));
	spare = object(RUN(NdkCreateMw(pd, created, NULL, NULL)));
	EXPECT(RUN(NdkRegisterMr(mr, memory, SIZE, LOCAL, done, NULL)), STATUS_SUCCESS);
	if (is_target) {
		listener = object(
			RUN(NdkCreateListener(adapter, on_connect, NULL, created, NULL, NULL)));
		EXPECT(RUN(NdkListen(listener, (PSOCKADDR)&to, sizeof(to), done, NULL)),
		       STATUS_SUCCESS);
		EXPECT(NdkListen(listener, (PSOCKADDR)&to, sizeof(to), done, NULL),
		       STATUS_ADDRESS_ALREADY_ASSOCIATED);
		puts("listening");
		fflush(stdout);
	}
	for (int i = 0; i < CASES; i++) {
		number = i;
		if (is_target)
			serve();
		else
			go((PSOCKADDR)&from, (PSOCKADDR)&to);
	}
	OrielCloseAdapter(adapter);
	OrielFreeMemory(memory);
	printf("%s: %d cases, %d failures\n", role, CASES, failures);
	return failures != 0;
}
