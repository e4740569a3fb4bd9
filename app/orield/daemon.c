/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts the layers together as the configuration says, and takes them apart. */
#include "orield/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "wire/icrc_method.h"

static int build_state(struct daemon *daemon)
{
	struct config *config = &daemon->config;
	struct transport_sizes sizes = { .qps = config->max_qps,
					 .cqs = config->max_qps,
					 .srqs = 1024,
					 .addresses = 16384,
					 .resources = config->max_qps * 16,
					 .flights = 65536,
					 .workers = config->net.workers,
					 .sessions = CONTROL_MAX_SESSIONS };
	struct memory_sizes memory = { .tokens = config->max_windows,
				       .segments = 4096,
				       .regions = 65536,
				       .windows = config->max_windows,
				       .pds = 16384 };
	struct arena_spec spec[ARENA_TABLES] = { 0 };
	int error;

	memory_arena_spec(&memory, spec);
	transport_arena_spec(&sizes, spec);
	control_arena_spec(&config->control, spec);
	error = arena_create(&daemon->arena, spec);
	if (error)
		return error;
	error = memory_create(&daemon->memory, &daemon->arena, config->net.workers, false);
	if (error)
		return error;
	error = transport_shared_create(&daemon->shared, &daemon->arena, daemon->memory, &sizes,
					false);
	if (error)
		return error;
	transport_set_congestion(daemon->shared, &config->congestion);
	return 0;
}

/* Clear of multicast and universal bits, so never a real adapter's GUID. */
static int draw_guid(uint8_t guid[8])
{
	if (getrandom(guid, 8, 0) != 8)
		return -EIO;
	guid[0] = (uint8_t)((guid[0] & 0xfc) | 0x02);
	return 0;
}

static int fail(const char *what, int error, const char **message)
{
	static char text[128];

	snprintf(text, sizeof(text), "%s: %s", what, strerror(-error));
	*message = text;
	return error;
}

int daemon_start(struct daemon *daemon, char *const eal_arguments[], const char **message)
{
	struct config *config = &daemon->config;
	int error;

	icrc_choose();
	error = draw_guid(config->control.cm.ca_guid);
	if (error)
		return fail("random numbers", error, message);
	error = build_state(daemon);
	if (error)
		return fail("memory for the daemon's tables", error, message);
	/* Before EAL: a second daemon on the same socket ends here, having touched nothing. */
	error = control_create(&daemon->control, &config->control, &daemon->arena, daemon->memory,
			       daemon->shared, message);
	if (error)
		return error;
	error = net_init_eal(&config->net, config->control.socket_path, eal_arguments, message);
	if (!error)
		error = net_create(&daemon->net, &config->net, daemon->shared, daemon->memory,
				   control_net_io(daemon->control), message);
	if (error)
		return error;
	error = control_attach_net(daemon->control, daemon->net);
	if (error)
		return fail("event descriptors", error, message);
	error = net_start_workers(daemon->net);
	return error ? fail("starting the workers", error, message) : 0;
}

void daemon_finish(struct daemon *daemon)
{
	if (daemon->net)
		net_stop_workers(daemon->net);
	control_destroy(daemon->control);
	if (daemon->net)
		net_destroy(daemon->net);
	transport_shared_destroy(daemon->shared);
	memory_destroy(daemon->memory);
	arena_destroy(&daemon->arena);
}
