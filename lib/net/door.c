/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DPDK's memif driver takes a link down, and brings it up, in EAL's interrupt thread, and asks
 * nobody whether a worker is inside its receive or transmit function: rings that are being read
 * are unmapped, a ring is looked up before and used after the link's flag is set. And a client that
 * is gone before the driver has greeted it leaves a closed descriptor among EAL's interrupts, by
 * which the process ends. So the driver never sees the other end of its link, but this thread:
 *
 *	peer  <--- outer socket --->  door  <--- inner socket --->  driver
 *
 * It hands on the messages of the handshake, lets the workers in when the driver has done all it
 * does for a link, and when the peer leaves it first takes the workers out and then tells the
 * driver. A link that is up has nothing more to say: whatever comes is its end. A driver that is a
 * client connects once, when its device starts, so the device is started again after each link.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net/door.h"
#include "net/net_private.h"

#define WAYS         (2 * NET_MAX_PORTS) /* those who are not served are refused by the driver */
#define LOOK_MS      100                 /* for a server that was gone */
#define LINK_UP_NAPS 5000u /* of 200 us: what the driver has to do takes less than one */
#define GREETING_MS  5000  /* from a client's coming to its link: a handshake takes one */

struct way {
	int peer, driver;      /* sockets, -1: none */
	uint32_t at;           /* index of the port whose listener it came by */
	struct net_port *port; /* NULL: not known yet, or another way is that port's */
	uint64_t came_at;      /* a client, ms */
	int heard;             /* the last kind of message that the peer sent, 0: none */
	bool up;               /* the workers are in */
};

struct door {
	struct net *net;
	pthread_t thread;
	bool running;
	uint32_t stop; /* atomic */
	int wake_fd;
	uint64_t looked_at;          /* for servers, ms */
	int listener[NET_MAX_PORTS]; /* a server's outer, a client's inner socket; -1: none */
	struct way way[WAYS];
};

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* --- ways -------------------------------------------------------------------------- */

static uint32_t index_of(const struct door *door, const struct net_port *port)
{
	return (uint32_t)(port - door->net->port);
}

static struct way *way_of(struct door *door, const struct net_port *port)
{
	for (struct way *way = door->way; way < door->way + WAYS; way++)
		if (way->port == port)
			return way;
	return NULL;
}

static void close_socket(int *socket)
{
	if (*socket >= 0)
		close(*socket);
	*socket = -1;
}

static void start_again(struct net_port *port)
{
	rte_eth_dev_stop(port->id);
	port->started = rte_eth_dev_start(port->id) == 0;
}

static void way_end(struct door *door, struct way *way)
{
	struct net_port *port = way->port;

	if (way->up)
		aside_take(door->net, index_of(door, port), &door->stop);
	way->up = false;
	if (way->driver >= 0)
		memlink_finish(way->driver);
	way->driver = -1;
	close_socket(&way->peer);
	way->heard = 0;
	if (!port || port->device.memif.role == MEMLINK_SERVER)
		way->port = NULL;
	else if (!__atomic_load_n(&door->stop, __ATOMIC_ACQUIRE))
		start_again(port);
}

static void way_up(struct door *door, struct way *way)
{
	way->up = true;
	/*
	 * Control has peers told of us, and forgets those of the last link: it knows of this one
	 * before a worker can have received anything by it.
	 */
	__atomic_fetch_add(&way->port->links, 1, __ATOMIC_RELEASE);
	aside_give(door->net, index_of(door, way->port));
	wake_write(door->net->control_wake_fd);
}

/* --- messages ---------------------------------------------------------------------- */

static bool same_socket(const struct net_port *one, const struct net_port *other)
{
	const struct memlink_ends *a = &one->device.memif, *b = &other->device.memif;

	return a->role == MEMLINK_SERVER && b->role == MEMLINK_SERVER &&
	       a->outer.abstract == b->outer.abstract && !strcmp(a->outer.text, b->outer.text);
}

/* Which of the ports that share a socket a client wants. One that has a link is refused it. */
static void note_port(struct door *door, struct way *way, uint32_t id)
{
	struct net *net = door->net;

	for (struct net_port *port = net->port; port < net->port + net->config.ports; port++)
		if (port->device.memif.id == id && same_socket(port, &net->port[way->at]))
			way->port = way_of(door, port) ? NULL : port;
}

/* The last message of a handshake went to our driver, which says nothing to it. */
static bool link_comes_up(const struct door *door, const struct way *way)
{
	const struct timespec nap = { .tv_nsec = 200000 };
	struct rte_eth_link link = { 0 };

	for (unsigned int n = 0; n < LINK_UP_NAPS; n++) {
		if (rte_eth_link_get_nowait(way->port->id, &link) == 0 &&
		    link.link_status == RTE_ETH_LINK_UP)
			return true;
		if (__atomic_load_n(&door->stop, __ATOMIC_ACQUIRE))
			break;
		nanosleep(&nap, NULL);
	}
	return false;
}

/*
 * Whether the driver may hear it now: nothing that makes it take a link down, or choose another
 * port, once the workers are in or it is about to say that they may come.
 */
static bool in_order(const struct way *way, int kind)
{
	return !way->up && way->heard != MEMLINK_CONNECT && kind != MEMLINK_DISCONNECT &&
	       (kind != MEMLINK_INIT || !way->heard);
}

/* False: this is the end of the way. */
static bool from_peer(struct door *door, struct way *way)
{
	struct memlink_message message;
	int kind = memlink_receive(way->peer, &message);

	if (kind == MEMLINK_NOTHING)
		return true;
	if (kind == MEMLINK_CLOSED)
		return false;
	if (!in_order(way, kind)) {
		close_socket(&message.fd);
		return false;
	}
	way->heard = kind;
	if (kind == MEMLINK_INIT && !way->port)
		note_port(door, way, memlink_init_id(&message));
	if (!memlink_send(way->driver, &message))
		return false;
	if (kind != MEMLINK_CONNECTED || !way->port ||
	    way->port->device.memif.role == MEMLINK_SERVER)
		return true;
	if (!link_comes_up(door, way))
		return false;
	way_up(door, way);
	return true;
}

static bool from_driver(struct door *door, struct way *way)
{
	struct memlink_message message;
	int kind = memlink_receive(way->driver, &message);

	if (kind == MEMLINK_NOTHING)
		return true;
	if (kind == MEMLINK_CLOSED)
		return false;
	/* A server's driver says so when it is ready. */
	if (kind == MEMLINK_CONNECTED && way->port && !way->up)
		way_up(door, way);
	return memlink_send(way->peer, &message) && kind != MEMLINK_DISCONNECT;
}

/* --- who comes --------------------------------------------------------------------- */

static void client_comes(struct door *door, uint32_t index)
{
	int peer = memlink_accept(door->listener[index], false);

	for (struct way *way = door->way; peer >= 0 && way < door->way + WAYS; way++) {
		if (way->peer >= 0 || way->driver >= 0 || way->port)
			continue;
		way->driver = memlink_connect(&door->net->port[index].device.memif.inner);
		if (way->driver < 0)
			break;
		way->peer = peer;
		way->at = index;
		way->came_at = now_ms();
		return;
	}
	close_socket(&peer);
}

static void own_driver_comes(struct door *door, uint32_t index)
{
	struct way *way = way_of(door, &door->net->port[index]);
	int driver = memlink_accept(door->listener[index], true);

	if (way->driver < 0)
		way->driver = driver;
	else
		close_socket(&driver);
}

/* Whoever comes and goes at another port does not keep us from it. */
static bool time_to_look(struct door *door)
{
	uint64_t now = now_ms();

	if (now - door->looked_at < LOOK_MS)
		return false;
	door->looked_at = now;
	return true;
}

static void look_for_servers(struct door *door)
{
	if (!time_to_look(door))
		return;
	for (struct way *way = door->way; way < door->way + WAYS; way++) {
		if (!way->port || way->peer >= 0)
			continue;
		if (!way->port->started)
			start_again(way->port);
		way->peer = memlink_connect(&way->port->device.memif.outer);
	}
}

/*
 * A client that does not come to the end of its handshake keeps a way from others, and a port from
 * its peer. A server that is slow is the one that was configured: nobody waits but its own port.
 */
static bool is_greeted(const struct door *door, const struct way *way)
{
	return way->peer >= 0 && !way->up &&
	       door->net->port[way->at].device.memif.role == MEMLINK_SERVER &&
	       (!way->port || way->port->device.memif.role == MEMLINK_SERVER);
}

static void end_silent(struct door *door)
{
	const uint64_t now = now_ms();

	for (struct way *way = door->way; way < door->way + WAYS; way++)
		if (is_greeted(door, way) && now - way->came_at >= GREETING_MS)
			way_end(door, way);
}

/* --- the thread -------------------------------------------------------------------- */

#define WAKE   0u
#define LISTEN 1u
#define PEER   (LISTEN + NET_MAX_PORTS)
#define DRIVER (PEER + WAYS)
#define EVENTS (DRIVER + WAYS)

/* True: some port waits for its server, or a client has not come to its link. */
static bool fill_events(const struct door *door, struct pollfd *event)
{
	bool waits = false;

	for (unsigned int i = 0; i < EVENTS; i++)
		event[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
	event[WAKE].fd = door->wake_fd;
	for (uint32_t p = 0; p < NET_MAX_PORTS; p++)
		event[LISTEN + p].fd = door->listener[p];
	for (uint32_t w = 0; w < WAYS; w++) {
		const struct way *way = &door->way[w];

		/* What a server says waits until there is a driver to hear it. */
		if (way->driver >= 0 && way->peer >= 0)
			event[PEER + w].fd = way->peer;
		event[DRIVER + w].fd = way->driver;
		waits |= (way->port && way->peer < 0) || is_greeted(door, way);
	}
	return waits;
}

/* A way that has ended since it was polled has other sockets, or none. */
static bool way_serve(struct door *door, struct way *way, const struct pollfd *peer,
		      const struct pollfd *driver)
{
	if (peer->revents && peer->fd == way->peer && !from_peer(door, way))
		return false;
	return !driver->revents || driver->fd != way->driver || from_driver(door, way);
}

static void serve(struct door *door, const struct pollfd *event)
{
	/* Ends first: who comes back at once would be refused while his old link stands. */
	for (unsigned int up = 2; up-- > 0;) {
		for (uint32_t w = 0; w < WAYS; w++) {
			struct way *way = &door->way[w];

			if (way->up == up &&
			    !way_serve(door, way, &event[PEER + w], &event[DRIVER + w]))
				way_end(door, way);
		}
	}
	for (uint32_t p = 0; p < NET_MAX_PORTS; p++) {
		if (!event[LISTEN + p].revents)
			continue;
		if (door->net->port[p].device.memif.role == MEMLINK_CLIENT)
			own_driver_comes(door, p);
		else
			client_comes(door, p);
	}
}

static void *door_run(void *argument)
{
	struct door *door = argument;
	struct pollfd event[EVENTS];

	pthread_setname_np(pthread_self(), "oriel-door");
	while (!__atomic_load_n(&door->stop, __ATOMIC_ACQUIRE)) {
		const bool waits = fill_events(door, event);

		if (poll(event, EVENTS, waits ? LOOK_MS : -1) > 0)
			serve(door, event);
		if (waits) {
			end_silent(door);
			look_for_servers(door);
		}
	}
	for (struct way *way = door->way; way < door->way + WAYS; way++)
		way_end(door, way);
	return NULL;
}

/* --- life -------------------------------------------------------------------------- */

static struct door *door_create(struct net *net)
{
	struct door *door = calloc(1, sizeof(*door));

	if (!door)
		return NULL;
	door->net = net;
	door->wake_fd = -1;
	for (uint32_t p = 0; p < NET_MAX_PORTS; p++)
		door->listener[p] = -1;
	for (struct way *way = door->way; way < door->way + WAYS; way++)
		way->peer = way->driver = -1;
	return door;
}

static int add_server(struct door *door, uint32_t index)
{
	const struct net_port *port = door->net->port;

	for (uint32_t p = 0; p < index; p++)
		if (same_socket(&port[p], &port[index]))
			return 0;
	door->listener[index] = memlink_listen(&port[index].device.memif.outer);
	return RTE_MIN(door->listener[index], 0);
}

static int add_client(struct door *door, uint32_t index)
{
	struct net_port *port = &door->net->port[index];
	struct way *way = way_of(door, NULL);

	door->listener[index] = memlink_listen(&port->device.memif.inner);
	if (door->listener[index] < 0)
		return door->listener[index];
	way->port = port;
	way->peer = memlink_connect(&port->device.memif.outer);
	return RTE_MIN(way->peer, 0);
}

int door_add(struct net *net, uint32_t port)
{
	enum memlink_role role = net->port[port].device.memif.role;

	if (role == MEMLINK_NONE)
		return 0;
	if (!net->door)
		net->door = door_create(net);
	if (!net->door)
		return -ENOMEM;
	aside_begin(net, port);
	return role == MEMLINK_SERVER ? add_server(net->door, port) : add_client(net->door, port);
}

int door_open(struct net *net)
{
	struct door *door = net->door;
	int error;

	if (!door)
		return 0;
	door->wake_fd = wake_create();
	if (door->wake_fd < 0)
		return door->wake_fd;
	error = -pthread_create(&door->thread, NULL, door_run, door);
	door->running = error == 0;
	return error;
}

void door_close(struct net *net)
{
	struct door *door = net->door;

	if (!door)
		return;
	__atomic_store_n(&door->stop, 1, __ATOMIC_RELEASE);
	if (door->running) {
		wake_write(door->wake_fd);
		pthread_join(door->thread, NULL);
	}
	for (struct way *way = door->way; way < door->way + WAYS; way++)
		close_socket(&way->peer);
	for (uint32_t p = 0; p < NET_MAX_PORTS; p++) {
		const struct memlink_ends *ends = &net->port[p].device.memif;

		if (door->listener[p] >= 0 && ends->role == MEMLINK_SERVER && !ends->outer.abstract)
			unlink(ends->outer.text);
		close_socket(&door->listener[p]);
	}
	wake_close(door->wake_fd);
	free(door);
	net->door = NULL;
}
