/* SPDX-License-Identifier: BSD-3-Clause */
/* oriel-flood: options, set-up, one run or a search, report. */
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ini.h"
#include "oriel-flood/flood.h"
#include "wire/icrc_method.h"

static const char usage[] =
	"Usage: oriel-flood -d DEVICE --ip ADDR/PREFIX --target ADDR [options] [-- EAL arguments]\n"
	"Sends RoCEv2 requests straight from a DPDK port and counts what is acknowledged.\n\n"
	"  -d, --device DEVICE      as in orield.conf: net_memif0,id=0,role=client,socket=PATH\n"
	"      --ip ADDR/PREFIX     our address\n"
	"      --target ADDR        the responder's address\n"
	"      --gateway ADDR       for a target outside of our network\n"
	"      --vlan ID            tag of our frames\n"
	"      --mtu BYTES          of the link, IP packet (default 1500)\n"
	"  -p, --port PORT          of the export of an oriel-target (default 7471)\n"
	"      --name NAME          export, if several share the address\n"
	"      --table FILE         queue pairs and windows that an oriel-sink wrote, instead\n"
	"      --testpmd MODE       the other end is a testpmd: rxonly, macswap or icmpecho\n"
	"  -o, --operation OP       write (default), read, send, atomic\n"
	"  -s, --size BYTES         of a message (default 64)\n"
	"  -m, --path-mtu BYTES     256 to 4096 (default: what the link carries)\n"
	"  -q, --qps N              queue pairs (default 1)\n"
	"      --windows N          of the table at most (default: all)\n"
	"  -t, --outstanding N      messages of each queue pair under way (default 128)\n"
	"  -a, --ack-every N        AckReq on each N-th message (default 16)\n"
	"  -r, --rate N             messages a second (default: as fast as possible)\n"
	"  -D, --duration SECONDS   measured (default 2)\n"
	"  -W, --warm-up SECONDS    before that (default 0.5)\n"
	"      --random             each message picks queue pair and window by chance\n"
	"      --latency            one message at a time on each queue pair\n"
	"      --search             the highest rate with a loss under --loss (default 0.0001)\n"
	"      --loss SHARE\n"
	"      --bad SHARE          of bad frames among the good ones, 0.01 is 1 %\n"
	"      --bad-kinds LIST     icrc,opcode,qpn,peer,runt,duplicate (default: all)\n"
	"      --check              verify the ICRC of every answer, not of one in 16\n"
	"      --queues N           of the port, as the responder has workers (default 1)\n"
	"      --cpu N              to run on (default 0)\n"
	"      --json               one JSON object instead of a table\n"
	"      --histogram          with all latencies, in --json\n"
	"      --version, -h, --help\n";

enum {
	OPTION_IP = 256,
	OPTION_TARGET,
	OPTION_GATEWAY,
	OPTION_VLAN,
	OPTION_MTU,
	OPTION_NAME,
	OPTION_TABLE,
	OPTION_TESTPMD,
	OPTION_WINDOWS,
	OPTION_HISTOGRAM,
	OPTION_RANDOM,
	OPTION_LATENCY,
	OPTION_SEARCH,
	OPTION_LOSS,
	OPTION_BAD,
	OPTION_BAD_KINDS,
	OPTION_CHECK,
	OPTION_CPU,
	OPTION_QUEUES,
	OPTION_JSON,
	OPTION_VERSION
};

static const struct option long_options[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "ip", required_argument, NULL, OPTION_IP },
	{ "target", required_argument, NULL, OPTION_TARGET },
	{ "gateway", required_argument, NULL, OPTION_GATEWAY },
	{ "vlan", required_argument, NULL, OPTION_VLAN },
	{ "mtu", required_argument, NULL, OPTION_MTU },
	{ "port", required_argument, NULL, 'p' },
	{ "name", required_argument, NULL, OPTION_NAME },
	{ "table", required_argument, NULL, OPTION_TABLE },
	{ "testpmd", required_argument, NULL, OPTION_TESTPMD },
	{ "histogram", no_argument, NULL, OPTION_HISTOGRAM },
	{ "operation", required_argument, NULL, 'o' },
	{ "size", required_argument, NULL, 's' },
	{ "path-mtu", required_argument, NULL, 'm' },
	{ "qps", required_argument, NULL, 'q' },
	{ "windows", required_argument, NULL, OPTION_WINDOWS },
	{ "outstanding", required_argument, NULL, 't' },
	{ "ack-every", required_argument, NULL, 'a' },
	{ "rate", required_argument, NULL, 'r' },
	{ "duration", required_argument, NULL, 'D' },
	{ "warm-up", required_argument, NULL, 'W' },
	{ "random", no_argument, NULL, OPTION_RANDOM },
	{ "latency", no_argument, NULL, OPTION_LATENCY },
	{ "search", no_argument, NULL, OPTION_SEARCH },
	{ "loss", required_argument, NULL, OPTION_LOSS },
	{ "bad", required_argument, NULL, OPTION_BAD },
	{ "bad-kinds", required_argument, NULL, OPTION_BAD_KINDS },
	{ "check", no_argument, NULL, OPTION_CHECK },
	{ "cpu", required_argument, NULL, OPTION_CPU },
	{ "queues", required_argument, NULL, OPTION_QUEUES },
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ "help", no_argument, NULL, 'h' },
	{ 0 }
};

static struct flood flood;

/* --- options ---------------------------------------------------------------------------------- */

static bool complain(const char *option, const char *value, const char *expected)
{
	fprintf(stderr, "oriel-flood: --%s %s: expected %s\n", option, value, expected);
	return false;
}

static bool take_number(const char *option, uint32_t minimum, uint32_t maximum, uint32_t *value)
{
	char expected[64], *end;
	unsigned long long number = strtoull(optarg, &end, 10);

	if (optarg[0] >= '0' && optarg[0] <= '9' && !*end && number >= minimum &&
	    number <= maximum) {
		*value = (uint32_t)number;
		return true;
	}
	snprintf(expected, sizeof(expected), "a number from %u to %u", minimum, maximum);
	return complain(option, optarg, expected);
}

static bool take_real(const char *option, double minimum, double maximum, double *value)
{
	char expected[64], *end;

	*value = strtod(optarg, &end);
	if (end != optarg && !*end && *value >= minimum && *value <= maximum)
		return true;
	snprintf(expected, sizeof(expected), "a number from %g to %g", minimum, maximum);
	return complain(option, optarg, expected);
}

static bool take_address(const char *option, uint8_t gid[16])
{
	bool v4;

	return address_parse(optarg, gid, &v4) || complain(option, optarg, "an IP address");
}

static bool take_prefix(struct net_port_config *port)
{
	char text[64], *slash, *end;
	unsigned long length;
	bool v4;

	snprintf(text, sizeof(text), "%s", optarg);
	slash = strchr(text, '/');
	if (!slash)
		return complain("ip", optarg, "ADDRESS/PREFIX");
	*slash++ = '\0';
	length = strtoul(slash, &end, 10);
	if (!address_parse(text, port->address[0].gid, &v4) || end == slash || *end ||
	    length > (v4 ? 32u : 128u))
		return complain("ip", optarg, "ADDRESS/PREFIX");
	port->address[0].prefix_length = (uint32_t)length + (v4 ? 96 : 0);
	port->addresses = 1;
	return true;
}

static bool take_gateway(struct net_port_config *port)
{
	uint8_t gid[16];

	if (!take_address("gateway", gid))
		return false;
	memcpy(gid_is_v4(gid) ? port->gateway4 : port->gateway6, gid, 16);
	return true;
}

static bool take_operation(enum flood_operation *operation)
{
	static const char *const names[] = { "write", "read", "send", "atomic" };

	for (unsigned int i = 0; i < 4; i++) {
		if (strcmp(optarg, names[i]) == 0) {
			*operation = (enum flood_operation)i;
			return true;
		}
	}
	return complain("operation", optarg, "write, read, send or atomic");
}

static bool take_peer(enum flood_peer *peer)
{
	for (unsigned int i = PEER_RXONLY; i < PEERS; i++) {
		if (strcmp(optarg, flood_peer_name[i]) == 0) {
			*peer = (enum flood_peer)i;
			return true;
		}
	}
	return complain("testpmd", optarg, "rxonly, macswap or icmpecho");
}

static bool take_bad_kinds(uint32_t *kinds)
{
	const char *list = optarg;
	char name[32];

	*kinds = 0;
	while (ini_next(&list, name, sizeof(name))) {
		unsigned int kind = 0;

		while (kind < FLOOD_BADS && strcmp(name, flood_bad_name[kind]) != 0)
			kind++;
		if (kind == FLOOD_BADS)
			return complain("bad-kinds", optarg,
					"a list of icrc, opcode, qpn, peer, runt, duplicate");
		*kinds |= 1u << kind;
	}
	return *kinds != 0 || complain("bad-kinds", optarg, "at least one kind");
}

static bool take_link_option(int option, struct flood_options *o)
{
	uint32_t number;

	switch (option) {
	case 'd': snprintf(o->port.device, sizeof(o->port.device), "%s", optarg); return true;
	case OPTION_IP: return take_prefix(&o->port);
	case OPTION_TARGET: return take_address("target", o->target);
	case OPTION_GATEWAY: return take_gateway(&o->port);
	case OPTION_QUEUES: return take_number("queues", 1, FLOOD_MAX_QUEUES, &o->queues);
	case OPTION_CPU: return take_number("cpu", 0, 1023, &o->cpu);
	case OPTION_VLAN:
		if (!take_number("vlan", 0, 4094, &number))
			return false;
		o->port.vlan = (uint16_t)number;
		return true;
	case OPTION_MTU:
		if (!take_number("mtu", 340, 9600, &number))
			return false;
		o->port.mtu = (uint16_t)number;
		return true;
	case 'p':
		if (!take_number("port", 1, 65535, &number))
			return false;
		o->service = (uint16_t)number;
		return true;
	default: return false;
	}
}

static bool take_option(int option, struct flood_options *o)
{
	double share;

	switch (option) {
	case OPTION_NAME: o->export_name = optarg; return true;
	case OPTION_TABLE: o->table = optarg; return true;
	case OPTION_TESTPMD: return take_peer(&o->peer);
	case OPTION_HISTOGRAM: o->histogram = true; return true;
	case 'o': return take_operation(&o->operation);
	case 's': return take_number("size", 0, 1u << 30, &o->size);
	case 'm': return take_number("path-mtu", 256, 4096, &o->path_mtu);
	case 'q': return take_number("qps", 1, FLOOD_MAX_QPS, &o->qps);
	case OPTION_WINDOWS: return take_number("windows", 1, FLOOD_MAX_WINDOWS, &o->windows);
	case 't': return take_number("outstanding", 1, 65536, &o->outstanding);
	case 'a': return take_number("ack-every", 1, 65536, &o->ack_every);
	case 'r': return take_real("rate", 1, 1e9, &o->rate);
	case 'D': return take_real("duration", 0.01, 86400, &o->seconds);
	case 'W': return take_real("warm-up", 0, 3600, &o->warm_up);
	case OPTION_RANDOM: o->random = true; return true;
	case OPTION_LATENCY: o->outstanding = o->ack_every = 1; return true;
	case OPTION_SEARCH: o->search = true; return true;
	case OPTION_LOSS: return take_real("loss", 0, 1, &o->loss);
	case OPTION_BAD:
		if (!take_real("bad", 0, 1, &share))
			return false;
		o->bad_ppm = (uint32_t)(share * 1e6);
		return true;
	case OPTION_BAD_KINDS: return take_bad_kinds(&o->bad_kinds);
	case OPTION_CHECK: o->check = true; return true;
	case OPTION_JSON: o->json = true; return true;
	case OPTION_VERSION: puts("oriel-flood " ORIEL_VERSION); exit(EXIT_SUCCESS);
	case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
	default: return take_link_option(option, o);
	}
}

/* Which options were given, by getopt's value. */
static bool seen[OPTION_VERSION + 1];

/* What does not go together, each with what to do instead. */
static const char *contradiction(const struct flood_options *o)
{
	const bool export = seen['p'] || seen[OPTION_NAME];

	if (o->peer != PEER_RESPONDER && (o->table || export || o->bad_ppm))
		return "a testpmd has no queue pairs and refuses nothing: leave --table, --port, "
		       "--name and --bad away";
	if (o->table && export)
		return "--port and --name find an export: leave them away with --table";
	if (seen[OPTION_WINDOWS] && !o->table)
		return "--windows belongs to --table: an export has a window for each queue pair";
	if (o->operation == FLOOD_SEND && !o->table && o->peer == PEER_RESPONDER)
		return "an export receives nothing: send to an oriel-sink --receive, by --table";
	if (o->operation == FLOOD_ATOMIC && seen['s'] && o->size != 8)
		return "atomics have 8 bytes: leave --size away";
	if (seen[OPTION_LATENCY] && (seen['t'] || seen['a']))
		return "--latency is one message at a time, each acknowledged: leave --outstanding "
		       "and --ack-every away";
	if (o->search && seen['r'])
		return "--search looks for the rate itself: leave --rate away";
	if (seen[OPTION_LOSS] && !o->search)
		return "--loss belongs to --search";
	if (seen[OPTION_BAD_KINDS] && !seen[OPTION_BAD])
		return "--bad-kinds belongs to --bad";
	if (o->histogram && !o->json)
		return "--histogram is for --json";
	return NULL;
}

static bool cpu_is_ours(uint32_t cpu)
{
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) || CPU_ISSET(cpu, &allowed))
		return true;
	fprintf(stderr, "oriel-flood: --cpu %u: this process may not run there\n", cpu);
	return false;
}

static bool complete(struct flood_options *o)
{
	static const uint8_t none[16];
	const char *missing = NULL, *problem;
	uint32_t carried = link_path_mtu(o->port.mtu);

	if (!o->port.device[0])
		missing = "--device";
	else if (!o->port.addresses)
		missing = "--ip";
	else if (memcmp(o->target, none, 16) == 0)
		missing = "--target";
	if (missing) {
		fprintf(stderr, "oriel-flood: %s is missing; see --help\n", missing);
		return false;
	}
	if (gid_is_v4(o->target) != gid_is_v4(o->port.address[0].gid)) {
		fprintf(stderr, "oriel-flood: --ip and --target are of two IP families\n");
		return false;
	}
	if (o->peer == PEER_ICMPECHO && !gid_is_v4(o->target)) {
		fprintf(stderr, "oriel-flood: --testpmd icmpecho wants an IPv4 --target\n");
		return false;
	}
	if (o->path_mtu == 0)
		o->path_mtu = carried;
	if (path_mtu_code(o->path_mtu) == 0 || o->path_mtu > carried) {
		fprintf(stderr,
			"oriel-flood: --path-mtu %u: expected 256, 512, 1024, 2048 or 4096, and at "
			"most %u with --mtu %u\n",
			o->path_mtu, carried, o->port.mtu);
		return false;
	}
	problem = contradiction(o);
	if (problem) {
		fprintf(stderr, "oriel-flood: %s\n", problem);
		return false;
	}
	if (o->operation == FLOOD_ATOMIC)
		o->size = 8;
	return cpu_is_ours(o->cpu);
}

static bool parse(int argc, char *argv[], struct flood_options *o)
{
	int option;

	*o = (struct flood_options){ .service = 7471,
				     .size = 64,
				     .qps = 1,
				     .queues = 1,
				     .windows = FLOOD_MAX_WINDOWS,
				     .seconds = 2,
				     .warm_up = 0.5,
				     .ack_every = 16,
				     .outstanding = 128,
				     .loss = 1e-4,
				     .bad_kinds = (1u << FLOOD_BADS) - 1,
				     .port = { .name = "flood", .mtu = 1500 } };
	while ((option = getopt_long(argc, argv, "+d:p:o:s:m:q:t:a:r:D:W:h", long_options, NULL)) !=
	       -1) {
		if (option == '?') {
			fputs("See oriel-flood --help.\n", stderr);
			return false;
		}
		if (!take_option(option, o))
			return false;
		seen[option] = true;
	}
	if (optind < argc && strcmp(argv[optind - 1], "--") != 0) {
		fprintf(stderr, "oriel-flood: unexpected argument '%s'\n", argv[optind]);
		return false;
	}
	o->eal = argv + optind;
	return complete(o);
}

/* --- the run ---------------------------------------------------------------------------------- */

static void on_signal(int signal)
{
	flood.stop = true;
}

static bool queue_pairs_prepare(struct flood *f)
{
	if (f->options.peer != PEER_RESPONDER) {
		table_invent(f);
		return true;
	}
	return f->options.table ? table_read(f) : connect_all(f);
}

static bool run(struct flood *f)
{
	double best = 0;
	bool good;

	if (!queue_pairs_prepare(f) || !frames_prepare(f))
		return false;
	if (!f->options.json)
		report_header(f);
	if (f->options.search)
		good = flood_search(f, &best);
	else
		good = flood_run(f, f->options.seconds, f->options.warm_up, f->options.rate);
	if (f->options.table && !table_update(f))
		good = false;
	if (f->options.json)
		report_json(f, best);
	else
		report_line(f);
	if (f->options.search && !f->options.json)
		printf("highest rate with a loss of at most %g: %.0f/s (above it: %s)\n",
		       f->options.loss, best, f->limit ? f->limit : "nothing was tried");
	return good;
}

int main(int argc, char *argv[])
{
	struct flood *f = &flood;
	bool good;

	if (!parse(argc, argv, &f->options))
		return 2;
	icrc_choose();
	f->random = 0x9e3779b97f4a7c15ull;
	f->latency = histogram_create();
	f->qp = calloc(f->options.qps, sizeof(*f->qp));
	f->window =
		calloc(f->options.table ? f->options.windows : f->options.qps, sizeof(*f->window));
	if (!f->latency || !f->qp || !f->window) {
		fputs("oriel-flood: no memory\n", stderr);
		return EXIT_FAILURE;
	}
	if (!link_open(f)) {
		fprintf(stderr, "oriel-flood: %s\n", f->message);
		return EXIT_FAILURE;
	}
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	good = link_resolve(f) && run(f);
	if (!good)
		fprintf(stderr, "oriel-flood: %s\n", f->message ? f->message : "stopped");
	disconnect_all(f);
	link_close(f);
	free(f->qp);
	free(f->window);
	free(f->latency);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
