/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values on a command line. Each false comes with a message on stderr that names the program, the
 * option (as the user writes it, with its dashes) and what it takes.
 */
#ifndef APP_COMMON_ARGUMENT_H
#define APP_COMMON_ARGUMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Decimal digits alone. */
bool argument_number(const char *option, const char *text, uint64_t least, uint64_t most,
		     uint64_t *value);
bool argument_small(const char *option, const char *text, uint32_t least, uint32_t most,
		    uint32_t *value);
bool argument_port(const char *option, const char *text, uint16_t *port);

bool argument_real(const char *option, const char *text, double least, double most, double *value);

/* "10.0.0.1" or "fd00::1"; the port is 0. */
bool argument_address(const char *option, const char *text, struct sockaddr_storage *address);
/* "10.0.0.1:7471" or "[fd00::1]:7471". */
bool argument_endpoint(const char *option, const char *text, struct sockaddr_storage *address);

#endif
