/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads -s, -b, -c, -C, -S and -p. */
#include "examples/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/argument.h"

#define MAX_MESSAGES 4096u

int options_parse(struct options *options, struct example *example, int argc, char *argv[])
{
	static const struct option words[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	bool good = true;
	int option;

	while (good && (option = getopt_long(argc, argv, "s:b:c:C:S:p:h", words, NULL)) != -1) {
		switch (option) {
		case 's': good = argument_address("-s", optarg, &options->server); break;
		case 'b': good = argument_address("-b", optarg, &example->local); break;
		case 'c':
			good = argument_small("-c", optarg, 1, options->max_count, &options->count);
			break;
		case 'C':
			good = argument_small("-C", optarg, 0, MAX_MESSAGES, &options->messages);
			break;
		case 'S':
			good = argument_small("-S", optarg, 1, options->max_size, &options->size);
			break;
		case 'p': good = argument_port("-p", optarg, &options->port); break;
		case 'h': fputs(options->usage, stdout); return EXIT_SUCCESS;
		default: good = false;
		}
	}
	if (!good || optind < argc) {
		fputs(options->usage, stderr);
		return 2;
	}
	if (options->server.ss_family)
		example_set_port(&options->server, options->port);
	return -1;
}

int options_family(const struct options *options, const struct example *example)
{
	if (options->server.ss_family)
		return options->server.ss_family;
	return example->local.ss_family ? example->local.ss_family : AF_INET;
}
