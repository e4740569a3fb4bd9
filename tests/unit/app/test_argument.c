/* SPDX-License-Identifier: BSD-3-Clause */
/* Values on command lines: what is taken, and what is not. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>

#include "common/argument.h"

Test(argument, numbers_are_digits_in_their_range)
{
	static const char *const wrong[] = { "",    "-1",  "+5",  " 5", "5 ",
					     "0x5", "101", "5.0", "0",  "18446744073709551617" };
	uint64_t value;
	uint32_t small;
	uint16_t port;

	cr_assert(argument_number("-n", "1", 1, 100, &value) && value == 1);
	cr_assert(argument_number("-n", "18446744073709551615", 1, UINT64_MAX, &value));
	cr_assert_eq(value, UINT64_MAX);
	cr_assert(argument_small("-n", "100", 1, 100, &small) && small == 100);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		cr_assert_not(argument_number("-n", wrong[i], 1, 100, &value), "'%s'", wrong[i]);
	cr_assert(argument_port("-p", "65535", &port) && port == 65535);
	cr_assert_not(argument_port("-p", "65536", &port));
}

Test(argument, reals_are_in_their_range)
{
	double value;

	cr_assert(argument_real("-r", "0.25", 0, 1, &value) && value == 0.25);
	cr_assert_not(argument_real("-r", "", 0, 1, &value));
	cr_assert_not(argument_real("-r", "1.5", 0, 1, &value));
	cr_assert_not(argument_real("-r", "nan", 0, 1, &value));
	cr_assert_not(argument_real("-r", "0.5s", 0, 1, &value));
}

Test(argument, addresses_are_of_either_family)
{
	struct sockaddr_storage address;

	cr_assert(argument_address("-a", "10.0.0.1", &address));
	cr_assert_eq(address.ss_family, AF_INET);
	cr_assert(argument_address("-a", "fd00::1", &address));
	cr_assert_eq(address.ss_family, AF_INET6);
	cr_assert_not(argument_address("-a", "10.0.0.1:7471", &address));
	cr_assert_not(argument_address("-a", "host", &address));
}

Test(argument, endpoints_have_a_port_and_brackets_around_colons)
{
	static const char *const wrong[] = { "10.0.0.1",
					     "10.0.0.1:",
					     "10.0.0.1:0",
					     "10.0.0.1:65536",
					     "fd00::1:7471",
					     "[10.0.0.1]:7471",
					     "[fd00::1]",
					     "[fd00::1:7471",
					     "[]:1",
					     ":1",
					     "" };
	struct sockaddr_storage address;

	cr_assert(argument_endpoint("-e", "10.0.0.1:7471", &address));
	cr_assert_eq(address.ss_family, AF_INET);
	cr_assert_eq(((struct sockaddr_in *)&address)->sin_port, htons(7471));
	cr_assert(argument_endpoint("-e", "[fd00::1]:7471", &address));
	cr_assert_eq(address.ss_family, AF_INET6);
	cr_assert_eq(((struct sockaddr_in6 *)&address)->sin6_port, htons(7471));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		cr_assert_not(argument_endpoint("-e", wrong[i], &address), "'%s'", wrong[i]);
}
