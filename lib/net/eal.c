/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts DPDK's environment: cores, memory, devices, quietly. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "net/eal.h"
#include "net/message.h"
#include "net/signals.h"

#define EVERYBODY_MIB 1024u

/* --- the vector -------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int add(struct eal_arguments *arguments,
						     const char *format, ...)
{
	char *text = arguments->text + arguments->used;
	size_t room = sizeof(arguments->text) - arguments->used;
	va_list list;
	int length;

	va_start(list, format);
	length = vsnprintf(text, room, format, list);
	va_end(list);
	if (length < 0 || (size_t)length >= room || arguments->count == EAL_MAX_ARGUMENTS)
		return -E2BIG;
	arguments->argument[arguments->count++] = text;
	arguments->used += (size_t)length + 1;
	return 0;
}

/* Whether `extra` holds an option, as "--name", "--name=value" or "-nvalue". */
static bool given(char *const extra[], const char *option)
{
	size_t length = strlen(option);
	bool is_short = option[1] != '-';

	for (; extra && *extra; extra++) {
		if (strncmp(*extra, option, length) != 0)
			continue;
		if (is_short || (*extra)[length] == '\0' || (*extra)[length] == '=')
			return true;
	}
	return false;
}

/* FNV-1a: the same daemon finds its own left-overs again, another has another prefix. */
static uint64_t instance_hash(const char *instance)
{
	uint64_t hash = 14695981039346656037ull;

	for (; *instance; instance++)
		hash = (hash ^ (uint8_t)*instance) * 1099511628211ull;
	return hash;
}

/* Whichever it is: EAL reads the NUMA node from it. */
static uint32_t this_cpu(void)
{
	int cpu = sched_getcpu();

	return cpu < 0 ? 0 : (uint32_t)cpu;
}

/*
 * Logical lcore 0 is control, 1 .. are the workers, wherever they run: two lcores may share
 * a CPU, which EAL's plain core list cannot say.
 */
static int add_cores(struct eal_arguments *arguments, const struct net_config *config)
{
	char map[32 + NET_MAX_WORKERS * 16];
	int used;

	if (config->caller_runs)
		return add(arguments, "--lcores=0@%u", this_cpu());
	used = snprintf(map, sizeof(map), "0@%u", config->control_cpu);
	for (uint32_t w = 0; w < config->workers; w++)
		used += snprintf(map + used, sizeof(map) - (size_t)used, ",%u@%u", w + 1,
				 config->worker_cpu[w]);
	return add(arguments, "--lcores=%s", map);
}

static int add_memory(struct eal_arguments *arguments, const struct net_config *config,
		      char *const extra[])
{
	int error;

	/* Needs no mount of hugetlbfs, and nothing stays behind however the process ends. */
	if (config->hugepages)
		return given(extra, "--in-memory") ? 0 : add(arguments, "--in-memory");
	error = add(arguments, "--no-huge");
	if (!error && config->caller_runs)
		error = add(arguments, "--no-shconf"); /* no files, as above */
	if (!error && !given(extra, "-m") && !given(extra, "--socket-mem"))
		error = add(arguments, "-m%u", eal_memory_mib(config));
	return error;
}

static int add_devices(struct eal_arguments *arguments, const struct net_config *config,
		       char *const extra[], const char **message)
{
	bool pci = given(extra, "-a") || given(extra, "--allow");
	int error = 0;

	for (uint32_t p = 0; !error && p < config->ports; p++) {
		struct device device;

		error = device_parse(&device, &config->port[p], config->workers, message);
		if (error)
			return error;
		if (device.pci)
			error = add(arguments, "-a%s", device.text);
		else if (!config->caller_runs) /* else it comes and goes with its port */
			error = add(arguments, "--vdev=%s", device.text);
		pci |= device.pci;
	}
	if (!error && !pci && !given(extra, "--no-pci"))
		error = add(arguments, "--no-pci");
	return error;
}

uint32_t eal_memory_mib(const struct net_config *config)
{
	uint64_t bytes = 0;
	uint32_t mib;

	for (uint32_t p = 0; p < config->ports; p++) {
		struct device device;
		const char *message;

		if (device_parse(&device, &config->port[p], config->workers, &message) == 0)
			bytes += pool_bytes_per_worker(device.room) * config->workers;
	}
	/* Rings, queues, drivers; and the gaps of EAL's allocator. */
	mib = (uint32_t)((bytes + bytes / 4) >> 20) + 64 + 8 * config->workers;
	/* Whoever opens a data plane later in this process may have more and larger ports. */
	return config->caller_runs && mib < EVERYBODY_MIB ? EVERYBODY_MIB : mib;
}

int eal_arguments_build(struct eal_arguments *arguments, const struct net_config *config,
			const char *instance, char *const extra[], const char **message)
{
	static const char *const ours[] = { "-l", "-c", "--lcores", "--main-lcore", "--no-huge" };
	int error;

	memset(arguments, 0, sizeof(*arguments));
	arguments->verbose = given(extra, "--log-level");
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		if (given(extra, ours[i])) {
			*message = net_message("EAL argument %s: set workers, control-core and "
					       "hugepages in the configuration instead",
					       ours[i]);
			return -EINVAL;
		}
	}
	error = add(arguments, "oriel");
	if (!error)
		error = add_cores(arguments, config);
	if (!error)
		error = add_memory(arguments, config, extra);
	if (!error && !given(extra, "--file-prefix"))
		error = add(arguments, "--file-prefix=oriel-%016llx",
			    (unsigned long long)instance_hash(instance));
	if (!error && !arguments->verbose)
		error = add(arguments, "--log-level=error");
	/* Its socket's place is one per user, and the process may have one of its own. */
	if (!error && config->caller_runs)
		error = add(arguments, "--no-telemetry");
	if (!error)
		error = add_devices(arguments, config, extra, message);
	for (; !error && extra && *extra; extra++) {
		if (arguments->count == EAL_MAX_ARGUMENTS)
			error = -E2BIG;
		else
			arguments->argument[arguments->count++] = *extra;
	}
	if (error == -E2BIG) {
		*message = "EAL arguments: too many or too long";
		error = -EINVAL;
	}
	return error;
}

/* --- starting ---------------------------------------------------------------------- */

/* EAL ends the process when it cannot pin a thread, so that is looked at before. */
static int check_cpus(const struct net_config *config, const char **message)
{
	cpu_set_t allowed;

	if (config->caller_runs || sched_getaffinity(0, sizeof(allowed), &allowed))
		return 0; /* more CPUs than the set has room for: EAL will see */
	if (config->control_cpu >= CPU_SETSIZE || !CPU_ISSET(config->control_cpu, &allowed)) {
		*message = net_message("control-core = %u: this process may not run on that CPU",
				       config->control_cpu);
		return -EINVAL;
	}
	for (uint32_t w = 0; w < config->workers; w++) {
		uint32_t cpu = config->worker_cpu[w];

		if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed)) {
			*message =
				net_message("workers: CPU %u: this process may not run on it", cpu);
			return -EINVAL;
		}
	}
	return 0;
}

static void warn_of_overlap(const struct net_config *config)
{
	for (uint32_t w = 0; w < config->workers; w++) {
		bool overlap = config->worker_cpu[w] == config->control_cpu;

		for (uint32_t other = 0; other < w; other++)
			overlap |= config->worker_cpu[w] == config->worker_cpu[other];
		if (overlap) {
			net_warn("CPU %u runs a worker and something else that polls%s",
				 config->worker_cpu[w],
				 config->idle == NET_IDLE_BUSY
					 ? "; with idle = busy they take it from each other"
					 : "");
			return;
		}
	}
}

/* EAL stops at a virtual device whose driver it does not have. */
static const char *missing_driver(const struct net_config *config)
{
	for (uint32_t p = 0; p < config->ports; p++) {
		const struct net_port_config *port = &config->port[p];
		struct device device;
		const char *missing;

		if (device_parse(&device, port, config->workers, &missing))
			continue;
		missing = driver_missing(&device);
		if (missing)
			return net_port_message(port, 0, missing);
	}
	return NULL;
}

static const char *eal_failure(const struct net_config *config, unsigned int mark,
			       const char *reason)
{
	const char *cause = net_log_first(mark);
	const char *missing = missing_driver(config);

	if (net_log_mentions("Is another primary process running"))
		return "another daemon runs with the same socket; stop it, or give this one "
		       "another "
		       "socket or EAL's --file-prefix";
	if (net_log_mentions("Invalid 'command line' arguments"))
		return net_message("EAL does not take the arguments behind --: %s", cause);
	if (missing)
		return missing;
	return net_message("DPDK does not start: %s%s", cause ? cause : reason,
			   config->hugepages ? "; hugepages = no starts without hugepages" : "");
}

static int clear_sockets(const struct net_config *config, const char **message)
{
	for (uint32_t p = 0; p < config->ports; p++) {
		struct device device;
		int error = device_parse(&device, &config->port[p], config->workers, message);

		if (!error)
			error = device_clear_socket(&device, message);
		if (error)
			return error;
	}
	return 0;
}

/* EAL pins the thread that starts it; a caller's stays where its program wants it. */
static int start_eal(const struct net_config *config, struct eal_arguments *arguments)
{
	static bool started; /* as EAL is: once in a process, never again */
	struct held_signals held;
	cpu_set_t allowed;
	bool known;
	int error = 0;

	if (!config->caller_runs)
		return rte_eal_init(arguments->count, arguments->argument) < 0 ? -1 : 0;
	if (started)
		return 0;
	known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
	signals_hold(&held);
	error = rte_eal_init(arguments->count, arguments->argument) < 0 ? -1 : 0;
	signals_release(&held);
	if (known)
		sched_setaffinity(0, sizeof(allowed), &allowed);
	started = error == 0;
	return error;
}

int net_init_eal(const struct net_config *config, const char *program, char *const eal_arguments[],
		 const char **message)
{
	struct eal_arguments arguments;
	unsigned int mark;
	int error;

	error = check_cpus(config, message);
	if (!error)
		error = clear_sockets(config, message);
	if (!error)
		error = eal_arguments_build(&arguments, config, program, eal_arguments, message);
	if (error)
		return error;
	if (!config->caller_runs && !config->port[0].bare) /* else one thread is all there is */
		warn_of_overlap(config);
	net_log_capture(arguments.verbose);
	mark = net_log_mark();
	/* EAL keeps pointers into the vector no longer than this call. */
	if (start_eal(config, &arguments)) {
		error = rte_errno ? -rte_errno : -EIO;
		net_log_release();
		*message = eal_failure(config, mark, rte_strerror(-error));
		return error;
	}
	return 0;
}
