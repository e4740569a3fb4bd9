/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue at which a datagram lands, against the published vectors of the Toeplitz hash. */
#include <criterion/criterion.h>
#include <string.h>

#include "net/steer.h"
#include "wire/ip.h"

/* As in the "Verifying the RSS hash calculation" page of the network driver documentation. */
static const uint8_t key[40] = { 0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
				 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
				 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
				 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa };

static struct steering steering;

static void setup(void)
{
	memset(&steering, 0, sizeof(steering));
	memcpy(steering.key, key, sizeof(key));
	steering.entries = 512;
	for (uint16_t i = 0; i < 512; i++)
		steering.queue[i] = i;
}

TestSuite(steer, .init = setup);

static int predict4(const uint8_t source[4], const uint8_t destination[4], uint16_t source_port,
		    uint16_t destination_port)
{
	uint8_t from[16], to[16];

	gid_from_v4(from, source);
	gid_from_v4(to, destination);
	return steer_predict(&steering, from, to, source_port, destination_port);
}

Test(steer, addresses_and_ports_of_ipv4)
{
	static const uint8_t source[2][4] = { { 66, 9, 149, 187 }, { 199, 92, 111, 2 } };
	static const uint8_t destination[2][4] = { { 161, 142, 100, 80 }, { 65, 69, 140, 83 } };

	cr_assert_eq(predict4(source[0], destination[0], 2794, 1766), 0x323e8fc2 % 512);
	cr_assert_eq(predict4(source[1], destination[1], 14230, 4739), 0xd718262au % 512);
	steering.ports4 = true;
	cr_assert_eq(predict4(source[0], destination[0], 2794, 1766), 0x51ccc178 % 512);
	cr_assert_eq(predict4(source[1], destination[1], 14230, 4739), 0xc626b0eau % 512);
}

Test(steer, addresses_and_ports_of_ipv6)
{
	static const uint8_t source[16] = { 0x3f, 0xfe, 0x25, 0x01, 0x02,       0x00,
					    0x1f, 0xff, 0,    0,    [15] = 0x07 };
	static const uint8_t destination[16] = { 0x3f, 0xfe, 0x25, 0x01, 0x02,       0x00,
						 0x00, 0x03, 0,    0,    [15] = 0x01 };

	steering.ports4 = true;
	cr_assert_eq(steer_predict(&steering, source, destination, 2794, 1766), 0x2cc18cd5 % 512);
	steering.ports6 = true;
	cr_assert_eq(steer_predict(&steering, source, destination, 2794, 1766), 0x40207d3d % 512);
}

Test(steer, the_table_says_which_queue)
{
	static const uint8_t source[4] = { 66, 9, 149, 187 },
			     destination[4] = { 161, 142, 100, 80 };

	steering.entries = 128;
	steering.queue[0x323e8fc2 % 128] = 7;
	cr_assert_eq(predict4(source, destination, 1, 2), 7);
	steering.entries = 0;
	cr_assert_eq(predict4(source, destination, 1, 2), -1, "not known");
}
