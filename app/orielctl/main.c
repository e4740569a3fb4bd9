/* SPDX-License-Identifier: BSD-3-Clause */
/* orielctl: shows what the daemon does, read from its telemetry socket. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_MAX 65536

static const char usage[] =
	"Usage: orielctl [--socket PATH] [--json] COMMAND\n\n"
	"  status     the daemon, its ports, sessions, and what was refused and why\n"
	"  list       the queue pairs\n"
	"  stats      every counter of every worker and port\n"
	"  fault [PORT [receive|transmit] KEY=VALUE ... | off]\n"
	"             shows the faults that ports make by themselves, for tests; or sets them:\n"
	"             loss, duplicate, reorder, corrupt, delay (1%, 0.05%), delay-us, seed;\n"
	"             what is not said is off; without a direction both are set\n"
	"  congestion [on|off]\n"
	"             congestion control (DCQCN): how it stands, or switch it until the daemon's "
	"end\n\n"
	"  -s, --socket PATH  the daemon's socket (default $ORIEL_SOCKET, else "
	"/run/oriel/ndk.sock)\n"
	"      --json         what the daemon said, as it said it\n"
	"      --version      print the version and exit\n"
	"  -h, --help         this text\n";

struct options {
	const char *socket;
	bool json;
	const char *command;
	char **words; /* behind it, NULL-terminated */
};

/* --- talking to the daemon ---------------------------------------------------------------- */

static int connect_daemon(const char *socket_path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char buffer[1024];
	int fd;
	int n;

	n = snprintf(address.sun_path, sizeof(address.sun_path), "%s.telemetry", socket_path);
	if (n >= (int)sizeof(address.sun_path)) {
		fprintf(stderr, "orielctl: %s: path too long\n", socket_path);
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		fprintf(stderr,
			"orielctl: %s: %s: is orield running, with telemetry = yes and this "
			"socket?\n",
			address.sun_path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	/* The library greets with its version; nothing in it matters here. */
	if (read(fd, buffer, sizeof(buffer)) <= 0) {
		fprintf(stderr, "orielctl: the daemon hung up\n");
		close(fd);
		return -1;
	}
	return fd;
}

/* The value under the command's name in the reply; the caller drops it. NULL after a message. */
static json_t *ask(int fd, const char *command)
{
	static char reply[REPLY_MAX];
	json_error_t error;
	json_t *whole, *value;
	const char *name;
	ssize_t length;

	if (write(fd, command, strlen(command)) < 0 ||
	    (length = read(fd, reply, sizeof(reply))) <= 0) {
		fprintf(stderr, "orielctl: %s: the daemon hung up\n", command);
		return NULL;
	}
	whole = json_loadb(reply, (size_t)length, 0, &error);
	name = strndupa(command, strcspn(command, ","));
	value = whole ? json_incref(json_object_get(whole, name)) : NULL;
	if (!value || json_is_null(value))
		fprintf(stderr, "orielctl: %s: no answer that makes sense: %s\n", command,
			whole ? "command not known to this daemon" : error.text);
	json_decref(whole);
	return value;
}

/* Queue pairs come in pages: each answer ends where the next one begins. */
static json_t *ask_qps(int fd)
{
	json_t *all = json_object();
	unsigned long next = 0;
	size_t count;

	do {
		char command[32];
		const char *key;
		json_t *page, *qp;

		snprintf(command, sizeof(command), "/oriel/qps,%lu", next);
		page = ask(fd, command);
		if (!page) {
			json_decref(all);
			return NULL;
		}
		count = json_object_size(page);
		json_object_foreach(page, key, qp)
		{
			unsigned long index = strtoul(key, NULL, 10);

			json_object_set(all, key, qp);
			if (index >= next)
				next = index + 1;
		}
		json_decref(page);
	} while (count);
	return all;
}

/* --- showing --------------------------------------------------------------------------------- */

static unsigned long long number(const json_t *object, const char *key)
{
	return (unsigned long long)json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "?";
}

static void show_daemon(const json_t *status)
{
	unsigned long long up = number(status, "uptime_seconds");

	printf("orield %s, pid %llu, up %llu:%02llu:%02llu, %llu worker%s\n",
	       text(status, "version"), number(status, "pid"), up / 3600, up / 60 % 60, up % 60,
	       number(status, "workers"), number(status, "workers") == 1 ? "" : "s");
	printf("sessions %llu  connections %llu (%llu pending, %llu in timewait)  queue pairs "
	       "%llu\n",
	       number(status, "sessions"), number(status, "connections"),
	       number(status, "connections_pending"), number(status, "connections_timewait"),
	       number(status, "qps"));
	printf("regions %llu  windows %llu  valid tokens %llu  client memory %.1f MiB\n",
	       number(status, "mrs"), number(status, "mws"), number(status, "tokens_valid"),
	       (double)number(status, "memory_bytes") / 1048576);
	printf("bad tokens %llu  peers shut out %llu  sessions broken %llu  refused %llu\n",
	       number(status, "bad_tokens"), number(status, "peers_shut_out"),
	       number(status, "sessions_broken"), number(status, "sessions_refused"));
}

static void show_ports(const json_t *ports)
{
	const char *key;
	json_t *port;

	json_object_foreach((json_t *)ports, key, port)
	{
		printf("\nport %s (%s) link %s, %s, MTU %llu, %s\n", text(port, "name"),
		       text(port, "driver"), text(port, "link"), text(port, "mac"),
		       number(port, "mtu"), text(port, "addresses"));
		printf("  rx %llu packets %llu bytes, %llu missed, %llu without buffer\n",
		       number(port, "rx_packets"), number(port, "rx_bytes"),
		       number(port, "rx_missed"), number(port, "rx_no_mbuf"));
		printf("  tx %llu packets %llu bytes, %llu dropped, handed to other workers %llu\n",
		       number(port, "tx_packets"), number(port, "tx_bytes"),
		       number(port, "tx_dropped"), number(port, "handed_over"));
		if (number(port, "flow_rules_limit"))
			printf("  flow rules %llu of %llu, %llu made, %llu refused\n",
			       number(port, "flow_rules"), number(port, "flow_rules_limit"),
			       number(port, "flow_rules_made"), number(port, "flow_rules_refused"));
	}
}

static void show_sessions(const json_t *sessions)
{
	const char *key;
	json_t *session;

	if (json_object_size(sessions))
		printf("\n%-8s %-24s %8s %8s %8s\n", "session", "program", "pid", "uid", "objects");
	json_object_foreach((json_t *)sessions, key, session)
		printf("%-8llu %-24s %8llu %8llu %8llu\n", number(session, "session"),
		       text(session, "name"), number(session, "pid"), number(session, "uid"),
		       number(session, "objects"));
}

static void show_pairs(const char *title, const json_t *pairs)
{
	const char *key;
	json_t *value;

	if (json_object_size(pairs))
		printf("\n%s\n", title);
	json_object_foreach((json_t *)pairs, key, value)
		printf("  %-28s %lld\n", key, (long long)json_integer_value(value));
}

/* Of bytes per second; 0 has a name. */
static const char *rate(unsigned long long bytes, const char *none)
{
	static char buffer[32];

	if (!bytes)
		return none;
	snprintf(buffer, sizeof(buffer), "%.3gG", (double)bytes * 8 / 1e9);
	return buffer;
}

static void show_congestion(const json_t *congestion)
{
	printf("congestion control %s, line rate %sb/s, ", text(congestion, "control"),
	       rate(number(congestion, "line_rate"), "?"));
	printf("no queue pair below %sb/s, CNPs in DSCP %llu\n",
	       rate(number(congestion, "minimum_rate"), "?"), number(congestion, "cnp_dscp"));
	printf("gain 1/%llu, recovery stages %llu, increase by %sb/s, ", number(congestion, "gain"),
	       number(congestion, "recovery_stages"),
	       rate(number(congestion, "additive_rate"), "?"));
	printf("later by %sb/s, each %llu us and %llu bytes\n",
	       rate(number(congestion, "hyper_rate"), "?"), number(congestion, "increase_period"),
	       number(congestion, "increase_bytes"));
	printf("at most one cut in %llu us, one CNP in %llu us; alpha decays each %llu us\n",
	       number(congestion, "reduce_period"), number(congestion, "cnp_interval"),
	       number(congestion, "alpha_period"));
}

static void show_qps(const json_t *qps)
{
	const char *key;
	json_t *qp;

	printf("%-8s %-6s %7s %6s %-10s %-40s %12s %12s %9s\n", "qpn", "state", "session", "worker",
	       "remote qpn", "remote", "messages in", "out", "rate");
	json_object_foreach((json_t *)qps, key, qp) printf(
		"0x%06llx %-6s %7llu %6llu 0x%06llx   %-40s %12llu %12llu %9s\n", number(qp, "qpn"),
		text(qp, "state"), number(qp, "session"), number(qp, "worker"),
		number(qp, "remote_qpn"), text(qp, "remote"), number(qp, "messages_in"),
		number(qp, "messages_out"), rate(number(qp, "rate"), "line"));
}

static void show_workers(const json_t *workers)
{
	const char *key;
	json_t *worker;
	char title[64];

	json_object_foreach((json_t *)workers, key, worker)
	{
		snprintf(title, sizeof(title), "worker %llu", number(worker, "worker"));
		show_pairs(title, worker);
	}
}

static void show_port_counters(const json_t *ports)
{
	const char *key, *name;
	json_t *port, *value;

	json_object_foreach((json_t *)ports, key, port)
	{
		printf("\nport %s\n", text(port, "name"));
		json_object_foreach(port, name, value) if (json_is_integer(value))
			printf("  %-28s %lld\n", name, (long long)json_integer_value(value));
	}
}

/* --- faults -------------------------------------------------------------------------------- */

static unsigned long long fault_number(const json_t *port, const char *direction, const char *key)
{
	char name[48];

	snprintf(name, sizeof(name), "%s_%s", direction, key);
	return number(port, name);
}

static void show_fault(const json_t *port, const char *direction)
{
	static const char *const kinds[][2] = { { "loss", "lost" },
						{ "duplicate", "duplicated" },
						{ "reorder", "reordered" },
						{ "corrupt", "corrupted" },
						{ "delay", "delayed" } };
	bool any = false;

	printf("%-12s %-9s", text(port, "name"), direction);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		unsigned long long ppm = fault_number(port, direction, kinds[k][0]);
		unsigned long long count = fault_number(port, direction, kinds[k][1]);

		if (!ppm && !count)
			continue;
		printf("  %s %llu.%04llu%% (%llu)", kinds[k][0], ppm / 10000, ppm % 10000, count);
		any = true;
	}
	if (any)
		printf("  delay %llu us, seed %llu, held %llu\n",
		       fault_number(port, direction, "delay_us"),
		       fault_number(port, direction, "seed"),
		       fault_number(port, direction, "held"));
	else
		printf("  none\n");
}

static void show_faults(const json_t *ports)
{
	const char *key;
	json_t *port;

	json_object_foreach((json_t *)ports, key, port)
	{
		show_fault(port, "receive");
		show_fault(port, "transmit");
	}
}

/* "/oriel/fault,PORT KEY=VALUE ..." from the words of the command line. */
static bool join(char *command, size_t room, char *const *words)
{
	size_t used = (size_t)snprintf(command, room, "/oriel/fault");

	for (size_t i = 0; words[i] && used < room; i++)
		used += (size_t)snprintf(command + used, room - used, "%c%s", i ? ' ' : ',',
					 words[i]);
	return used < room;
}

static int run_fault(const struct options *options)
{
	int fd = connect_daemon(options->socket);
	int status = EXIT_FAILURE;
	char command[512];
	json_t *answer = NULL;
	const char *error;

	if (fd < 0)
		return EXIT_FAILURE;
	if (join(command, sizeof(command), options->words))
		answer = ask(fd, command);
	else
		fprintf(stderr, "orielctl: fault: too many words\n");
	error = json_string_value(json_object_get(answer, "error"));
	if (error)
		fprintf(stderr, "orielctl: fault: %s\n", error);
	if (answer && !error) {
		if (options->json)
			json_dumpf(answer, stdout, JSON_INDENT(2));
		else
			show_faults(answer);
		status = EXIT_SUCCESS;
	}
	json_decref(answer);
	close(fd);
	return status;
}

/* --- commands --------------------------------------------------------------------------------- */

struct part {
	const char *command;
	void (*show)(const json_t *value);
};

static void show_verdicts(const json_t *verdicts)
{
	show_pairs("refused, by reason", verdicts);
}

static const struct part status_parts[] = {
	{ "/oriel/status", show_daemon },
	{ "/oriel/ports", show_ports },
	{ "/oriel/sessions", show_sessions },
	{ "/oriel/verdicts", show_verdicts },
	{ NULL, NULL },
};
static const struct part list_parts[] = { { "/oriel/qps", show_qps }, { NULL, NULL } };
static const struct part stats_parts[] = { { "/oriel/workers", show_workers },
					   { "/oriel/ports", show_port_counters },
					   { "/oriel/verdicts", show_verdicts },
					   { NULL, NULL } };

static const struct part congestion_parts[] = { { "/oriel/congestion", show_congestion },
						{ NULL, NULL } };
static const struct part congestion_on_parts[] = { { "/oriel/congestion,on", show_congestion },
						   { NULL, NULL } };
static const struct part congestion_off_parts[] = { { "/oriel/congestion,off", show_congestion },
						    { NULL, NULL } };

/* NULL after a message. */
static const struct part *parts_of_congestion(const char *argument)
{
	if (!argument)
		return congestion_parts;
	if (!strcmp(argument, "on"))
		return congestion_on_parts;
	if (!strcmp(argument, "off"))
		return congestion_off_parts;
	fprintf(stderr, "orielctl: congestion %s: expected on or off\n", argument);
	return NULL;
}

static int show(const struct options *options, const struct part *parts)
{
	json_t *whole = json_object();
	int fd = connect_daemon(options->socket);
	int status = EXIT_FAILURE;

	if (fd < 0 || !whole)
		goto out;
	for (; parts->command; parts++) {
		json_t *value = parts->show == show_qps ? ask_qps(fd) : ask(fd, parts->command);
		const char *name;

		if (!value)
			goto out;
		if (!options->json)
			parts->show(value);
		name = strndupa(parts->command, strcspn(parts->command, ",")) + strlen("/oriel/");
		json_object_set_new(whole, name, value);
	}
	if (options->json) {
		json_dumpf(whole, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	status = EXIT_SUCCESS;
out:
	json_decref(whole);
	if (fd >= 0)
		close(fd);
	return status;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
	enum { OPTION_JSON = 256, OPTION_VERSION };
	static const struct option table[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, OPTION_JSON },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	options->socket = getenv("ORIEL_SOCKET");
	if (!options->socket)
		options->socket = "/run/oriel/ndk.sock";
	while ((option = getopt_long(argc, argv, "s:h", table, NULL)) != -1) {
		switch (option) {
		case 's': options->socket = optarg; break;
		case OPTION_JSON: options->json = true; break;
		case OPTION_VERSION: puts("orielctl " ORIEL_VERSION); exit(EXIT_SUCCESS);
		case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
		default: return false;
		}
	}
	if (optind >= argc)
		return false;
	options->command = argv[optind];
	options->words = argv + optind + 1;
	return optind == argc - 1 || !strcmp(options->command, "fault") ||
	       (!strcmp(options->command, "congestion") && optind == argc - 2);
}

int main(int argc, char **argv)
{
	struct options options = { 0 };

	if (!parse_options(argc, argv, &options)) {
		fputs(usage, stderr);
		return 2;
	}
	if (!strcmp(options.command, "congestion")) {
		const struct part *parts = parts_of_congestion(options.words[0]);

		return parts ? show(&options, parts) : 2;
	}
	if (!strcmp(options.command, "status"))
		return show(&options, status_parts);
	if (!strcmp(options.command, "list"))
		return show(&options, list_parts);
	if (!strcmp(options.command, "stats"))
		return show(&options, stats_parts);
	if (!strcmp(options.command, "fault"))
		return run_fault(&options);
	fprintf(stderr, "orielctl: unknown command '%s'\n", options.command);
	fputs(usage, stderr);
	return 2;
}
