/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of a worker: receive, run, transmit, report quiescence; and its way to sleep
 * when there is nothing to do.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include <rte_cycles.h>
#include <rte_pause.h>
#include <rte_ring_elem.h>

#include "memory/memory.h"
#include "net/net_private.h"
#include "shm/spsc.h"

/*
 * An empty turn takes some 100 ns and more: 512 of them are about the time in which the
 * answer to something sent comes back, so a worker in a conversation does not sleep.
 */
#define SPIN_TURNS       512u
#define BRISK_TURNS      128u /* without a pause in between */
#define FIRST_SLEEP_NS   50000ull
#define LONGEST_SLEEP_NS 1000000ull
#define NOT_WORTH_NS     20000ull /* a sleep shorter than this */

uint64_t net_clock(const struct net *net)
{
	return (uint64_t)(((unsigned __int128)rte_rdtsc() * net->tick_scale) >> 32);
}

void worker_wake(struct worker *worker)
{
	/* The ring's tail is stored; see shm/spsc.h on doorbells. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&worker->sleeping, __ATOMIC_RELAXED))
		wake_write(worker->wake_fd);
}

/* --- one turn ---------------------------------------------------------------------- */

/*
 * Whoever sends one frame at a time waits for its answer, which leaves before anything else is
 * looked at. A burst goes through the stages of a turn together: that costs less for each of its
 * frames.
 */
static unsigned int receive_frames(struct worker *worker, uint64_t now)
{
	const struct net *net = worker->net;
	unsigned int received = 0;

	for (uint32_t p = 0; p < net->config.ports; p++)
		if (port_is_there(&net->port[p]))
			received += classify_port(worker, p, now);
	if (received == 0 || received > TRANSPORT_FEW)
		return received;
	transport_answer(worker->transport, now);
	transmit_flush(worker, now);
	return received;
}

unsigned int worker_turn(struct worker *worker, uint64_t now)
{
	struct net *net = worker->net;
	unsigned int done = 0;

	/* Control has not read what it was told: take nothing on, but let go of what is ours. */
	if (likely(commands_have_room(worker))) {
		done += commands_run(worker, now);
		done += receive_frames(worker, now);
		done += handoff_receive(worker, now);
		done += transport_poll(worker->transport, now);
	}
	done += transmit_control(worker);
	done += transmit_flush(worker, now);
	done += move_run(worker);
	handoff_wake(worker);
	if (unlikely(__atomic_load_n(&net->asides, __ATOMIC_RELAXED)))
		aside_answer(worker);
	memory_quiescent(net->memory, worker->index);
	return done;
}

/* --- nothing to do ----------------------------------------------------------------- */

static void announce_sleep(struct worker *worker)
{
	for (uint32_t i = 0; i < worker->sessions; i++)
		__atomic_store_n(&worker->session[i].area->sleeping, 1, __ATOMIC_RELAXED);
	/* One fence for all of them. */
	shm_sleep_announce(&worker->sleeping);
}

static void end_sleep(struct worker *worker)
{
	shm_sleep_end(&worker->sleeping);
	for (uint32_t i = 0; i < worker->sessions; i++)
		shm_sleep_end(&worker->session[i].area->sleeping);
}

/* What came between the last turn and the announcement: nobody wakes us for it. */
static bool work_waits(const struct worker *worker)
{
	if (!rte_ring_empty(worker->commands) || handoff_waiting(worker))
		return true;
	for (uint32_t i = 0; i < worker->sessions; i++) {
		if (__atomic_load_n(&worker->session[i].area->top, __ATOMIC_ACQUIRE))
			return true;
	}
	return false;
}

/* True: woken, false: the time was up. Frames wake nobody, so the time is short. */
static bool sleep_on_event(struct worker *worker, uint64_t ns)
{
	struct pollfd events[2] = { { .fd = worker->wake_fd, .events = POLLIN },
				    { .fd = worker->client_fd, .events = POLLIN } };
	struct timespec time = { .tv_nsec = (long)ns };

	if (ppoll(events, 2, &time, NULL) <= 0)
		return false;
	wake_drain(worker->wake_fd);
	wake_drain(worker->client_fd);
	return true;
}

static void try_to_sleep(struct worker *worker)
{
	struct net *net = worker->net;
	uint64_t now = net_clock(net);
	uint64_t deadline = RTE_MIN(transport_next_deadline(worker->transport, now),
				    fault_next_deadline(worker));
	uint64_t ns = worker->sleep_ns ? 2 * worker->sleep_ns : FIRST_SLEEP_NS;

	ns = RTE_MIN(ns, LONGEST_SLEEP_NS);
	worker->sleep_ns = ns;
	if (deadline <= now + NOT_WORTH_NS) {
		rte_pause();
		return;
	}
	ns = RTE_MIN(ns, deadline - now);
	announce_sleep(worker);
	memory_reader_offline(net->memory, worker->index);
	if (work_waits(worker) || sleep_on_event(worker, ns)) {
		worker->empty_turns = 0;
		worker->sleep_ns = 0;
	}
	memory_reader_online(net->memory, worker->index);
	end_sleep(worker);
}

static void idle(struct worker *worker)
{
	/* It takes as long as the turn itself, and somebody may be waiting for an answer. */
	if (worker->empty_turns >= BRISK_TURNS)
		rte_pause();
	if (worker->empty_turns < SPIN_TURNS)
		worker->empty_turns++;
	else if (worker->net->config.idle != NET_IDLE_BUSY)
		try_to_sleep(worker);
}

void worker_enter(struct worker *worker)
{
	memory_reader_online(worker->net->memory, worker->index);
}

void worker_leave(struct worker *worker)
{
	/* The last answers (to a DREQ, say) still leave. */
	transmit_control(worker);
	fault_drain(worker);
	transmit_flush(worker, net_clock(worker->net));
	transmit_spares_back(worker);
	memory_reader_offline(worker->net->memory, worker->index);
}

int worker_run(void *argument)
{
	struct worker *worker = argument;
	struct net *net = worker->net;

	/* Sleeps of 50 us are meant: the usual slack would double them. */
	prctl(PR_SET_TIMERSLACK, 1);
	worker_enter(worker);
	while (!__atomic_load_n(&net->stop, __ATOMIC_RELAXED)) {
		if (worker_turn(worker, net_clock(net))) {
			worker->empty_turns = 0;
			worker->sleep_ns = 0;
		} else {
			idle(worker);
		}
	}
	worker_leave(worker);
	__atomic_store_n(&worker->left, 1, __ATOMIC_RELEASE);
	return 0;
}

/* --- life -------------------------------------------------------------------------- */

static struct rte_ring *ring_create(const struct net *net, const char *what, unsigned int from,
				    unsigned int to, unsigned int element, unsigned int entries)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "oriel_%s_%u_%u", what, from, to);
	return rte_ring_create_elem(name, element, entries, net->port[0].socket,
				    RING_F_SP_ENQ | RING_F_SC_DEQ);
}

static int create_rings(struct worker *worker)
{
	struct net *net = worker->net;
	unsigned int index = worker->index;

	worker->commands =
		ring_create(net, "command", 0, index, sizeof(struct worker_command), COMMAND_RING);
	worker->messages =
		ring_create(net, "message", index, 0, sizeof(struct worker_message), MESSAGE_RING);
	worker->slow = ring_create(net, "slow", index, 0, sizeof(void *), SLOW_RING);
	if (!worker->commands || !worker->messages || !worker->slow)
		return -ENOMEM;
	if (net->flow_user) {
		worker->wishes =
			ring_create(net, "wish", index, 0, sizeof(struct flow_wish), FLOW_WISHES);
		if (!worker->wishes)
			return -ENOMEM;
	}
	if (index == 0) {
		worker->to_send = ring_create(net, "send", 0, 0, sizeof(void *), CONTROL_RING);
		if (!worker->to_send)
			return -ENOMEM;
	}
	for (unsigned int from = 0; from < net->config.workers; from++) {
		if (from == index)
			continue;
		worker->handed[from] =
			ring_create(net, "handed", from, index, sizeof(void *), HANDOFF_RING);
		if (!worker->handed[from])
			return -ENOMEM;
	}
	return 0;
}

static void worker_notify(void *context, uint32_t session)
{
	struct worker *worker = context;

	worker->net->io.notify(worker->net->io.context, session);
}

int worker_create(struct net *net, unsigned int index)
{
	struct worker *worker = &net->worker[index];
	struct transport_io io = { .get = transmit_get,
				   .put = transmit_put,
				   .event = worker_event,
				   .notify = worker_notify,
				   .context = worker };
	int error;

	worker->net = net;
	worker->index = index;
	worker->client_fd = wake_create();
	worker->wake_fd = wake_create();
	if (worker->client_fd < 0 || worker->wake_fd < 0)
		return worker->client_fd < 0 ? worker->client_fd : worker->wake_fd;
	error = create_rings(worker);
	if (!error)
		error = fault_create(worker);
	if (error)
		return error;
	error = transport_create(&worker->transport, net->shared, index, &io);
	if (error)
		return error;
	worker->stats = transport_get_stats(worker->transport);
	return 0;
}

/* Frames hold buffers of pools that are freed next; words (see move.c) hold nothing. */
static void empty_ring(struct rte_ring *ring)
{
	void *mbuf;

	while (ring && rte_ring_sc_dequeue(ring, &mbuf) == 0)
		if (!((uintptr_t)mbuf & 1))
			rte_pktmbuf_free(mbuf);
	rte_ring_free(ring);
}

void worker_destroy(struct worker *worker)
{
	if (!worker->net)
		return;
	/* Puts back the frames that it keeps. */
	if (worker->transport)
		transport_destroy(worker->transport);
	transmit_drop(worker);
	fault_destroy(worker);
	move_destroy(worker);
	for (unsigned int from = 0; from < NET_MAX_WORKERS; from++)
		empty_ring(worker->handed[from]);
	empty_ring(worker->to_send);
	empty_ring(worker->slow);
	rte_ring_free(worker->commands);
	rte_ring_free(worker->messages);
	rte_ring_free(worker->wishes);
	free(worker->session);
	wake_close(worker->client_fd);
	wake_close(worker->wake_fd);
}
