/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's configuration file. */
#include "orield/config.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ini.h"
#include "orield/config_congestion.h"
#include "orield/fault.h"

struct parse {
	struct config *config;
	struct ini_reader reader;
	bool caller_runs;             /* which processors are named does not matter */
	struct net_port_config *port; /* the section that is being read */
	uint64_t seen_daemon;         /* keys, by place in the table */
	uint64_t seen_port[NET_MAX_PORTS];
	uint64_t seen_fault[NET_MAX_PORTS];
	unsigned int fault_line[NET_MAX_PORTS];
	unsigned int port_line[NET_MAX_PORTS]; /* of its first key */
	unsigned int gateway_line[NET_MAX_PORTS];
	unsigned int rate_line; /* [congestion]: of line-rate and minimum-rate, the later */
	uint64_t seen_congestion;
	bool has_v4[NET_MAX_PORTS], has_v6[NET_MAX_PORTS];
};

struct key {
	const char *name;
	void (*set)(struct parse *parse, const struct ini_entry *entry);
};

/* --- [daemon] ----------------------------------------------------------------------------- */

static bool cpu_usable(const struct parse *parse, const struct ini_entry *entry, uint64_t cpu)
{
	cpu_set_t allowed;

	if (parse->caller_runs || sched_getaffinity(0, sizeof(allowed), &allowed))
		return true;
	if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed))
		return true;
	ini_refuse(entry, "processors that this machine has and this process may use; %llu is not",
		   (unsigned long long)cpu);
	return false;
}

static void add_workers(struct parse *parse, const struct ini_entry *entry, uint64_t first,
			uint64_t last)
{
	struct net_config *net = &parse->config->net;

	for (uint64_t cpu = first; cpu <= last; cpu++) {
		if (net->workers == NET_MAX_WORKERS) {
			ini_refuse(entry, "at most %u workers", NET_MAX_WORKERS);
			return;
		}
		for (uint32_t w = 0; w < net->workers; w++) {
			if (net->worker_cpu[w] == cpu) {
				ini_refuse(entry, "each processor once; %llu is named twice",
					   (unsigned long long)cpu);
				return;
			}
		}
		if (!cpu_usable(parse, entry, cpu))
			return;
		net->worker_cpu[net->workers++] = (uint32_t)cpu;
	}
}

/* "1", "1,2", "2-5,8" */
static void set_workers(struct parse *parse, const struct ini_entry *entry)
{
	const char *list = entry->value;
	unsigned int errors = entry->reader->errors;
	char element[64];

	while (entry->reader->errors == errors && ini_next(&list, element, sizeof(element))) {
		unsigned int first, last;
		int length = 0;
		int n = sscanf(element, "%4u%n-%4u%n", &first, &length, &last, &length);

		if (n < 1 || element[length] || element[0] == '-' || element[0] == '+' ||
		    (n == 2 && last < first)) {
			ini_refuse(entry, "processor numbers and ranges, as 1 or 2-5,8");
			return;
		}
		add_workers(parse, entry, first, n == 2 ? last : first);
	}
	if (!parse->config->net.workers && entry->reader->errors == errors)
		ini_refuse(entry, "at least one processor");
}

static void set_control_core(struct parse *parse, const struct ini_entry *entry)
{
	uint64_t cpu;

	if (ini_get_number(entry, 0, CPU_SETSIZE - 1, &cpu) && cpu_usable(parse, entry, cpu))
		parse->config->net.control_cpu = (uint32_t)cpu;
}

static void set_socket(struct parse *parse, const struct ini_entry *entry)
{
	struct control_config *control = &parse->config->control;

	if (entry->value[0] != '/')
		ini_refuse(entry, "an absolute path");
	else
		ini_get_string(entry, control->socket_path, sizeof(control->socket_path));
}

static void set_socket_group(struct parse *parse, const struct ini_entry *entry)
{
	struct control_config *control = &parse->config->control;

	if (!ini_get_string(entry, control->socket_group, sizeof(control->socket_group)))
		return;
	if (!parse->caller_runs && entry->value[0] && !getgrnam(entry->value))
		ini_refuse(entry, "a group of this machine; 'groupadd --system %s' makes it",
			   entry->value);
}

static void set_idle(struct parse *parse, const struct ini_entry *entry)
{
	static const char *const choices[] = { "busy", "adaptive", NULL };
	unsigned int choice;

	if (ini_get_choice(entry, choices, &choice))
		parse->config->net.idle = choice ? NET_IDLE_ADAPTIVE : NET_IDLE_BUSY;
}

static void set_hugepages(struct parse *parse, const struct ini_entry *entry)
{
	static const char *const choices[] = { "yes", "no", "auto", NULL };

	ini_get_choice(entry, choices, &parse->config->hugepages);
}

static void set_telemetry(struct parse *parse, const struct ini_entry *entry)
{
	static const char *const choices[] = { "no", "yes", NULL };
	unsigned int choice;

	if (ini_get_choice(entry, choices, &choice))
		parse->config->telemetry = choice;
}

static void set_migrate(struct parse *parse, const struct ini_entry *entry)
{
	static const char *const choices[] = { "no", "yes", NULL };
	unsigned int choice;

	if (ini_get_choice(entry, choices, &choice))
		parse->config->net.migrate = choice;
}

static void set_bad_token_budget(struct parse *parse, const struct ini_entry *entry)
{
	uint64_t number;

	if (ini_get_number(entry, 0, 1000000, &number))
		parse->config->control.bad_token_budget = (uint32_t)number;
}

static bool get_power_of_two(const struct ini_entry *entry, uint64_t minimum, uint64_t maximum,
			     uint32_t *value)
{
	uint64_t number;

	if (!ini_get_number(entry, minimum, maximum, &number))
		return false;
	if (number & (number - 1)) {
		ini_refuse(entry, "a power of two from %llu to %llu", (unsigned long long)minimum,
			   (unsigned long long)maximum);
		return false;
	}
	*value = (uint32_t)number;
	return true;
}

static void set_max_qps(struct parse *parse, const struct ini_entry *entry)
{
	get_power_of_two(entry, 16, 131072, &parse->config->max_qps);
}

static void set_max_windows(struct parse *parse, const struct ini_entry *entry)
{
	get_power_of_two(entry, 256, 4194304, &parse->config->max_windows);
}

static const struct key daemon_keys[] = {
	{ "workers", set_workers },
	{ "control-core", set_control_core },
	{ "socket", set_socket },
	{ "socket-group", set_socket_group },
	{ "idle", set_idle },
	{ "hugepages", set_hugepages },
	{ "migrate", set_migrate },
	{ "telemetry", set_telemetry },
	{ "bad-token-budget", set_bad_token_budget },
	{ "max-queue-pairs", set_max_qps },
	{ "max-windows", set_max_windows },
	{ NULL, NULL },
};

/* --- [port NAME] ----------------------------------------------------------------------------- */

static unsigned int port_number(const struct parse *parse)
{
	return (unsigned int)(parse->port - parse->config->net.port);
}

static void set_device(struct parse *parse, const struct ini_entry *entry)
{
	if (ini_get_string(entry, parse->port->device, sizeof(parse->port->device)))
		parse->port->device_line = entry->reader->line;
}

static bool address_usable(const uint8_t gid[16], bool v4)
{
	static const uint8_t zero[16];

	if (v4)
		return gid[12] != 0 && gid[12] != 127 && gid[12] < 224;
	return memcmp(gid, zero, 15) != 0 && gid[0] != 0xff;
}

/* "10.0.0.1/24", "fd00::1/64" */
static bool parse_prefix(char *text, struct net_address *address, bool *v4)
{
	char *slash = strchr(text, '/');
	char *end;
	unsigned long length;

	if (!slash)
		return false;
	*slash = '\0';
	if (!address_parse(text, address->gid, v4) || !address_usable(address->gid, *v4))
		return false;
	length = strtoul(slash + 1, &end, 10);
	if (slash[1] < '0' || slash[1] > '9' || *end || length < 1 || length > (*v4 ? 32 : 128))
		return false;
	address->prefix_length = (uint32_t)length + (*v4 ? 96 : 0);
	return true;
}

static bool address_taken(const struct net_config *net, const uint8_t gid[16])
{
	for (uint32_t p = 0; p < net->ports; p++)
		for (uint32_t a = 0; a < net->port[p].addresses; a++)
			if (!memcmp(net->port[p].address[a].gid, gid, 16))
				return true;
	return false;
}

static void set_ip(struct parse *parse, const struct ini_entry *entry)
{
	const char *list = entry->value;
	char element[96];

	while (ini_next(&list, element, sizeof(element))) {
		struct net_address address;
		bool v4;

		if (!parse_prefix(element, &address, &v4)) {
			ini_refuse(
				entry,
				"unicast addresses with prefix length, as 10.0.0.1/24, fd00::1/64");
			return;
		}
		if (address_taken(&parse->config->net, address.gid)) {
			ini_refuse(entry, "each address once; %s is given twice", element);
			return;
		}
		if (parse->port->addresses == NET_MAX_ADDRESSES) {
			ini_refuse(entry, "at most %u addresses", NET_MAX_ADDRESSES);
			return;
		}
		parse->port->address[parse->port->addresses++] = address;
		*(v4 ? &parse->has_v4[port_number(parse)] : &parse->has_v6[port_number(parse)]) =
			true;
	}
	if (!parse->port->addresses)
		ini_refuse(entry, "at least one address, as 10.0.0.1/24");
}

static void set_vlan(struct parse *parse, const struct ini_entry *entry)
{
	uint64_t number;

	if (ini_get_number(entry, 0, 4094, &number))
		parse->port->vlan = (uint16_t)number;
}

static void set_mtu(struct parse *parse, const struct ini_entry *entry)
{
	uint64_t number;

	parse->port->mtu_line = entry->reader->line;
	if (ini_get_number(entry, 576, 9600, &number))
		parse->port->mtu = (uint16_t)number;
}

static void set_gateway(struct parse *parse, const struct ini_entry *entry)
{
	const char *list = entry->value;
	char element[96];

	parse->gateway_line[port_number(parse)] = entry->reader->line;
	while (ini_next(&list, element, sizeof(element))) {
		uint8_t gid[16];
		bool v4;

		if (!address_parse(element, gid, &v4) || !address_usable(gid, v4)) {
			ini_refuse(entry, "the address of a router, as 10.0.0.254");
			return;
		}
		memcpy(v4 ? parse->port->gateway4 : parse->port->gateway6, gid, 16);
	}
}

/* "peer", or a number. */
static void set_dscp(struct parse *parse, const struct ini_entry *entry)
{
	uint64_t number;

	parse->port->own_dscp = strcmp(entry->value, "peer") != 0;
	if (parse->port->own_dscp && ini_get_number(entry, 0, 63, &number))
		parse->port->dscp = (uint8_t)number;
}

static const struct key port_keys[] = {
	{ "device", set_device },   { "ip", set_ip },     { "vlan", set_vlan }, { "mtu", set_mtu },
	{ "gateway", set_gateway }, { "dscp", set_dscp }, { NULL, NULL },
};

/* --- [fault NAME] ---------------------------------------------------------------------------- */

/* "receive-loss": direction and what struct net_fault has; the seed is that of both. */
static void set_fault(struct parse *parse, const struct ini_entry *entry)
{
	struct net_fault *fault = parse->port->fault;
	const char *expected;

	if (!strncmp(entry->key, "receive-", 8)) {
		expected = fault_set(&fault[NET_RECEIVE], entry->key + 8, entry->value);
	} else if (!strncmp(entry->key, "transmit-", 9)) {
		expected = fault_set(&fault[NET_TRANSMIT], entry->key + 9, entry->value);
	} else {
		expected = fault_set(&fault[NET_RECEIVE], entry->key, entry->value);
		fault[NET_TRANSMIT].seed = fault[NET_RECEIVE].seed;
	}
	if (expected)
		ini_refuse(entry, "%s", expected);
}

static const struct key fault_keys[] = {
	{ "receive-loss", set_fault },
	{ "receive-duplicate", set_fault },
	{ "receive-reorder", set_fault },
	{ "receive-corrupt", set_fault },
	{ "receive-delay", set_fault },
	{ "receive-delay-us", set_fault },
	{ "transmit-loss", set_fault },
	{ "transmit-duplicate", set_fault },
	{ "transmit-reorder", set_fault },
	{ "transmit-corrupt", set_fault },
	{ "transmit-delay", set_fault },
	{ "transmit-delay-us", set_fault },
	{ "seed", set_fault },
	{ NULL, NULL },
};

/* --- sections and keys ------------------------------------------------------------------------ */

static void run_key(struct parse *parse, const struct ini_entry *entry, const struct key *keys,
		    uint64_t *seen)
{
	char known[384];
	size_t used = 0;

	for (unsigned int i = 0; keys[i].name; i++) {
		if (strcmp(entry->key, keys[i].name) != 0)
			continue;
		if (*seen & 1ull << i)
			ini_refuse(entry, "each key once in a section");
		else
			keys[i].set(parse, entry);
		*seen |= 1ull << i;
		return;
	}
	for (unsigned int i = 0; keys[i].name && used < sizeof(known); i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
					 keys[i].name);
	ini_refuse(entry, "one of the keys %s", known);
}

/* The port of "[port NAME]" or "[fault NAME]": a known or a new one; NULL after a refusal. */
static struct net_port_config *find_port(struct parse *parse, const struct ini_entry *entry)
{
	struct net_config *net = &parse->config->net;
	const char *name = strchr(entry->section, ' ');
	struct net_port_config *port;

	while (*name == ' ')
		name++;
	for (uint32_t p = 0; p < net->ports; p++)
		if (!strcmp(net->port[p].name, name))
			return &net->port[p];
	if (!*name || strlen(name) >= sizeof(port->name)) {
		ini_refuse(entry, "a name of 1 to 31 characters in the section's [... NAME]");
		return NULL;
	}
	if (net->ports == NET_MAX_PORTS) {
		ini_refuse(entry, "at most %u ports", NET_MAX_PORTS);
		return NULL;
	}
	port = &net->port[net->ports++];
	snprintf(port->name, sizeof(port->name), "%s", name);
	port->file = parse->config->path;
	port->mtu = 1500;
	fault_default(&port->fault[NET_RECEIVE]);
	fault_default(&port->fault[NET_TRANSMIT]);
	return port;
}

static void on_entry(void *context, const struct ini_entry *entry)
{
	struct parse *parse = context;

	if (!strcmp(entry->section, "daemon")) {
		run_key(parse, entry, daemon_keys, &parse->seen_daemon);
	} else if (!strncmp(entry->section, "port ", 5)) {
		parse->port = find_port(parse, entry);
		if (!parse->port)
			return;
		if (!parse->seen_port[port_number(parse)])
			parse->port_line[port_number(parse)] = entry->reader->line;
		run_key(parse, entry, port_keys, &parse->seen_port[port_number(parse)]);
	} else if (!strncmp(entry->section, "fault ", 6)) {
		parse->port = find_port(parse, entry);
		if (!parse->port)
			return;
		parse->fault_line[port_number(parse)] = entry->reader->line;
		run_key(parse, entry, fault_keys, &parse->seen_fault[port_number(parse)]);
	} else if (!strcmp(entry->section, "congestion")) {
		if (!strcmp(entry->key, "line-rate") || !strcmp(entry->key, "minimum-rate"))
			parse->rate_line = entry->reader->line;
		config_congestion_key(&parse->config->congestion, entry, &parse->seen_congestion);
	} else {
		ini_refuse(entry, "a section [daemon], [congestion], [port NAME] or [fault NAME]");
	}
}

/* False when the port is there only because of its faults. */
static bool check_faults(struct parse *parse, unsigned int number)
{
	const struct net_port_config *port = &parse->config->net.port[number];
	unsigned int line = parse->fault_line[number];

	if (line && !parse->seen_port[number]) {
		ini_complain(&parse->reader, "fault", port->name, line,
			     "there is no section [port %s]", port->name);
		return false;
	}
	for (enum net_direction d = NET_RECEIVE; d <= NET_TRANSMIT; d++)
		if (!fault_fits(&port->fault[d]))
			ini_complain(&parse->reader, "fault", port->name, line,
				     "the %s faults are more than 100%% together",
				     d == NET_RECEIVE ? "receive" : "transmit");
	return true;
}

static void check_whole(struct parse *parse)
{
	struct net_config *net = &parse->config->net;
	static const uint8_t none[16];
	struct ini_reader *reader = &parse->reader;

	if (!net->ports)
		ini_complain(reader, NULL, NULL, 0, "expected at least one section [port NAME]");
	for (uint32_t p = 0; p < net->ports; p++) {
		struct net_port_config *port = &net->port[p];

		if (!check_faults(parse, p))
			continue;
		if (!port->device[0])
			ini_complain(reader, "port", port->name, parse->port_line[p],
				     "expected device = a PCI address or a vdev, as "
				     "net_af_packet0,iface=eth1");
		if (!port->addresses)
			ini_complain(reader, "port", port->name, parse->port_line[p],
				     "expected ip = ADDRESS/LENGTH");
		if ((memcmp(port->gateway4, none, 16) != 0 && !parse->has_v4[p]) ||
		    (memcmp(port->gateway6, none, 16) != 0 && !parse->has_v6[p]))
			ini_complain(reader, "port", port->name, parse->gateway_line[p],
				     "gateway is of a family in which the port has no address");
		for (uint32_t q = 0; q < p; q++)
			if (port->device[0] && !strcmp(port->device, net->port[q].device))
				ini_complain(reader, "port", port->name, port->device_line,
					     "device %s is already that of port %s", port->device,
					     net->port[q].name);
	}
	config_congestion_check(&parse->config->congestion, reader, parse->rate_line);
	if (!net->workers) {
		/* On a machine of one processor, both share it. */
		net->worker_cpu[0] = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 1 : 0;
		net->workers = 1;
	}
}

/* One worker, which stands for all that are named; nobody else's business with this process. */
static void suit_caller(struct config *config)
{
	config->net.caller_runs = true;
	config->net.workers = 1;
	config->net.worker_cpu[0] = 0;
	config->net.migrate = false;
	config->control.name = "oriel in-process";
	config->control.socket_path[0] = '\0';
	config->telemetry = false;
}

int config_read(struct config *config, const char *path, bool caller_runs, FILE *messages)
{
	struct parse parse = { .config = config,
			       .reader = { .messages = messages },
			       .caller_runs = caller_runs };
	int error;

	*config = (struct config){
		.path = path,
		.messages = messages,
		.net = { .idle = NET_IDLE_ADAPTIVE, .migrate = true },
		.control = { .name = "orield",
			     .socket_path = "/run/oriel/ndk.sock",
			     .bad_token_budget = 64,
			     .objects = 1u << OBJECT_INDEX_BITS, /* pages come as they are used */
			     .cm = { .connections = 16384,
				     .backlog = 1024,
				     .requests_per_peer = 256 } },
		.hugepages = HUGEPAGES_AUTO,
		.telemetry = true,
		.max_qps = 16384,
		.max_windows = 1048576,
	};
	congestion_defaults(&config->congestion, 0);
	error = ini_read(&parse.reader, path, on_entry, &parse);
	if (error)
		return error; /* what was refused would only be said to be missing as well */
	check_whole(&parse);
	if (caller_runs)
		suit_caller(config);
	return parse.reader.errors ? -EINVAL : 0;
}
