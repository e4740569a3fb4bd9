/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults of the running daemon's ports: set and shown over the telemetry socket. */
#include <errno.h>
#include <pthread.h>
#include <rte_telemetry.h>
#include <stdio.h>
#include <string.h>

#include "orield/fault.h"
#include "orield/telemetry.h"

static const char *const directions[2] = { "receive", "transmit" };

/* --- a command --------------------------------------------------------------------- */

static int find_port(const struct net *net, const char *name)
{
	const struct net_config *config = net_get_config(net);

	for (uint32_t p = 0; name && p < config->ports; p++)
		if (!strcmp(config->port[p].name, name))
			return (int)p;
	return -1;
}

/* "receive" or "transmit" narrows what is set to one direction and is taken off the words. */
static const char *take_direction(const char *word, bool set[2], char **rest)
{
	set[NET_RECEIVE] = set[NET_TRANSMIT] = true;
	if (!word || (strcmp(word, directions[0]) != 0 && strcmp(word, directions[1]) != 0))
		return word;
	set[strcmp(word, directions[NET_RECEIVE]) != 0 ? NET_RECEIVE : NET_TRANSMIT] = false;
	return strtok_r(NULL, " ", rest);
}

/* The words "loss=1%" and so on, or "off". */
static int parse_words(const char *word, char **rest, struct net_fault *fault, char *problem,
		       size_t room)
{
	bool off = word && !strcmp(word, "off");

	fault_default(fault);
	if (off)
		word = strtok_r(NULL, " ", rest);
	for (; word && !off; word = strtok_r(NULL, " ", rest)) {
		const char *value = strchr(word, '=');
		const char *expected = "KEY=VALUE or off";

		if (value) {
			char key[16];

			snprintf(key, sizeof(key), "%.*s", (int)(value - word), word);
			expected = fault_set(fault, key, value + 1);
		}
		if (expected) {
			snprintf(problem, room, "%.20s: expected %s", word, expected);
			return -EINVAL;
		}
	}
	if (word) {
		snprintf(problem, room, "%.20s: nothing is expected behind off", word);
		return -EINVAL;
	}
	if (fault_fits(fault))
		return 0;
	snprintf(problem, room, "the shares are more than 100%% together");
	return -EINVAL;
}

/*
 * "PORT [receive|transmit] KEY=VALUE ..." or "PORT [receive|transmit] off"; without a direction
 * both. What is not said is off. 0 or -EINVAL with a sentence in `problem`.
 */
static int run(struct net *net, const char *text, char *problem, size_t room)
{
	char words[512], *rest;
	struct net_fault fault;
	const char *word;
	bool set[2];
	int port;

	snprintf(words, sizeof(words), "%s", text);
	word = strtok_r(words, " ", &rest);
	port = find_port(net, word);
	if (port < 0) {
		snprintf(problem, room, "there is no port %.31s", word ? word : "");
		return -EINVAL;
	}
	word = take_direction(strtok_r(NULL, " ", &rest), set, &rest);
	if (!word) {
		snprintf(problem, room, "expected KEY=VALUE or off");
		return -EINVAL;
	}
	if (parse_words(word, &rest, &fault, problem, room))
		return -EINVAL;
	for (enum net_direction d = NET_RECEIVE; d <= NET_TRANSMIT; d++)
		if (set[d])
			net_set_fault(net, (unsigned int)port, d, &fault);
	return 0;
}

/* --- the handler ------------------------------------------------------------------- */

static void add_direction(struct rte_tel_data *data, const struct net_fault *fault,
			  const struct net_fault_counts *counts, const char *direction)
{
	const struct {
		const char *name;
		uint64_t value;
	} values[] = {
		{ "loss", fault->loss },
		{ "duplicate", fault->duplicate },
		{ "reorder", fault->reorder },
		{ "corrupt", fault->corrupt },
		{ "delay", fault->delay },
		{ "delay_us", fault->delay_us },
		{ "seed", fault->seed },
		{ "lost", counts->lost },
		{ "duplicated", counts->duplicated },
		{ "reordered", counts->reordered },
		{ "corrupted", counts->corrupted },
		{ "delayed", counts->delayed },
		{ "held", counts->held },
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_%s", direction, values[i].name);
		rte_tel_data_add_dict_u64(data, key, values[i].value);
	}
}

static void add_port(const struct net *net, struct rte_tel_data *data, unsigned int port)
{
	struct rte_tel_data *part = rte_tel_data_alloc();
	struct net_port_status status;
	char key[16];

	if (!part)
		return;
	rte_tel_data_start_dict(part);
	if (net_port_status(net, port, &status)) {
		rte_tel_data_add_dict_string(part, "name", status.name);
		for (enum net_direction d = NET_RECEIVE; d <= NET_TRANSMIT; d++) {
			struct net_fault fault;

			net_get_fault(net, port, d, &fault);
			add_direction(part, &fault, &status.fault[d], directions[d]);
		}
	}
	snprintf(key, sizeof(key), "%u", port);
	if (rte_tel_data_add_dict_container(data, key, part, 0))
		rte_tel_data_free(part);
}

void fault_command(struct net *net, const char *parameters, struct rte_tel_data *data)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* settings want one writer */
	char problem[RTE_TEL_MAX_STRING_LEN] = "";
	int error = 0;

	pthread_mutex_lock(&lock);
	rte_tel_data_start_dict(data);
	if (parameters && *parameters)
		error = run(net, parameters, problem, sizeof(problem));
	if (error)
		rte_tel_data_add_dict_string(data, "error", problem);
	for (unsigned int p = 0; !error && p < net_get_config(net)->ports; p++)
		add_port(net, data, p);
	pthread_mutex_unlock(&lock);
}
