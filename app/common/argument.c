/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the values that options take. */
#include "common/argument.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool complain(const char *option, const char *text, const char *expected)
{
	fprintf(stderr, "%s: %s %s: expected %s\n", program_invocation_short_name, option, text,
		expected);
	return false;
}

/* --- numbers --------------------------------------------------------------------------------- */

static bool digits(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	/* A minus is strtoull()'s to take, and nobody's to write. */
	return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *value >= least &&
	       *value <= most;
}

bool argument_number(const char *option, const char *text, uint64_t least, uint64_t most,
		     uint64_t *value)
{
	char expected[80];

	if (digits(text, least, most, value))
		return true;
	snprintf(expected, sizeof(expected), "a number from %" PRIu64 " to %" PRIu64, least, most);
	return complain(option, text, expected);
}

bool argument_small(const char *option, const char *text, uint32_t least, uint32_t most,
		    uint32_t *value)
{
	uint64_t number;

	if (!argument_number(option, text, least, most, &number))
		return false;
	*value = (uint32_t)number;
	return true;
}

bool argument_port(const char *option, const char *text, uint16_t *port)
{
	uint64_t number;

	if (!argument_number(option, text, 1, UINT16_MAX, &number))
		return false;
	*port = (uint16_t)number;
	return true;
}

bool argument_real(const char *option, const char *text, double least, double most, double *value)
{
	char expected[80];
	char *end;

	*value = strtod(text, &end);
	if (end != text && !*end && *value >= least && *value <= most)
		return true;
	snprintf(expected, sizeof(expected), "a number from %g to %g", least, most);
	return complain(option, text, expected);
}

/* --- addresses ------------------------------------------------------------------------------- */

static bool parse_address(const char *text, struct sockaddr_storage *address)
{
	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, text, &((struct sockaddr_in *)address)->sin_addr) == 1)
		address->ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)address)->sin6_addr) == 1)
		address->ss_family = AF_INET6;
	return address->ss_family != 0;
}

bool argument_address(const char *option, const char *text, struct sockaddr_storage *address)
{
	return parse_address(text, address) || complain(option, text, "an IP address");
}

static bool parse_endpoint(const char *text, struct sockaddr_storage *address)
{
	const bool brackets = text[0] == '[';
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN];
	size_t length;
	uint64_t port;

	if (!colon || !digits(colon + 1, 1, UINT16_MAX, &port))
		return false;
	length = (size_t)(colon - text);
	if (brackets) {
		if (length < 2 || colon[-1] != ']')
			return false;
		text++;
		length -= 2;
	}
	if (length >= sizeof(host))
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	if (!parse_address(host, address) || brackets != (address->ss_family == AF_INET6))
		return false;
	if (brackets)
		((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
	else
		((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
	return true;
}

bool argument_endpoint(const char *option, const char *text, struct sockaddr_storage *address)
{
	return parse_endpoint(text, address) ||
	       complain(option, text, "ADDRESS:PORT, as 10.0.0.1:7471 or [fd00::1]:7471");
}
