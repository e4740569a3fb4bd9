/* SPDX-License-Identifier: BSD-3-Clause */
/* perftest's messages on their way, TCP's bytes or the SENDs of perftest_control.c. */
#include "oriel-perf/perftest_channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 60u /* seconds: an emulated peer takes long to register its memory */

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* --- TCP, messages ---------------------------------------------------------------------------- */

static bool tcp_send(struct perftest_channel *channel, const uint8_t *data, size_t size)
{
	while (size) {
		ssize_t n = send(channel->socket, data, size, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		data += n;
		size -= (size_t)n;
	}
	return true;
}

static bool tcp_receive(struct perftest_channel *channel, uint8_t *data, size_t size)
{
	while (size) {
		ssize_t n = recv(channel->socket, data, size, MSG_DONTWAIT);

		if (n > 0) {
			data += n;
			size -= (size_t)n;
		} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (!perftest_breathe(channel))
				return false;
		} else {
			return false;
		}
	}
	return true;
}

static bool tcp_pending(struct perftest_channel *channel)
{
	struct pollfd fd = { .fd = channel->socket, .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

/* --- both ways -------------------------------------------------------------------------------- */

static bool send_message(struct perftest_channel *channel, const void *data, size_t size)
{
	return channel->control ? perftest_cm_send(channel, data, size)
				: tcp_send(channel, data, size);
}

static bool receive_message(struct perftest_channel *channel, void *data, size_t size)
{
	return channel->control ? perftest_cm_receive(channel, data, size)
				: tcp_receive(channel, data, size);
}

static bool given_up(const struct perftest_channel *channel)
{
	return channel->given_up && channel->given_up();
}

static void explain(const struct perftest_channel *channel, const char *what)
{
	if (given_up(channel))
		fprintf(stderr, "oriel-perf: interrupted while we exchanged: %s\n", what);
	else if (channel->late)
		fprintf(stderr,
			"oriel-perf: no answer for %u s while we exchanged: %s (test, size and "
			"number of queue pairs must be the same here and there)\n",
			PATIENCE, what);
	else
		fprintf(stderr,
			"oriel-perf: the other side has gone while we exchanged: %s (its own "
			"message, if any, says more; test, size and number of queue pairs must be "
			"the same here and there)\n",
			what);
}

bool perftest_swap(struct perftest_channel *channel, const char *what, const void *ours,
		   void *theirs, size_t size)
{
	bool good = !channel->over;

	channel->deadline = channel->hurry ? now_ns() + PATIENCE * 1000000000ull : 0;
	if (good && channel->server)
		good = receive_message(channel, theirs, size) && send_message(channel, ours, size);
	else if (good)
		good = send_message(channel, ours, size) && receive_message(channel, theirs, size);
	if (good)
		return true;
	channel->over = true;
	explain(channel, what);
	return false;
}

bool perftest_pending(struct perftest_channel *channel)
{
	if (channel->over)
		return true;
	return channel->control ? perftest_cm_pending(channel) : tcp_pending(channel);
}

/* Not a sleep on the socket: a data plane in this process wants its turns. */
bool perftest_breathe(struct perftest_channel *channel)
{
	if (given_up(channel))
		return false;
	if (channel->deadline && now_ns() > channel->deadline) {
		channel->late = true;
		return false;
	}
	if (!OrielProgress(channel->adapter))
		OrielWait(channel->adapter, 1);
	return true;
}

void perftest_channel_close(struct perftest_channel *channel)
{
	if (channel->control)
		perftest_cm_close(channel);
	if (channel->socket >= 0)
		close(channel->socket);
	channel->control = NULL;
	channel->socket = -1;
	channel->over = true;
}
