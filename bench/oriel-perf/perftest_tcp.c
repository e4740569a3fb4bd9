/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP connection of perftest's messages: made by the client, accepted by the server. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "oriel-perf/perftest_channel.h"

#define TRIES    50u /* of connecting to a server, 0.1 s apart */
#define PAUSE_US 100000

static bool complain(const char *what, const char *why)
{
	fprintf(stderr, "oriel-perf: %s: %s\n", what, why);
	return false;
}

/* --- TCP, client ------------------------------------------------------------------------------ */

static int connect_first(const struct addrinfo *list)
{
	int error = ENOENT;

	for (; list; list = list->ai_next) {
		int fd = socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC, 0);

		if (fd >= 0 && !connect(fd, list->ai_addr, list->ai_addrlen))
			return fd;
		error = errno;
		if (fd >= 0)
			close(fd);
	}
	return -error;
}

bool perftest_tcp_connect(struct perftest_channel *channel, const char *host, uint16_t port)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	char service[8], where[300];
	int error, fd;

	snprintf(service, sizeof(service), "%u", port);
	snprintf(where, sizeof(where), "%s port %u (TCP)", host, port);
	error = getaddrinfo(host, service, &hints, &list);
	if (error)
		return complain(where, gai_strerror(error));
	fd = connect_first(list);
	for (unsigned int i = 1; fd == -ECONNREFUSED && i < TRIES; i++) {
		usleep(PAUSE_US);
		fd = connect_first(list);
	}
	freeaddrinfo(list);
	if (fd < 0)
		return complain(where, strerror(-fd));
	channel->socket = fd;
	return true;
}

/* --- TCP, server ------------------------------------------------------------------------------ */

/* One socket for both families. */
static int listen_at(uint16_t port)
{
	const struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	const int on = 1, off = 0;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
	    !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) &&
	    !bind(fd, (const struct sockaddr *)&address, sizeof(address)) && !listen(fd, 1))
		return fd;
	close(fd);
	return -errno;
}

bool perftest_tcp_accept(struct perftest_channel *channel, uint16_t port)
{
	int fd = listen_at(port);
	struct pollfd client = { .events = POLLIN };
	char where[32];

	snprintf(where, sizeof(where), "TCP port %u", port);
	if (fd < 0)
		return complain(where, strerror(-fd));
	for (client.fd = fd; poll(&client, 1, 0) == 0;) {
		if (perftest_breathe(channel))
			continue;
		close(fd);
		return complain(where, "interrupted before a client came");
	}
	channel->socket = accept(fd, NULL, NULL);
	if (channel->socket < 0)
		complain(where, strerror(errno));
	close(fd);
	return channel->socket >= 0;
}
