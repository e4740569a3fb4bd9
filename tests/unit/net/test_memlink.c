/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the memif protocol that are handed on, and the descriptors that come with them. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/memlink.h"

static int here, there;

static void setup(void)
{
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	here = pair[0];
	there = pair[1];
}

TestSuite(memlink, .init = setup);

static void send_message(uint16_t kind, size_t size, unsigned int descriptors)
{
	uint8_t bytes[2 * MEMLINK_MESSAGE] = { 0 };
	struct iovec part = { bytes, size };
	union {
		char room[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	memcpy(bytes, &kind, sizeof(kind));
	if (descriptors) {
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
		control.align.cmsg_len = CMSG_LEN(descriptors * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		for (unsigned int i = 0; i < descriptors; i++)
			memcpy(CMSG_DATA(&control.align) + i * sizeof(int), &there, sizeof(int));
	}
	cr_assert_eq(sendmsg(there, &header, 0), (ssize_t)size);
}

static unsigned int open_descriptors(void)
{
	unsigned int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

Test(memlink, a_descriptor_goes_with_its_message)
{
	const unsigned int before = open_descriptors();
	struct memlink_message message;

	cr_assert_eq(memlink_receive(here, &message), MEMLINK_NOTHING);
	send_message(MEMLINK_CONNECT, MEMLINK_MESSAGE, 1);
	cr_assert_eq(memlink_receive(here, &message), MEMLINK_CONNECT);
	cr_assert_geq(message.fd, 0);
	cr_assert(memlink_send(there, &message));
	cr_assert_eq(message.fd, -1);
	cr_assert_eq(open_descriptors(), before, "handed on, it is closed here");
	cr_assert_eq(memlink_receive(here, &message), MEMLINK_CONNECT);
	cr_assert_geq(message.fd, 0, "and came over");
}

/* However many a peer sends, and with what. */
Test(memlink, nobody_fills_the_table_of_descriptors)
{
	const unsigned int before = open_descriptors();
	struct memlink_message message;

	for (unsigned int count = 1; count <= 4; count++) {
		send_message(MEMLINK_INIT, MEMLINK_MESSAGE, count);
		cr_assert_eq(memlink_receive(here, &message), MEMLINK_INIT);
		cr_assert_eq(open_descriptors(), before + 1, "%u sent", count);
		close(message.fd);
		send_message(MEMLINK_INIT, MEMLINK_MESSAGE - 1, count);
		cr_assert_eq(memlink_receive(here, &message), MEMLINK_CLOSED, "too short");
		send_message(99, MEMLINK_MESSAGE, count);
		cr_assert_eq(memlink_receive(here, &message), MEMLINK_CLOSED, "of no kind");
		cr_assert_eq(open_descriptors(), before, "%u sent", count);
	}
}
