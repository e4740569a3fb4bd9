/* SPDX-License-Identifier: BSD-3-Clause */
/* The options that oriel-cmatose and oriel-udaddy share: near those of their stock namesakes. */
#ifndef APP_EXAMPLES_OPTIONS_H
#define APP_EXAMPLES_OPTIONS_H

#include <stdint.h>
#include <sys/socket.h>

#include "examples/example.h"

struct options {
	const char *usage;
	uint32_t max_count, max_size;
	uint32_t count;    /* of connections, or of queue pairs */
	uint32_t messages; /* on each */
	uint32_t size;     /* of a message, in bytes */
	uint16_t port;
	struct sockaddr_storage server; /* without a family: be the server */
};

/*
 * Fills in what the command line has beside the defaults, and `local` of the example. Returns -1,
 * or the status to exit with: the help was asked for, or the usage is on stderr.
 */
int options_parse(struct options *options, struct example *example, int argc, char *argv[]);

/* The family of the addresses given; IPv4 when none is. */
int options_family(const struct options *options, const struct example *example);

#endif
