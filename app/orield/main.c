/* SPDX-License-Identifier: BSD-3-Clause */
/* orield: reads its configuration, puts the layers together, serves, and ends cleanly. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "control/control.h"
#include "orield/config.h"
#include "orield/telemetry.h"

static const char usage[] =
	"Usage: orield --config FILE [--check] [-- EAL arguments]\n"
	"Poll-mode RoCEv2 daemon: serves windows of local programs' memory to RDMA peers.\n\n"
	"  -c, --config FILE  configuration (see orield.conf for every key)\n"
	"      --check        check the configuration and the devices it names, then exit\n"
	"      --version      print the version and exit\n"
	"  -h, --help         this text\n\n"
	"What follows -- goes to DPDK's EAL as it is.\n";

struct options {
	const char *config;
	bool check;
	char **eal; /* NULL-terminated */
};

static volatile sig_atomic_t stop;

static void on_stop(int signal)
{
	stop = 1;
}

/*
 * A client punched a hole into memory that it shares with us and no page can be had: give
 * the access zeros and poison the segment. Any other SIGBUS is a fault of ours.
 */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
	if (memory_repair_fault(info->si_addr))
		return;
	signal(SIGBUS, SIG_DFL);
	raise(SIGBUS);
}

static int parse_options(int argc, char **argv, struct options *options)
{
	enum { OPTION_CHECK = 256, OPTION_VERSION };
	static const struct option table[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "check", no_argument, NULL, OPTION_CHECK },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "+c:h", table, NULL)) != -1) {
		switch (option) {
		case 'c': options->config = optarg; break;
		case OPTION_CHECK: options->check = true; break;
		case OPTION_VERSION: puts("orield " ORIEL_VERSION); exit(EXIT_SUCCESS);
		case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
		default: fputs(usage, stderr); return -EINVAL;
		}
	}
	options->eal = argv + optind;
	if (options->config && (optind == argc || !strcmp(argv[optind - 1], "--")))
		return 0;
	if (options->config)
		fprintf(stderr, "orield: unexpected argument '%s' (EAL arguments follow --)\n",
			argv[optind]);
	fputs(usage, stderr);
	return -EINVAL;
}

static void set_signals(void)
{
	struct sigaction ends = { .sa_handler = on_stop };
	struct sigaction ignored = { .sa_handler = SIG_IGN };
	struct sigaction bus = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	sigaction(SIGTERM, &ends, NULL);
	sigaction(SIGINT, &ends, NULL);
	sigaction(SIGPIPE, &ignored, NULL);
	sigaction(SIGHUP, &ignored, NULL);
	sigaction(SIGBUS, &bus, NULL);
}

/* Client memory is not to be found in a core file, and thousands of segments need descriptors. */
static void set_limits(void)
{
	struct rlimit files;

	prctl(PR_SET_DUMPABLE, 0);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static bool hugepages_free(void)
{
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	unsigned long pages = 0;

	if (!file)
		return false;
	if (fscanf(file, "%lu", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages >= 128;
}

static int choose_hugepages(struct config *config)
{
	bool have = hugepages_free();

	if (config->hugepages == HUGEPAGES_YES && !have) {
		fprintf(stderr,
			"%s: [daemon] hugepages = yes: expected 128 free pages of 2 MiB; "
			"'echo 256 > /proc/sys/vm/nr_hugepages' makes some, or set hugepages = "
			"no\n",
			config->path);
		return -ENOMEM;
	}
	config->net.hugepages = config->hugepages == HUGEPAGES_NO ? false : have;
	return 0;
}

/* The layers, in the order in which they are built up. */
struct daemon {
	struct config config;
	struct arena arena;
	struct memory *memory;
	struct transport_shared *shared;
	struct control *control;
	struct net *net;
};

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

static int fail(const char *what, int error)
{
	fprintf(stderr, "orield: %s: %s\n", what, strerror(-error));
	return error;
}

static int start(struct daemon *daemon, const struct options *options)
{
	struct config *config = &daemon->config;
	const char *message = "";
	int error;

	error = draw_guid(config->control.cm.ca_guid);
	if (error)
		return fail("random numbers", error);
	error = build_state(daemon);
	if (error)
		return fail("memory for the daemon's tables", error);
	/* Before EAL: a second daemon on the same socket ends here, having touched nothing. */
	error = control_create(&daemon->control, &config->control, &daemon->arena, daemon->memory,
			       daemon->shared, &message);
	if (error) {
		fprintf(stderr, "orield: %s\n", message);
		return error;
	}
	error = net_init_eal(&config->net, config->control.socket_path, options->eal, &message);
	if (!error)
		error = net_create(&daemon->net, &config->net, daemon->shared, daemon->memory,
				   control_net_io(daemon->control), &message);
	if (error) {
		fprintf(stderr, "orield: %s\n", message);
		return error;
	}
	error = control_attach_net(daemon->control, daemon->net);
	if (error)
		return fail("event descriptors", error);
	error = net_start_workers(daemon->net);
	if (error)
		return fail("starting the workers", error);
	if (config->telemetry)
		telemetry_start(daemon->control, daemon->net, daemon->shared,
				config->control.socket_path);
	return 0;
}

static void finish(struct daemon *daemon)
{
	telemetry_stop();
	if (daemon->net)
		net_stop_workers(daemon->net);
	control_destroy(daemon->control);
	if (daemon->net)
		net_destroy(daemon->net);
	transport_shared_destroy(daemon->shared);
	memory_destroy(daemon->memory);
	arena_destroy(&daemon->arena);
}

int main(int argc, char **argv)
{
	static struct daemon daemon;
	struct options options = { 0 };
	int error;

	setlinebuf(stderr);
	if (parse_options(argc, argv, &options))
		return 2;
	error = config_read(&daemon.config, options.config);
	if (!error)
		error = config_check_devices(&daemon.config);
	if (!error)
		error = choose_hugepages(&daemon.config);
	if (error)
		return EXIT_FAILURE;
	if (options.check) {
		printf("%s: good\n", options.config);
		return EXIT_SUCCESS;
	}
	set_signals();
	set_limits();
	error = start(&daemon, &options);
	if (!error) {
		fprintf(stderr, "orield: ready, clients at %s\n",
			daemon.config.control.socket_path);
		control_run(daemon.control, &stop);
		fprintf(stderr, "orield: stopping\n");
		control_shutdown(daemon.control);
	}
	finish(&daemon);
	return error ? EXIT_FAILURE : EXIT_SUCCESS;
}
