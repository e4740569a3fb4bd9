/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads device strings and completes them with what the number of workers and the MTU need. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "net/device.h"
#include "net/link.h"
#include "net/message.h"

/* "3b:00.0" or "0000:3b:00.0", up to the first comma. */
static bool is_pci(const char *device)
{
	unsigned int domain, bus, slot, function;
	int end = 0;

	if (sscanf(device, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) == 4 && end)
		return device[end] == '\0' || device[end] == ',';
	end = 0;
	if (sscanf(device, "%2x:%2x.%1x%n", &bus, &slot, &function, &end) == 3 && end)
		return device[end] == '\0' || device[end] == ',';
	return false;
}

bool device_argument(const char *device, const char *key, char *value, size_t size)
{
	size_t length = strlen(key);

	while ((device = strchr(device, ',')) != NULL) {
		device++;
		if (strncmp(device, key, length) == 0 && device[length] == '=') {
			device += length + 1;
			snprintf(value, size, "%.*s", (int)strcspn(device, ","), device);
			return true;
		}
	}
	return false;
}

static void append(struct device *device, const char *key, uint32_t value)
{
	size_t used = strlen(device->text);

	snprintf(device->text + used, sizeof(device->text) - used, ",%s=%u", key, value);
}

/*
 * The number that the administrator gave for `key`; without one, `wanted` is added to the
 * arguments (left out when it is the driver's own, `standard`). False: not a number.
 */
static bool complete(struct device *device, const char *key, uint32_t wanted, uint32_t standard,
		     uint32_t *value)
{
	char text[24], *end;
	unsigned long number;

	*value = wanted;
	if (!device_argument(device->text, key, text, sizeof(text))) {
		if (wanted != standard)
			append(device, key, wanted);
		return true;
	}
	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || !isdigit((unsigned char)text[0]) || *end || number > UINT32_MAX)
		return false;
	*value = (uint32_t)number;
	return true;
}

static uint32_t power_of_two_from(uint32_t from, uint32_t needed)
{
	while (from < needed)
		from *= 2;
	return from;
}

/*
 * af_packet keeps frames in a ring that it shares with the kernel. The kernel puts up to
 * 66 bytes before a received frame; the driver wants a frame size that divides the
 * block size, and buffers for all of it but the 32 bytes before a sent frame.
 */
#define AF_PACKET_BEFORE_RX 66u
#define AF_PACKET_BEFORE_TX 32u

static const char *complete_af_packet(struct device *device, uint32_t frame, uint32_t workers)
{
	uint32_t framesz, blocksz, framecnt, queues;
	uint32_t wanted = power_of_two_from(2048, frame + AF_PACKET_BEFORE_RX);

	if (!complete(device, "qpairs", workers, 1, &queues) || queues != workers)
		return "qpairs must be the number of workers (leave it out)";
	if (!complete(device, "framesz", wanted, 2048, &framesz) ||
	    framesz < frame + AF_PACKET_BEFORE_RX)
		return "framesz is too small for the port's mtu (leave it out)";
	if (!complete(device, "blocksz", power_of_two_from(65536, framesz), 4096, &blocksz) ||
	    blocksz % framesz)
		return "blocksz must be a multiple of framesz (leave it out)";
	if (!complete(device, "framecnt", framesz > 4096 ? 512 : 1024, 512, &framecnt) ||
	    framecnt < blocksz / framesz)
		return "framecnt must fill a block at least (leave it out)";
	device->room = framesz - AF_PACKET_BEFORE_TX;
	return NULL;
}

static void remove_argument(struct device *device, const char *key)
{
	size_t length = strlen(key);
	char *at = device->text;

	while ((at = strchr(at, ',')) != NULL) {
		if (strncmp(at + 1, key, length) == 0 && at[1 + length] == '=') {
			char *end = at + 1 + strcspn(at + 1, ",");

			memmove(at, end, strlen(end) + 1);
		} else {
			at++;
		}
	}
}

static enum memlink_role memif_role_of(const struct device *device)
{
	char role[16];

	if (!device_argument(device->text, "role", role, sizeof(role)) || !strcmp(role, "client") ||
	    !strcmp(role, "slave"))
		return MEMLINK_CLIENT;
	return !strcmp(role, "server") || !strcmp(role, "master") ? MEMLINK_SERVER : MEMLINK_NONE;
}

/* Two processes may have the same number, each in its own namespace. */
static unsigned long long process_mark(void)
{
	static unsigned long long mark;

	if (!mark && getrandom(&mark, sizeof(mark), 0) != sizeof(mark))
		mark = (unsigned long long)getpid();
	return mark;
}

#define BESIDE ".driver"

/*
 * The driver is shown a socket of our own (see door.c): a server one beside that of the
 * configuration, with the same rights; a client one that only this process may connect to.
 */
static const char *complete_memif_socket(struct device *device, bool bare)
{
	struct memlink_ends *ends = &device->memif;
	char name[DEVICE_TEXT] = "/run/memif.sock", abstract[8] = "yes"; /* the driver's own */
	size_t used;

	ends->role = memif_role_of(device);
	device_argument(device->text, "socket", name, sizeof(name));
	device_argument(device->text, "socket-abstract", abstract, sizeof(abstract));
	ends->outer.abstract = strcmp(abstract, "yes") == 0;
	if (ends->role == MEMLINK_NONE || (!ends->outer.abstract && strcmp(abstract, "no") != 0))
		return "expected role=server or role=client, and socket-abstract=yes or =no";
	if (!complete(device, "id", 0, 0, &ends->id))
		return "id must be a number";
	if (strlen(name) + sizeof(BESIDE) + 1 > sizeof(ends->outer.text))
		return "the socket's name is too long (99 characters at most)";
	strcpy(ends->outer.text, name);
	if (bare)
		return NULL;
	ends->inner.abstract = ends->outer.abstract || ends->role == MEMLINK_CLIENT;
	if (ends->role == MEMLINK_SERVER)
		sprintf(ends->inner.text, "%s" BESIDE, ends->outer.text);
	else
		snprintf(ends->inner.text, sizeof(ends->inner.text), "oriel-%llx-%s",
			 process_mark(), device->name);
	remove_argument(device, "socket");
	remove_argument(device, "socket-abstract");
	used = strlen(device->text);
	snprintf(device->text + used, sizeof(device->text) - used, ",socket=%s,socket-abstract=%s",
		 ends->inner.text, ends->inner.abstract ? "yes" : "no");
	return NULL;
}

/* A memif buffer that holds a whole frame keeps it in one piece; 2048 is the driver's own. */
static const char *complete_memif(struct device *device, uint32_t frame, bool bare)
{
	uint32_t bsize;

	if (!complete(device, "bsize", (frame + 2047) / 2048 * 2048, 2048, &bsize) || bsize == 0 ||
	    bsize > UINT16_MAX)
		return "bsize must be a number from 1 to 65535 (leave it out)";
	device->room = bsize > frame ? bsize : frame;
	return complete_memif_socket(device, bare);
}

/*
 * The kernel takes no buffer under 2048 bytes for af_xdp and keeps 256 bytes of each for XDP
 * programs; and a buffer, with all that DPDK and we put before its data, is at most a page.
 */
#define AF_XDP_ROOM      2048u
#define AF_XDP_HEADROOM  256u
#define AF_XDP_MTU_LIMIT 3374u
static const char af_xdp_mtu[] =
	"mtu is too large: net_af_xdp carries at most 3374, a frame to a page";

/* virtio puts its own header before a received frame. */
#define VIRTIO_HEADER 12u

static const char *complete_queues(struct device *device, const char *key, uint32_t workers)
{
	uint32_t queues;

	if (!complete(device, key, workers, 1, &queues) || queues < workers)
		return "fewer queues than workers (leave the number out)";
	return NULL;
}

static const char *complete_af_xdp(struct device *device, uint32_t mtu, uint32_t workers)
{
	uint32_t room = link_frame_size(mtu) + AF_XDP_HEADROOM;

	if (mtu > AF_XDP_MTU_LIMIT)
		return af_xdp_mtu;
	device->room = room > AF_XDP_ROOM ? room : AF_XDP_ROOM;
	return complete_queues(device, "queue_count", workers);
}

static const char *complete_arguments(struct device *device, const struct net_port_config *config,
				      uint32_t workers)
{
	uint32_t frame = link_frame_size(config->mtu);
	const char *driver = device->driver;

	if (!strcmp(driver, "net_af_packet"))
		return complete_af_packet(device, frame, workers);
	if (!strcmp(driver, "net_memif"))
		return complete_memif(device, frame, config->bare);
	if (!strcmp(driver, "net_vhost") || !strcmp(driver, "net_virtio_user"))
		return complete_queues(device, "queues", workers);
	if (!strcmp(driver, "net_af_xdp"))
		return complete_af_xdp(device, config->mtu, workers);
	if (!strcmp(driver, "net_tun"))
		return "a tun device has no Ethernet header; use net_tap";
	return NULL;
}

int device_parse(struct device *device, const struct net_port_config *config, uint32_t workers,
		 const char **message)
{
	const char *problem = NULL;
	size_t length = strcspn(config->device, ",");

	memset(device, 0, sizeof(*device));
	device->pci = is_pci(config->device);
	if (length == 0 || length >= sizeof(device->name) || strpbrk(config->device, " \t"))
		problem = "expected a PCI address or a virtual device "
			  "(net_af_packet0,iface=eth1)";
	if (!problem) {
		memcpy(device->name, config->device, length);
		snprintf(device->text, sizeof(device->text), "%s", config->device);
		/* A PCI device may be virtio too. */
		device->room = link_frame_size(config->mtu) + VIRTIO_HEADER;
		if (!device->pci) {
			while (length && isdigit((unsigned char)device->name[length - 1]))
				length--;
			snprintf(device->driver, sizeof(device->driver), "%.*s", (int)length,
				 device->name);
			if (!strncmp(device->driver, "eth_", 4))
				memcpy(device->driver, "net", 3);
			problem = complete_arguments(device, config, workers);
		}
	}
	if (!problem)
		return 0;
	*message = net_port_message(config, problem == af_xdp_mtu ? config->mtu_line : 0, problem);
	return -EINVAL;
}
