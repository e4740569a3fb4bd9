/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's state on DPDK's telemetry socket. */
#include "orield/telemetry.h"

#include <errno.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_telemetry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/ini.h"
#include "orield/fault.h"

/* A reply holds 16 KiB at the most: so many queue pairs, and the rest by another request. */
#define MOST_QPS 48u

/*
 * The library has a thread for each client, and asks no end of them. So whoever answers holds the
 * lock, and what he shows stays as long; who ends the daemon waits for no more than those.
 */
static struct {
	pthread_rwlock_t lock;
	const struct control *control;
	struct net *net; /* NULL: the daemon ends */
	struct transport_shared *shared;
	char link[128];
} telemetry = { .lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP };

/* The library nests dictionaries in dictionaries only, so lists are keyed by number. */
static void add_numbered(struct rte_tel_data *data, unsigned int number, struct rte_tel_data *part)
{
	char key[16];

	snprintf(key, sizeof(key), "%u", number);
	if (rte_tel_data_add_dict_container(data, key, part, 0))
		rte_tel_data_free(part);
}

static void add_connection_counters(struct rte_tel_data *data, const struct cm_statistics *cm)
{
	rte_tel_data_add_dict_u64(data, "connections", cm->established);
	rte_tel_data_add_dict_u64(data, "connections_pending", cm->pending);
	rte_tel_data_add_dict_u64(data, "connections_timewait", cm->timewait);
	rte_tel_data_add_dict_u64(data, "cm_malformed", cm->malformed);
	rte_tel_data_add_dict_u64(data, "cm_duplicates", cm->duplicates);
	rte_tel_data_add_dict_u64(data, "cm_no_listener", cm->no_listener);
	rte_tel_data_add_dict_u64(data, "cm_backlog", cm->refused_backlog);
	rte_tel_data_add_dict_u64(data, "cm_timeouts", cm->timeouts);
}

static int on_status(const char *command, const char *parameters, struct rte_tel_data *data)
{
	static const char *const names[OBJECT_TYPES] = {
		[OBJECT_TYPE_PD] = "pds",
		[OBJECT_TYPE_CQ] = "cqs",
		[OBJECT_TYPE_MR] = "mrs",
		[OBJECT_TYPE_MW] = "mws",
		[OBJECT_TYPE_QP] = "qps",
		[OBJECT_TYPE_CONNECTOR] = "connectors",
		[OBJECT_TYPE_LISTENER] = "listeners",
		[OBJECT_TYPE_SRQ] = "srqs",
		[OBJECT_TYPE_AH] = "addresses",
		[OBJECT_TYPE_ENDPOINT] = "endpoints",
	};
	struct control_status status;

	control_get_status(telemetry.control, &status);
	rte_tel_data_start_dict(data);
	rte_tel_data_add_dict_string(data, "version", ORIEL_VERSION);
	rte_tel_data_add_dict_u64(data, "pid", (uint64_t)getpid());
	rte_tel_data_add_dict_u64(data, "uptime_seconds", (uint64_t)time(NULL) - status.started);
	rte_tel_data_add_dict_u64(data, "workers", net_get_config(telemetry.net)->workers);
	rte_tel_data_add_dict_u64(data, "ports", net_get_config(telemetry.net)->ports);
	rte_tel_data_add_dict_u64(data, "sessions", status.sessions);
	for (unsigned int type = OBJECT_TYPE_PD; type < OBJECT_TYPES; type++)
		rte_tel_data_add_dict_u64(data, names[type], status.objects[type]);
	add_connection_counters(data, &status.cm);
	rte_tel_data_add_dict_u64(data, "tokens_valid", status.memory.tokens_valid);
	rte_tel_data_add_dict_u64(data, "tokens_reserved", status.memory.tokens_reserved);
	rte_tel_data_add_dict_u64(data, "memory_bytes", status.memory.bytes);
	rte_tel_data_add_dict_u64(data, "sessions_opened", status.sessions_opened);
	rte_tel_data_add_dict_u64(data, "sessions_refused", status.sessions_refused);
	rte_tel_data_add_dict_u64(data, "sessions_broken", status.sessions_broken);
	rte_tel_data_add_dict_u64(data, "bad_tokens", status.bad_tokens);
	rte_tel_data_add_dict_u64(data, "peers_shut_out", status.peers_shut_out);
	return 0;
}

/* What was done to frames on purpose, so that the sum of fates comes out even. */
static void add_faults(struct rte_tel_data *data, const char *direction,
		       const struct net_fault_counts *counts)
{
	const struct {
		const char *name;
		uint64_t count;
	} values[] = {
		{ "lost", counts->lost },           { "duplicated", counts->duplicated },
		{ "reordered", counts->reordered }, { "corrupted", counts->corrupted },
		{ "delayed", counts->delayed },     { "held", counts->held },
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		char key[32];

		snprintf(key, sizeof(key), "fault_%s_%s", direction, values[i].name);
		rte_tel_data_add_dict_u64(data, key, values[i].count);
	}
}

static struct rte_tel_data *port_data(unsigned int port)
{
	struct rte_tel_data *data = rte_tel_data_alloc();
	const struct net_port_config *config = &net_get_config(telemetry.net)->port[port];
	struct net_port_status status;
	char text[256];
	size_t used = 0;

	if (!data || !net_port_status(telemetry.net, port, &status))
		return data;
	rte_tel_data_start_dict(data);
	rte_tel_data_add_dict_string(data, "name", status.name);
	rte_tel_data_add_dict_string(data, "driver", status.driver);
	rte_tel_data_add_dict_string(data, "link", status.link_up ? "up" : "down");
	snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", status.mac[0], status.mac[1],
		 status.mac[2], status.mac[3], status.mac[4], status.mac[5]);
	rte_tel_data_add_dict_string(data, "mac", text);
	text[0] = '\0';
	for (uint32_t a = 0; a < config->addresses && used < sizeof(text); a++) {
		char address[64];

		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", a ? " " : "",
					 address_format(config->address[a].gid, address));
	}
	rte_tel_data_add_dict_string(data, "addresses", text);
	rte_tel_data_add_dict_u64(data, "mtu", status.mtu);
	rte_tel_data_add_dict_u64(data, "rx_packets", status.rx_packets);
	rte_tel_data_add_dict_u64(data, "tx_packets", status.tx_packets);
	rte_tel_data_add_dict_u64(data, "rx_bytes", status.rx_bytes);
	rte_tel_data_add_dict_u64(data, "tx_bytes", status.tx_bytes);
	rte_tel_data_add_dict_u64(data, "rx_missed", status.rx_missed);
	rte_tel_data_add_dict_u64(data, "rx_errors", status.rx_errors);
	rte_tel_data_add_dict_u64(data, "rx_no_mbuf", status.rx_no_mbuf);
	rte_tel_data_add_dict_u64(data, "handed_over", status.handed_over);
	rte_tel_data_add_dict_u64(data, "flow_rules", status.flow_rules);
	rte_tel_data_add_dict_u64(data, "flow_rules_limit", status.flow_rules_limit);
	rte_tel_data_add_dict_u64(data, "flow_rules_made", status.flow_rules_made);
	rte_tel_data_add_dict_u64(data, "flow_rules_refused", status.flow_rules_refused);
	rte_tel_data_add_dict_u64(data, "arp_answered", status.arp_answered);
	rte_tel_data_add_dict_u64(data, "nd_answered", status.nd_answered);
	rte_tel_data_add_dict_u64(data, "icmp_answered", status.icmp_answered);
	rte_tel_data_add_dict_u64(data, "slow_refused", status.slow_refused);
	rte_tel_data_add_dict_u64(data, "tx_dropped", status.tx_dropped);
	add_faults(data, "rx", &status.fault[NET_RECEIVE]);
	add_faults(data, "tx", &status.fault[NET_TRANSMIT]);
	return data;
}

static int on_ports(const char *command, const char *parameters, struct rte_tel_data *data)
{
	rte_tel_data_start_dict(data);
	for (unsigned int p = 0; p < net_get_config(telemetry.net)->ports; p++) {
		struct rte_tel_data *port = port_data(p);

		if (port)
			add_numbered(data, p, port);
	}
	return 0;
}

static int on_workers(const char *command, const char *parameters, struct rte_tel_data *data)
{
	rte_tel_data_start_dict(data);
	for (unsigned int w = 0; w < net_get_config(telemetry.net)->workers; w++) {
		const struct transport_stats *stats = net_worker_stats(telemetry.net, w);
		struct rte_tel_data *worker = rte_tel_data_alloc();

		if (!worker)
			continue;
		rte_tel_data_start_dict(worker);
		rte_tel_data_add_dict_u64(worker, "worker", w);
		rte_tel_data_add_dict_u64(worker, "cpu",
					  net_get_config(telemetry.net)->worker_cpu[w]);
#define ADD(name) rte_tel_data_add_dict_u64(worker, #name, stats->name);
		TRANSPORT_COUNTERS(ADD)
#undef ADD
		add_numbered(data, w, worker);
	}
	return 0;
}

/* Every reason that has been counted, summed over the workers. */
static int on_verdicts(const char *command, const char *parameters, struct rte_tel_data *data)
{
	rte_tel_data_start_dict(data);
	for (uint32_t v = 1; v < VERDICTS; v++) {
		uint64_t sum = 0;

		if (!verdict_name(v))
			continue;
		for (unsigned int w = 0; w < net_get_config(telemetry.net)->workers; w++)
			sum += net_worker_stats(telemetry.net, w)->verdict[v];
		if (sum)
			rte_tel_data_add_dict_u64(data, verdict_name(v), sum);
	}
	return 0;
}

static int on_sessions(const char *command, const char *parameters, struct rte_tel_data *data)
{
	struct session_status status;

	rte_tel_data_start_dict(data);
	for (unsigned int n = 0; control_get_session(telemetry.control, n, &status); n++) {
		struct rte_tel_data *session = rte_tel_data_alloc();

		if (!session)
			continue;
		rte_tel_data_start_dict(session);
		rte_tel_data_add_dict_u64(session, "session", status.session);
		rte_tel_data_add_dict_string(session, "name", status.name);
		rte_tel_data_add_dict_u64(session, "pid", status.pid);
		rte_tel_data_add_dict_u64(session, "uid", status.uid);
		rte_tel_data_add_dict_u64(session, "objects", status.objects);
		add_numbered(data, status.session, session);
	}
	return 0;
}

/* parameters: index to begin with. A key is an index; less than MOST_QPS of them is the end. */
static int on_qps(const char *command, const char *parameters, struct rte_tel_data *data)
{
	static const char *const states[] = {
		"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERROR"
	};
	uint32_t first = parameters ? (uint32_t)strtoul(parameters, NULL, 10) : 0;
	unsigned int listed = 0;

	rte_tel_data_start_dict(data);
	for (uint32_t i = first ? first : 1;
	     i < qp_table_size(telemetry.shared) && listed < MOST_QPS; i++) {
		struct rte_tel_data *qp;
		struct qp_status status;
		char address[64];

		if (!qp_get_status(telemetry.shared, i, &status))
			continue;
		qp = rte_tel_data_alloc();
		if (!qp)
			break;
		listed++;
		rte_tel_data_start_dict(qp);
		rte_tel_data_add_dict_u64(qp, "qpn", status.qpn);
		rte_tel_data_add_dict_string(qp, "state",
					     status.state <= QP_ERROR ? states[status.state] : "?");
		rte_tel_data_add_dict_u64(qp, "session", status.session);
		rte_tel_data_add_dict_u64(qp, "worker", status.home);
		rte_tel_data_add_dict_u64(qp, "remote_qpn", status.remote_qpn);
		rte_tel_data_add_dict_string(qp, "remote",
					     address_format(status.remote_gid, address));
		rte_tel_data_add_dict_u64(qp, "messages_in", status.messages_in);
		rte_tel_data_add_dict_u64(qp, "messages_out", status.messages_out);
		rte_tel_data_add_dict_u64(qp, "rate", status.rate);
		add_numbered(data, i, qp);
	}
	return 0;
}

/* By the names of the configuration: periods in us, but rates in bytes per second. */
static void add_congestion(struct rte_tel_data *data,
			   const struct congestion_parameters *congestion)
{
	const struct {
		const char *name;
		uint64_t value;
	} shown[] = {
		{ "minimum_rate", congestion->minimum_rate },
		{ "gain", 1ull << congestion->gain_shift },
		{ "recovery_stages", congestion->recovery_stages },
		{ "additive_rate", congestion->additive_rate },
		{ "hyper_rate", congestion->hyper_rate },
		{ "alpha_period", congestion->alpha_period / 1000 },
		{ "increase_period", congestion->increase_period / 1000 },
		{ "increase_bytes", congestion->increase_bytes },
		{ "reduce_period", congestion->reduce_period / 1000 },
		{ "cnp_interval", congestion->cnp_interval / 1000 },
		{ "cnp_dscp", congestion->cnp_dscp },
	};

	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		rte_tel_data_add_dict_u64(data, shown[i].name, shown[i].value);
}

/* parameters: "on", "off", or none. */
static int on_congestion(const char *command, const char *parameters, struct rte_tel_data *data)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* settings want one writer */
	struct congestion_parameters congestion;

	if (parameters && strcmp(parameters, "on") != 0 && strcmp(parameters, "off") != 0)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	transport_get_congestion(telemetry.shared, &congestion);
	if (parameters) {
		congestion.enabled = !strcmp(parameters, "on");
		transport_set_congestion(telemetry.shared, &congestion);
	}
	pthread_mutex_unlock(&lock);
	rte_tel_data_start_dict(data);
	rte_tel_data_add_dict_string(data, "control", congestion.enabled ? "on" : "off");
	rte_tel_data_add_dict_u64(data, "line_rate", transport_line_rate(telemetry.shared));
	add_congestion(data, &congestion);
	return 0;
}

/* parameters: QPN,WORKER. It is only asked for: /oriel/qps shows when it has happened. */
static int on_move(const char *command, const char *parameters, struct rte_tel_data *data)
{
	unsigned int qpn, worker;
	int end = 0, error = -EINVAL;

	if (parameters && sscanf(parameters, "%8u,%8u%n", &qpn, &worker, &end) == 2 &&
	    parameters[end] == '\0')
		error = net_move(telemetry.net, qpn, worker);
	rte_tel_data_start_dict(data);
	if (error)
		rte_tel_data_add_dict_string(data, "error", strerror(-error));
	else
		rte_tel_data_add_dict_string(data, "move", "asked");
	return 0;
}

static int on_fault(const char *command, const char *parameters, struct rte_tel_data *data)
{
	fault_command(telemetry.net, parameters, data);
	return 0;
}

/* --- the socket ------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	telemetry_cb run;
	const char *help;
} commands[] = {
	{ "/oriel/status", on_status, "State of the daemon" },
	{ "/oriel/ports", on_ports, "Ports and their counters" },
	{ "/oriel/workers", on_workers, "Counters of each worker" },
	{ "/oriel/verdicts", on_verdicts, "Frames and work requests refused, by reason" },
	{ "/oriel/sessions", on_sessions, "Local programs" },
	{ "/oriel/qps", on_qps, "Queue pairs; parameter: index to begin with" },
	{ "/oriel/move", on_move, "A queue pair to another worker; parameters: QPN,WORKER" },
	{ "/oriel/fault", on_fault,
	  "Injected faults; parameters: port, direction, KEY=VALUE or off" },
	{ "/oriel/congestion", on_congestion, "Congestion control; parameter: on or off" },
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int on_command(const char *name, const char *parameters, struct rte_tel_data *data)
{
	int status = -ENODEV;

	pthread_rwlock_rdlock(&telemetry.lock);
	for (size_t i = 0; telemetry.net && i < COMMANDS; i++)
		if (!strcmp(name, commands[i].name))
			status = commands[i].run(name, parameters, data);
	pthread_rwlock_unlock(&telemetry.lock);
	return status;
}

void telemetry_start(const struct control *control, struct net *net,
		     struct transport_shared *shared, const char *socket_path)
{
	char target[256];

	pthread_rwlock_wrlock(&telemetry.lock);
	telemetry.control = control;
	telemetry.net = net;
	telemetry.shared = shared;
	pthread_rwlock_unlock(&telemetry.lock);
	for (size_t i = 0; i < COMMANDS; i++)
		rte_telemetry_register_cmd(commands[i].name, on_command, commands[i].help);
	snprintf(target, sizeof(target), "%s/dpdk_telemetry.v2", rte_eal_get_runtime_dir());
	snprintf(telemetry.link, sizeof(telemetry.link), "%s.telemetry", socket_path);
	unlink(telemetry.link);
	if (symlink(target, telemetry.link))
		fprintf(stderr, "orield: %s: %s: orielctl will not find the daemon\n",
			telemetry.link, strerror(errno));
}

void telemetry_stop(void)
{
	pthread_rwlock_wrlock(&telemetry.lock);
	telemetry.net = NULL;
	pthread_rwlock_unlock(&telemetry.lock);
	if (telemetry.link[0])
		unlink(telemetry.link);
}
