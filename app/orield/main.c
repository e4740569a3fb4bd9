/* SPDX-License-Identifier: BSD-3-Clause */
/* orield: reads its configuration, serves, and ends cleanly. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "orield/daemon.h"
#include "orield/telemetry.h"
#include "wire/icrc_method.h"

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

int main(int argc, char **argv)
{
	static struct daemon daemon;
	struct options options = { 0 };
	const char *message = "";
	int error;

	setlinebuf(stderr);
	if (parse_options(argc, argv, &options))
		return 2;
	error = config_read(&daemon.config, options.config, false, stderr);
	if (!error)
		error = config_check_devices(&daemon.config);
	if (!error)
		error = config_choose_hugepages(&daemon.config);
	if (error)
		return EXIT_FAILURE;
	if (options.check) {
		printf("%s: good\n", options.config);
		return EXIT_SUCCESS;
	}
	set_signals();
	set_limits();
	error = daemon_start(&daemon, options.eal, &message);
	if (error) {
		fprintf(stderr, "orield: %s\n", message);
	} else {
		if (daemon.config.telemetry)
			telemetry_start(daemon.control, daemon.net, daemon.shared,
					daemon.config.control.socket_path);
		fprintf(stderr, "orield: ICRC by %s\n", icrc_method.name);
		fprintf(stderr, "orield: ready, clients at %s\n",
			daemon.config.control.socket_path);
		control_run(daemon.control, &stop);
		fprintf(stderr, "orield: stopping\n");
		control_shutdown(daemon.control);
	}
	telemetry_stop();
	daemon_finish(&daemon);
	return error ? EXIT_FAILURE : EXIT_SUCCESS;
}
