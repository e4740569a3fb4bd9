/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads -s, -b, -c, -C, -S and -p. */
#include "examples/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_MESSAGES 4096u

static bool in_range(const struct options *options, unsigned long port)
{
	return options->count >= 1 && options->count <= options->max_count &&
	       options->messages <= MAX_MESSAGES && options->size >= 1 &&
	       options->size <= options->max_size && port >= 1 && port <= UINT16_MAX;
}

int options_parse(struct options *options, struct example *example, int argc, char *argv[])
{
	const char *server = NULL, *local = NULL;
	unsigned long port = options->port;
	int option;

	while ((option = getopt(argc, argv, "s:b:c:C:S:p:h")) != -1) {
		switch (option) {
		case 's': server = optarg; break;
		case 'b': local = optarg; break;
		case 'c': options->count = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'C': options->messages = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'S': options->size = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'p': port = strtoul(optarg, NULL, 10); break;
		case 'h': fputs(options->usage, stdout); return EXIT_SUCCESS;
		default: fputs(options->usage, stderr); return 2;
		}
	}
	options->port = (uint16_t)port;
	if (optind == argc && in_range(options, port) &&
	    (!server || example_address(server, options->port, &options->server)) &&
	    (!local || example_address(local, 0, &example->local)))
		return -1;
	fputs(options->usage, stderr);
	return 2;
}

int options_family(const struct options *options, const struct example *example)
{
	if (options->server.ss_family)
		return options->server.ss_family;
	return example->local.ss_family ? example->local.ss_family : AF_INET;
}
