/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands of the control core carried out in a worker, and what a worker tells it. */
#include <errno.h>
#include <stdlib.h>

#include <rte_ring_elem.h>

#include "net/net_private.h"

#define COMMANDS_PER_TURN 16u

/* --- to control -------------------------------------------------------------------- */

static unsigned int message_room(const struct worker *worker)
{
	return rte_ring_free_count(worker->messages);
}

bool commands_have_room(const struct worker *worker)
{
	return message_room(worker) >= MESSAGES_PER_TURN;
}

static void tell(struct worker *worker, const struct worker_message *message)
{
	/* Room was seen to before the turn began. */
	rte_ring_sp_enqueue_elem(worker->messages, (void *)(uintptr_t)message, sizeof(*message));
	worker->wake_control = true;
}

void worker_event(void *context, const struct transport_event *event)
{
	struct worker_message message = { .kind = MESSAGE_EVENT, .event = *event };

	tell(context, &message);
}

static void done(struct worker *worker, uint64_t cookie, int status)
{
	struct worker_message message = { .kind = MESSAGE_DONE, .status = status, .event = { 0 } };

	message.cookie = cookie;
	tell(worker, &message);
}

static void send_back(struct worker *worker, const struct worker_command *command)
{
	struct worker_message message = { .kind = MESSAGE_MOVED,
					  .moved = { .cookie = command->cookie,
						     .type = command->type,
						     .object = command->object,
						     .number = command->number } };

	tell(worker, &message);
}

/* --- sessions: whom to tell that this worker sleeps -------------------------------- */

static int add_session(struct worker *worker, uint32_t number, struct shm_session *memory)
{
	if (worker->sessions == worker->session_room) {
		uint32_t room = worker->session_room ? 2 * worker->session_room : 16;
		void *larger = realloc(worker->session, room * sizeof(worker->session[0]));

		if (!larger)
			return -ENOMEM;
		worker->session = larger;
		worker->session_room = room;
	}
	if (memory)
		worker->session[worker->sessions++] =
			(struct worker_session){ .session = number,
						 .area = &memory->worker[worker->index] };
	transport_add_session(worker->transport, number);
	return 0;
}

static void remove_session(struct worker *worker, uint32_t number)
{
	for (uint32_t i = 0; i < worker->sessions; i++) {
		if (worker->session[i].session != number)
			continue;
		worker->session[i] = worker->session[--worker->sessions];
		break;
	}
	transport_remove_session(worker->transport, number);
}

/* --- commands ---------------------------------------------------------------------- */

/*
 * A detach waits for the queue pair's grace periods, and other commands overtake it; not
 * the end of a session, whose memory is gone when it is answered.
 */
static unsigned int run_detaches(struct worker *worker)
{
	unsigned int ran = 0;

	for (uint32_t i = 0; i < worker->detaches;) {
		struct waiting_detach *waiting = &worker->detach[i];

		if (!transport_may_detach(worker->transport, waiting->qp)) {
			i++;
			continue;
		}
		transport_detach(worker->transport, waiting->qp);
		done(worker, waiting->cookie, 0);
		*waiting = worker->detach[--worker->detaches];
		ran++;
	}
	return ran;
}

/* Of a queue pair that may be on its way, or gone. */
static bool concerns_home(uint32_t type)
{
	return type == WORKER_FLUSH || type == WORKER_DETACH || type == WORKER_MOVE;
}

/* Its index is another queue pair's by now, or nobody's. */
static bool is_gone(const struct worker *worker, const struct worker_command *command)
{
	return command->number &&
	       qp_number(worker->net->shared, command->object) != command->number;
}

static bool lives_here(const struct worker *worker, const struct worker_command *command)
{
	return qp_home(worker->net->shared, command->object) == worker->index;
}

/* True: there is nothing to do for this worker. */
static bool pass_on(struct worker *worker, const struct worker_command *command)
{
	if (is_gone(worker, command)) {
		if (command->type != WORKER_MOVE)
			done(worker, command->cookie, 0);
		return true;
	}
	if (lives_here(worker, command))
		return false;
	if (command->type != WORKER_MOVE)
		send_back(worker, command);
	return true;
}

static void run(struct worker *worker, const struct worker_command *command, uint64_t now)
{
	struct transport *transport = worker->transport;
	int status = 0;

	if (concerns_home(command->type) && pass_on(worker, command))
		return;
	switch ((enum worker_command_type)command->type) {
	case WORKER_ATTACH:
		move_forget_landings(worker, command->object);
		transport_attach(transport, command->object, now);
		break;
	case WORKER_CONNECT:
		status = transport_connect(transport, command->object, &command->connection, now);
		if (status == 0)
			steer_connected(worker, command->object, &command->connection);
		break;
	case WORKER_FLUSH: transport_flush(transport, command->object, now); break;
	case WORKER_DETACH:
		worker->detach[worker->detaches++] =
			(struct waiting_detach){ .qp = command->object, .cookie = command->cookie };
		return; /* answered by run_detaches() */
	case WORKER_ADD_SESSION:
		status = add_session(worker, command->object, command->session);
		break;
	case WORKER_REMOVE_SESSION: remove_session(worker, command->object); break;
	case WORKER_RESIZE_CQ:
		transport_resize_cq(transport, command->object, command->to, command->cq);
		break;
	case WORKER_MOVE: move_start(worker, command->object, command->to); return;
	default: status = -EINVAL;
	}
	done(worker, command->cookie, status);
}

/* Whether the next command may be taken now. */
static bool may_take(const struct worker *worker, const struct worker_command *next)
{
	if (concerns_home(next->type) && move_pending(worker, next->object) &&
	    !is_gone(worker, next) && lives_here(worker, next))
		return false;
	if (next->type == WORKER_DETACH)
		return worker->detaches < DETACH_WAITING;
	return next->type != WORKER_REMOVE_SESSION || worker->detaches == 0;
}

unsigned int commands_run(struct worker *worker, uint64_t now)
{
	unsigned int ran = 0;

	if (worker->detaches)
		ran += run_detaches(worker);
	for (uint32_t i = 0; i < COMMANDS_PER_TURN; i++) {
		struct worker_command command;

		if (worker->held) {
			command = worker->held_command;
			worker->held = false;
		} else if (rte_ring_sc_dequeue_elem(worker->commands, &command, sizeof(command))) {
			break;
		}
		if (!may_take(worker, &command)) {
			worker->held_command = command;
			worker->held = true;
			break;
		}
		run(worker, &command, now);
		ran++;
	}
	return ran;
}
