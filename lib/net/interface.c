/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel interface under a port (net_af_packet, net_af_xdp): its MTU and its queues. */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/message.h"
#include "net/net_private.h"

/* A socket to ask about the interface by, and its name in *request. Or a negative errno. */
static int open_request(const char *name, struct ifreq *request)
{
	int fd;

	memset(request, 0, sizeof(*request));
	if (strlen(name) >= sizeof(request->ifr_name))
		return -ENODEV;
	memcpy(request->ifr_name, name, strlen(name) + 1);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

int interface_raise_mtu(const char *name, uint16_t mtu)
{
	struct ifreq request;
	int fd = open_request(name, &request);
	int error = 0;

	if (fd < 0)
		return fd;
	if (ioctl(fd, SIOCGIFMTU, &request)) {
		error = -errno;
	} else if (request.ifr_mtu < mtu) {
		request.ifr_mtu = mtu;
		if (ioctl(fd, SIOCSIFMTU, &request))
			error = -errno;
	}
	close(fd);
	return error;
}

uint32_t interface_queues(const char *name)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ifreq request;
	int fd = open_request(name, &request);
	uint32_t queues = 0;

	if (fd < 0)
		return 0;
	request.ifr_data = (char *)&channels;
	if (ioctl(fd, SIOCETHTOOL, &request) == 0)
		queues = channels.rx_count + channels.combined_count;
	close(fd);
	return queues;
}
