/* SPDX-License-Identifier: BSD-3-Clause */
/* Plays one scene between two daemons: see play.h. */
#include "play.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/sync.h"

static const struct scene *const all_scenes[] = { srq_scenes,       datagram_scenes, uc_scenes,
						  service_scenes,   fast_scenes,     connect_scenes,
						  connector_scenes, mw_scenes,       life_scenes,
						  window_scenes,    qp_scenes,       cq_scenes };

/* --- statuses and completions ------------------------------------------------------------- */

void expect_status(NTSTATUS got, NTSTATUS wanted, const char *what)
{
	if (got == wanted || (wanted == ANY_ERROR && !NT_SUCCESS(got)))
		return;
	fprintf(stderr, "%s: expected %s, got %s\n", what, OrielStatusName(wanted),
		OrielStatusName(got));
	exit(EXIT_FAILURE);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

NDK_RESULT_EX any_result(struct end *end, const char *what)
{
	int64_t deadline = now_ms() + PATIENCE;
	NDK_RESULT_EX entry;

	OrielProgress(end->adapter); /* refills what binds take */
	while (NdkGetCqResultsEx(end->cq, &entry, 1) == 0) {
		DEMAND(now_ms() < deadline, "%s: no completion at %s", what, end->name);
		if (OrielProgress(end->adapter) == 0)
			usleep(20);
	}
	return entry;
}

NDK_RESULT_EX result(struct end *end, NTSTATUS status, const char *what)
{
	NDK_RESULT_EX entry = any_result(end, what);

	expect_status(entry.Status, status, what);
	return entry;
}

void no_result(struct end *end, const char *what)
{
	NDK_RESULT_EX entry;

	for (unsigned int i = 0; i < 50; i++) {
		DEMAND(NdkGetCqResultsEx(end->cq, &entry, 1) == 0, "%s: a completion at %s with %s",
		       what, end->name, OrielStatusName(entry.Status));
		OrielProgress(end->adapter);
		usleep(1000);
	}
}

void caught_up(struct end *end)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreatePd(end->adapter, sync_created, &sync, NULL)));
	close_object(end, sync.object);
}

void until(struct end *a, struct end *b, const bool *condition, const char *what)
{
	int64_t deadline = now_ms() + PATIENCE;

	while (!*condition) {
		DEMAND(now_ms() < deadline, "%s", what);
		if (OrielProgress(a->adapter) + OrielProgress(b->adapter) == 0)
			usleep(20);
	}
}

/* --- objects ------------------------------------------------------------------------------ */

static void *created(struct sync *sync, NTSTATUS status, const char *what)
{
	expect_status(sync_end(sync, status), STATUS_SUCCESS, what);
	return sync->object;
}

NDK_QP *create_qp(struct end *end, PVOID context)
{
	struct sync sync = sync_begin(end->adapter);

	return created(&sync,
		       NdkCreateQp(end->pd, end->cq, end->cq, context, QP_DEPTH, QP_DEPTH, 4, 4,
				   128, sync_created, &sync, NULL),
		       "queue pair");
}

NDK_SRQ *create_srq(struct end *end, ULONG depth, ULONG threshold,
		    NDK_FN_SRQ_NOTIFICATION_CALLBACK notification, PVOID context)
{
	struct sync sync = sync_begin(end->adapter);

	return created(&sync,
		       NdkCreateSrq(end->pd, depth, 4, threshold, notification, context, NULL,
				    sync_created, &sync, NULL),
		       "shared receive queue");
}

NDK_QP *create_qp_with_srq(struct end *end, NDK_SRQ *srq, PVOID context)
{
	struct sync sync = sync_begin(end->adapter);

	return created(&sync,
		       NdkCreateQpWithSrq(end->pd, end->cq, end->cq, srq, context, QP_DEPTH, 4, 128,
					  sync_created, &sync, NULL),
		       "queue pair with a shared receive queue");
}

NDK_QP *create_qp_of_type(struct end *end, ORIEL_QP_TYPE type, NDK_SRQ *srq, PVOID context)
{
	const ORIEL_QP_PARAMETERS parameters = { .Size = sizeof(parameters),
						 .Type = type,
						 .ReceiveCq = end->cq,
						 .InitiatorCq = end->cq,
						 .Srq = srq,
						 .QPContext = context,
						 .ReceiveQueueDepth = srq ? 0 : QP_DEPTH,
						 .InitiatorQueueDepth = QP_DEPTH,
						 .MaxReceiveRequestSge = srq ? 0 : 4,
						 .MaxInitiatorRequestSge = 4,
						 .InlineDataSize = 128 };
	struct sync sync = sync_begin(end->adapter);

	return created(&sync, OrielCreateQp(end->pd, &parameters, sync_created, &sync, NULL),
		       "queue pair of a type");
}

NTSTATUS connect_qp(struct end *end, NDK_QP *qp, const ORIEL_QP_CONNECTION *connection)
{
	struct sync sync = sync_begin(end->adapter);

	return sync_end(&sync, OrielConnectQp(qp, connection, sync_requested, &sync));
}

static void connect_one(struct end *from, NDK_QP *qp, struct end *to, NDK_QP *peer, ULONG send_psn,
			ULONG receive_psn)
{
	const ORIEL_QP_CONNECTION connection = { .Size = sizeof(connection),
						 .RemoteQpNumber = OrielGetQpNumber(peer),
						 .SendPsn = send_psn,
						 .ReceivePsn = receive_psn,
						 .PathMtu = 1024,
						 .InboundReadLimit = 4,
						 .OutboundReadLimit = 4,
						 .Timeout = 17, /* a peer may stand still */
						 .RetryCount = 7,
						 .RnrRetryCount = 7,
						 .MinRnrTimer = 6,
						 .LocalAddress = (PSOCKADDR)&from->address,
						 .RemoteAddress = (PSOCKADDR)&to->address };

	SUCCEEDS(connect_qp(from, qp, &connection));
}

void connect_qps(struct end *a, NDK_QP *left, struct end *b, NDK_QP *right)
{
	connect_one(a, left, b, right, 0xfffff0, 0x1234);
	connect_one(b, right, a, left, 0x1234, 0xfffff0);
}

void close_object(struct end *end, NDK_OBJECT_HEADER *object)
{
	struct sync sync = sync_begin(end->adapter);
	/* Any object's table begins with its close. */
	const NDK_FN_CLOSE_OBJECT *table =
		*(const NDK_FN_CLOSE_OBJECT *const *)(const void *)(object + 1);

	SUCCEEDS(sync_end(&sync, table[0](object, sync_closed, &sync)));
}

NDK_SGE sge_at(struct end *end, uint64_t offset, ULONG length)
{
	return (NDK_SGE){ .VirtualAddress = end->bytes + offset,
			  .Length = length,
			  .MemoryRegionToken = NdkGetLocalTokenFromMr(end->mr) };
}

bool parse_address(const char *text, struct sockaddr_storage *address)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;

	memset(address, 0, sizeof(*address));
	v4->sin_family = AF_INET;
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
		return true;
	memset(address, 0, sizeof(*address));
	v6->sin6_family = AF_INET6;
	return inet_pton(AF_INET6, text, &v6->sin6_addr) == 1;
}

/*
 * An end without a daemon is served by a thread as well, by turns without callbacks, since scenes
 * wait for one end at a time.
 */
static void *serve(void *context)
{
	const struct end *end = context;

	while (__atomic_load_n(&end->served, __ATOMIC_RELAXED)) {
		OrielWait(end->adapter, 0);
		usleep(20);
	}
	return NULL;
}

static void open_end(struct end *end, const char *name, const char *socket, const char *address)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { 1, 2 },
						   .Socket = socket };
	struct sync sync;

	end->name = name;
	end->socket = socket;
	DEMAND(parse_address(address, &end->address), "%s", address);
	expect_status(OrielOpenAdapter(&parameters, &end->adapter), STATUS_SUCCESS,
		      OrielOpenErrorText());
	end->served = !strncmp(socket, "in-process:", 11);
	DEMAND(!end->served || pthread_create(&end->server, NULL, serve, end) == 0, "no thread");
	SUCCEEDS(OrielAllocateMemory(MEMORY, 0, &end->mdl));
	end->bytes = end->mdl->StartVa;
	sync = sync_begin(end->adapter);
	end->pd = created(&sync, NdkCreatePd(end->adapter, sync_created, &sync, NULL), "domain");
	sync = sync_begin(end->adapter);
	end->cq = created(
		&sync,
		NdkCreateCq(end->adapter, CQ_DEPTH, NULL, NULL, NULL, sync_created, &sync, NULL),
		"completion queue");
	sync = sync_begin(end->adapter);
	end->mr = created(&sync, NdkCreateMr(end->pd, FALSE, sync_created, &sync, NULL), "region");
	sync = sync_begin(end->adapter);
	SUCCEEDS(sync_end(&sync, NdkRegisterMr(end->mr, end->mdl, MEMORY,
					       NDK_MR_FLAG_ALLOW_REMOTE_READ |
						       NDK_MR_FLAG_ALLOW_REMOTE_WRITE |
						       ORIEL_MR_FLAG_ALLOW_REMOTE_ATOMIC,
					       sync_requested, &sync)));
}

static void close_end(struct end *end)
{
	if (__atomic_exchange_n(&end->served, false, __ATOMIC_RELAXED))
		pthread_join(end->server, NULL);
	OrielCloseAdapter(end->adapter);
	OrielFreeMemory(end->mdl);
}

static const struct scene *find_scene(const char *name)
{
	for (unsigned int i = 0; i < sizeof(all_scenes) / sizeof(all_scenes[0]); i++)
		for (const struct scene *scene = all_scenes[i]; scene->name; scene++)
			if (!strcmp(scene->name, name))
				return scene;
	return NULL;
}

int main(int argc, char **argv)
{
	const struct scene *scene = argc == 6 ? find_scene(argv[5]) : NULL;
	struct end a = { 0 }, b = { 0 };

	if (!scene) {
		fprintf(stderr, "Usage: play SOCKET-A ADDRESS-A SOCKET-B ADDRESS-B SCENE\n");
		return 2;
	}
	setlinebuf(stdout);
	open_end(&a, "a", argv[1], argv[2]);
	open_end(&b, "b", argv[3], argv[4]);
	scene->play(&a, &b);
	close_end(&a);
	close_end(&b);
	printf("played\n");
	return EXIT_SUCCESS;
}
