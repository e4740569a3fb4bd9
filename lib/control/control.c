/* SPDX-License-Identifier: BSD-3-Clause */
/* The control core's loop, its start and its end. */
#include "control/control.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "control/control_private.h"

#define SHUTDOWN_PATIENCE 1000000000ull /* ns */
#define LINGER            50000000ull   /* ns */
#define LONGEST_SLEEP     100000000ull  /* ns */
#define EVENTS            32

uint64_t control_clock(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

void control_fail(struct control *control, const char *reason)
{
	control_say(control, "%s", reason);
	if (!net_get_config(control->net)->caller_runs)
		exit(EXIT_FAILURE);
	control->failed = true;
	for (uint32_t s = 1; s < CONTROL_MAX_SESSIONS; s++)
		if (control->session[s].memory)
			shm_store_release(&control->session[s].memory->ended, 1);
}

/* --- the CM's surroundings ------------------------------------------------------------ */

static void cm_send(void *context, const struct cm_address *to, const uint8_t mad[256])
{
	struct control *control = context;
	struct net_peer peer = { .port = to->port, .traffic_class = to->traffic_class };

	memcpy(peer.local_gid, to->local_gid, 16);
	memcpy(peer.remote_gid, to->remote_gid, 16);
	memcpy(peer.remote_mac, to->remote_mac, 6);
	/* A datagram that cannot leave is lost like any other: the CM's timers repeat it. */
	if (net_send_mad(control->net, &peer, mad, control->now))
		control->status.mads_not_sent++;
}

static uint32_t cm_random(void *context)
{
	uint32_t value;

	while (getrandom(&value, sizeof(value), 0) != sizeof(value))
		;
	return value;
}

static bool cm_own_address(void *context, const uint8_t gid[16])
{
	struct control *control = context;

	return net_find_address(control->net, gid) >= 0;
}

static uint32_t cm_max_path_mtu(void *context, const struct cm_address *address)
{
	struct control *control = context;

	return net_port_path_mtu(control->net, address->port);
}

static void on_mad(void *context, const struct net_peer *peer, const uint8_t *mad, uint64_t now)
{
	struct control *control = context;
	struct cm_address from = { .port = (uint8_t)peer->port,
				   .traffic_class = peer->traffic_class };

	memcpy(from.local_gid, peer->local_gid, 16);
	memcpy(from.remote_gid, peer->remote_gid, 16);
	memcpy(from.remote_mac, peer->remote_mac, 6);
	cm_receive(control->cm, &from, mad, now);
}

/*
 * In a worker's thread, while this core may free the object: each field is one aligned word, and
 * what comes out is only an index, which lib/memory checks for owner and state before it means
 * anything.
 */
static uint32_t resolve_handle(void *context, uint32_t session, uint32_t handle,
			       enum handle_kind kind)
{
	static const enum object_type type[] = { [HANDLE_REGION] = OBJECT_TYPE_MR,
						 [HANDLE_WINDOW] = OBJECT_TYPE_MW,
						 [HANDLE_ADDRESS] = OBJECT_TYPE_AH };
	const struct control *control = context;
	const struct object *object = object_find(control, session, handle, type[kind]);

	return object ? object->index : 0;
}

/* --- start and end ----------------------------------------------------------------------- */

void control_arena_spec(const struct control_config *config, struct arena_spec spec[ARENA_TABLES])
{
	spec[ARENA_SESSIONS] = (struct arena_spec){ sizeof(struct session), CONTROL_MAX_SESSIONS };
	spec[ARENA_OBJECTS] = (struct arena_spec){ sizeof(struct object), config->objects };
	cm_arena_spec(&config->cm, spec);
}

static int allocate_tables(struct control *control)
{
	struct arena *arena = control->arena;

	control->object_local = calloc(control->config.objects, sizeof(*control->object_local));
	control->graces = calloc(control->config.objects, sizeof(*control->graces));
	control->qp_object = calloc(arena_records(arena, ARENA_QPS), sizeof(uint32_t));
	control->cq_object = calloc(arena_records(arena, ARENA_CQS), sizeof(uint32_t));
	control->srq_object = calloc(arena_records(arena, ARENA_SRQS), sizeof(uint32_t));
	control->connection_object =
		calloc(arena_records(arena, ARENA_CONNECTIONS), sizeof(uint32_t));
	if (!control->object_local || !control->graces || !control->qp_object ||
	    !control->cq_object || !control->srq_object || !control->connection_object)
		return -ENOMEM;
	return 0;
}

int control_create(struct control **out, const struct control_config *config, struct arena *arena,
		   struct memory *memory, struct transport_shared *shared, const char **message)
{
	struct cm_io cm_io = { .send = cm_send,
			       .event = connection_cm_event,
			       .random = cm_random,
			       .own_address = cm_own_address,
			       .max_path_mtu = cm_max_path_mtu };
	struct control *control = calloc(1, sizeof(*control));
	int error = -ENOMEM;

	*message = "out of memory";
	if (!control)
		return error;
	control->config = *config;
	control->arena = arena;
	control->memory = memory;
	control->shared = shared;
	control->listener = -1;
	control->object_watermark = 1;
	control->now = control_clock();
	control->status.started = (uint64_t)time(NULL);
	session_fill_limits(control, &control->limits);
	for (unsigned int w = 0; w < NET_MAX_WORKERS; w++)
		control->command_last[w] = &control->command_first[w];
	control->net_io = (struct net_io){ on_mad,        command_event,  command_done,
					   command_moved, command_notify, control };
	control->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (control->epoll < 0 || allocate_tables(control))
		goto fail;
	transport_set_resolver(shared, resolve_handle, control);
	cm_io.context = control;
	error = cm_create(&control->cm, arena, &config->cm, &cm_io, false);
	if (error)
		goto fail;
	error = socket_open(control, message);
	if (error)
		goto fail;
	*out = control;
	return 0;
fail:
	control_destroy(control);
	return error;
}

const struct net_io *control_net_io(struct control *control)
{
	return &control->net_io;
}

int control_attach_net(struct control *control, struct net *net)
{
	struct epoll_event interest = { .events = EPOLLIN, .data.u64 = EPOLL_WAKE };

	control->net = net;
	if (epoll_ctl(control->epoll, EPOLL_CTL_ADD, net_control_eventfd(net), &interest) ||
	    epoll_ctl(control->epoll, EPOLL_CTL_ADD, net_control_worker_eventfd(net), &interest))
		return -errno;
	return 0;
}

void control_destroy(struct control *control)
{
	if (!control)
		return;
	socket_close(control);
	requests_forget(control, 0);
	incoming_forget(control, 0);
	for (uint32_t s = 1; s < CONTROL_MAX_SESSIONS; s++) {
		struct session_local *local = &control->session[s];

		/* A worker that did not let go in time still uses it: the process ends anyway. */
		if (local->memory)
			session_at(control, s)->state = SESSION_FREE;
	}
	if (control->cm)
		cm_destroy(control->cm);
	if (control->epoll >= 0)
		close(control->epoll);
	free(control->object_local);
	free(control->graces);
	free(control->qp_object);
	free(control->cq_object);
	free(control->srq_object);
	free(control->connection_object);
	free(control);
}

/* --- the loop -------------------------------------------------------------------------------- */

static unsigned int poll_sessions(struct control *control)
{
	unsigned int done = 0;

	for (uint32_t s = 1; s <= control->highest_session; s++) {
		if (session_is_open(control, s))
			done += session_poll(control, s);
		if (session_is_open(control, s))
			session_flush(control, s);
		else if (control->session[s].memory)
			session_finish_if_quiet(control, s);
	}
	return done;
}

static unsigned int poll_all(struct control *control)
{
	unsigned int done;

	control->now = control_clock();
	command_retry(control);
	done = net_poll(control->net, control->now);
	if (control->resolving)
		connection_resolve_pending(control);
	if (control->waiting)
		requests_retry(control);
	if (control->now >= control->cm_due)
		control->cm_due = cm_poll(control->cm, control->now);
	close_graces(control);
	socket_expire_greeters(control);
	done += incoming_poll(control);
	/* Last, so that what the others had to say to clients goes out in the same round. */
	done += poll_sessions(control);
	return done;
}

static void dispatch(struct control *control, uint64_t what)
{
	uint32_t number = (uint32_t)what;

	switch (what & ~0xffffffffull) {
	case EPOLL_LISTENER: socket_accept(control); break;
	case EPOLL_GREETER: socket_greeter_ready(control, number); break;
	case EPOLL_SESSION: socket_session_ready(control, number); break;
	case EPOLL_WAKE: net_control_drain(control->net); break;
	default: break;
	}
}

static void sleep_words(struct control *control, bool asleep)
{
	for (uint32_t s = 1; s < CONTROL_MAX_SESSIONS; s++) {
		if (!session_is_open(control, s))
			continue;
		__atomic_store_n(&control->session[s].memory->control_sleeping, asleep,
				 __ATOMIC_RELAXED);
	}
	if (asleep)
		shm_sleep_announce(net_control_sleeping(control->net)); /* the fence is in here */
	else
		shm_sleep_end(net_control_sleeping(control->net));
}

/* Milliseconds until something is due by itself. */
static int sleep_time(const struct control *control)
{
	uint64_t due = LONGEST_SLEEP;

	if (control->grace_count || control->resolving || control->waiting ||
	    control->region_to_close || control->segments_to_unmap)
		due = 1000000;
	for (uint32_t s = 1; s < CONTROL_MAX_SESSIONS; s++)
		if (control->session[s].memory && !session_is_open(control, s))
			due = 1000000;
	for (unsigned int w = 0; w < NET_MAX_WORKERS; w++)
		if (control->command_first[w])
			due = 1000000;
	if (control->cm_due <= control->now || control->first_incoming)
		return 0;
	if (control->cm_due - control->now < due)
		due = control->cm_due - control->now;
	return (int)((due + 999999) / 1000000);
}

static unsigned int look_at_sockets(struct control *control, int timeout)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(control->epoll, events, EVENTS, timeout);

	control->now = control_clock();
	for (int i = 0; i < count; i++)
		dispatch(control, events[i].data.u64);
	return count > 0 ? (unsigned int)count : 0;
}

unsigned int control_poll(struct control *control, bool sockets)
{
	unsigned int done = 0;

	if (control->failed)
		return 0;
	if (sockets)
		done = look_at_sockets(control, 0);
	return done + poll_all(control);
}

bool control_has_work(const struct control *control)
{
	if (net_has_messages(control->net) || control->first_incoming)
		return true;
	for (uint32_t s = 1; s <= control->highest_session; s++) {
		const struct session_local *local = &control->session[s];

		if (local->memory &&
		    shm_ring_used(&local->memory->request_cursor, local->request_head))
			return true;
	}
	return false;
}

static void control_turn(struct control *control)
{
	unsigned int done;
	int timeout = 0;

	if (net_get_config(control->net)->caller_runs) {
		done = net_turn(control->net) + control_poll(control, true);
		if (!done)
			sched_yield(); /* whom we wait for may need this processor */
		return;
	}
	done = poll_all(control);
	if (!done) {
		sleep_words(control, true);
		/* Once more after the announcement: what came before it rang no bell. */
		if (!poll_all(control))
			timeout = sleep_time(control);
	}
	look_at_sockets(control, timeout);
	if (!done)
		sleep_words(control, false);
}

void control_run(struct control *control, const volatile sig_atomic_t *stop)
{
	while (!*stop)
		control_turn(control);
}

/*
 * A virtual link that ends with this process takes along what lies in it. Our last DREP should
 * have been read by then, or its peer asks for another for half a minute.
 */
static void linger(struct control *control)
{
	uint64_t deadline = control_clock() + LINGER;
	struct cm_statistics cm;
	uint64_t sent = 0;

	cm_get_statistics(control->cm, &cm);
	for (unsigned int i = 0; i < sizeof(cm.tx) / sizeof(cm.tx[0]); i++)
		sent += cm.tx[i];
	while (sent && !control->failed && control_clock() < deadline)
		control_turn(control);
}

void control_shutdown(struct control *control)
{
	uint64_t deadline = control_clock() + SHUTDOWN_PATIENCE;
	struct cm_statistics cm;
	bool busy = true;

	/* A client that closes its own data plane need not hear of it. */
	if (net_get_config(control->net)->caller_runs)
		control->config.name = NULL;
	for (uint32_t s = 1; s < CONTROL_MAX_SESSIONS; s++)
		if (session_is_open(control, s))
			session_end(control, s, "the daemon is stopping");
	while (busy && !control->failed && control_clock() < deadline) {
		control_turn(control);
		cm_get_statistics(control->cm, &cm);
		busy = cm.established || cm.pending;
		for (uint32_t s = 1; s < CONTROL_MAX_SESSIONS; s++)
			busy |= control->session[s].memory != NULL;
	}
	if (net_get_config(control->net)->caller_runs)
		linger(control);
}

/* --- status ----------------------------------------------------------------------------------- */

void control_get_status(const struct control *control, struct control_status *status)
{
	*status = control->status;
	cm_get_statistics(control->cm, &status->cm);
	status->connections = status->cm.established;
	memory_usage(control->memory, &status->memory);
}

bool control_get_session(const struct control *control, unsigned int n,
			 struct session_status *status)
{
	for (uint32_t s = 1; s < CONTROL_MAX_SESSIONS; s++) {
		const struct session *record = session_at(control, s);

		if (record->state != SESSION_OPEN || n--)
			continue;
		*status = (struct session_status){ .session = s,
						   .pid = record->pid,
						   .uid = record->uid,
						   .objects = record->objects };
		memcpy(status->name, record->name, sizeof(status->name));
		return true;
	}
	return false;
}
