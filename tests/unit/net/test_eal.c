/* SPDX-License-Identifier: BSD-3-Clause */
/* What devices and cores become on EAL's command line. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "links.h"
#include "net/eal.h"

static struct eal_arguments arguments;
static const char *message;

static struct net_config config_of(const char *device, uint32_t workers)
{
	struct net_config config = { .ports = 1, .workers = workers, .control_cpu = 0 };

	config.port[0] = test_port(0);
	strcpy(config.port[0].device, device);
	for (uint32_t w = 0; w < workers; w++)
		config.worker_cpu[w] = w + 1;
	return config;
}

static int build(const struct net_config *config, char *const extra[])
{
	message = NULL;
	return eal_arguments_build(&arguments, config, "/run/a.sock", extra, &message);
}

static const char *find(const char *prefix)
{
	for (int i = 0; i < arguments.count; i++)
		if (strncmp(arguments.argument[i], prefix, strlen(prefix)) == 0)
			return arguments.argument[i];
	return NULL;
}

static struct device device_of(const char *text, uint16_t mtu, uint32_t workers)
{
	struct net_config config = config_of(text, workers);
	struct device device;

	config.port[0].mtu = mtu;
	message = NULL;
	cr_assert_eq(device_parse(&device, &config.port[0], workers, &message), 0, "%s", message);
	return device;
}

static void refused(const char *text, uint16_t mtu, uint32_t workers, const char *why)
{
	struct net_config config = config_of(text, workers);
	struct device device;

	config.port[0].mtu = mtu;
	cr_assert_eq(device_parse(&device, &config.port[0], workers, &message), -EINVAL, "%s",
		     text);
	cr_assert(strstr(message, "wan0") && strstr(message, why), "%s: %s", text, message);
}

Test(device, pci_addresses_are_told_from_virtual_devices)
{
	cr_assert(device_of("0000:3b:00.0", 1500, 1).pci);
	cr_assert(device_of("3b:00.1", 1500, 1).pci);
	cr_assert(device_of("0000:3b:00.0,dv_flow_en=1", 1500, 1).pci);
	cr_assert_str_eq(device_of("0000:3b:00.0,dv_flow_en=1", 1500, 1).name, "0000:3b:00.0");
	cr_assert_not(device_of("net_null0", 1500, 1).pci);
	cr_assert_str_eq(device_of("net_memif12,role=client", 1500, 1).name, "net_memif12");
	cr_assert_str_eq(device_of("net_memif12,role=client", 1500, 1).driver, "net_memif");
	cr_assert_str_eq(device_of("eth_af_packet0,iface=a", 1500, 1).driver, "net_af_packet");
}

Test(device, every_worker_gets_a_queue)
{
	cr_assert(strstr(device_of("net_af_packet0,iface=a", 1500, 2).text, ",qpairs=2"));
	cr_assert(strstr(device_of("net_vhost0,iface=/tmp/s", 1500, 3).text, ",queues=3"));
	cr_assert(strstr(device_of("net_af_xdp0,iface=a", 1500, 2).text, ",queue_count=2"));
	cr_assert_null(strstr(device_of("net_vhost0,iface=/tmp/s", 1500, 1).text, "queues"));
	cr_assert_str_eq(device_of("net_vhost0,iface=/tmp/s,queues=4", 1500, 3).text,
			 "net_vhost0,iface=/tmp/s,queues=4");
	refused("net_vhost0,iface=/tmp/s,queues=1", 1500, 2, "queues");
	refused("net_af_packet0,iface=a,qpairs=1", 1500, 2, "qpairs");
}

Test(device, af_packet_ring_holds_a_full_frame)
{
	/* B91: the frame, its tag, and the 66 bytes that the kernel puts before it. */
	struct device small = device_of("net_af_packet0,iface=a", 1500, 1);
	struct device edge = device_of("net_af_packet0,iface=a", 2048 - 66 - 18, 1);
	struct device above = device_of("net_af_packet0,iface=a", 2048 - 66 - 17, 1);
	struct device jumbo = device_of("net_af_packet0,iface=a", 9000, 1);

	cr_assert_null(strstr(small.text, "framesz"), "2048 is the driver's own");
	cr_assert_null(strstr(edge.text, "framesz"));
	cr_assert(strstr(above.text, ",framesz=4096"), "%s", above.text);
	cr_assert(strstr(jumbo.text, ",framesz=16384"), "%s", jumbo.text);
	cr_assert(strstr(jumbo.text, ",blocksz=65536"), "%s", jumbo.text);
	cr_assert_eq(small.room, 2048 - 32);
	cr_assert_eq(jumbo.room, 16384 - 32);
	refused("net_af_packet0,iface=a,framesz=2048", 4200, 1, "framesz");
	refused("net_af_packet0,iface=a,blocksz=3000", 1500, 1, "blocksz");
}

/* Who is at the other end is between our door and him; see net/door.c. */
Test(device, memif_driver_meets_our_door_and_nobody_else)
{
	struct device device =
		device_of("net_memif3,socket=/run/x,socket-abstract=no,role=server,id=7", 1500, 1);

	cr_assert_eq(device.memif.role, MEMLINK_SERVER);
	cr_assert_eq(device.memif.id, 7);
	cr_assert(!device.memif.outer.abstract && !device.memif.inner.abstract);
	cr_assert_str_eq(device.memif.outer.text, "/run/x");
	cr_assert_str_eq(device.text,
			 "net_memif3,role=server,id=7,socket=/run/x.driver,socket-abstract=no");
	device = device_of("net_memif3,socket=/run/x,socket-abstract=no", 1500, 1);
	cr_assert_eq(device.memif.role, MEMLINK_CLIENT);
	cr_assert(!device.memif.outer.abstract && device.memif.inner.abstract);
	cr_assert_str_eq(device.memif.outer.text, "/run/x");
	cr_assert(strstr(device.text, ",socket=oriel-") && strstr(device.text, "-net_memif3,"));
	refused("net_memif0,role=neither", 1500, 1, "role");
	refused("net_memif0,id=x", 1500, 1, "id");
}

Test(device, memif_buffers_hold_a_full_frame)
{
	cr_assert_null(strstr(device_of("net_memif0", 1500, 1).text, "bsize"));
	cr_assert(strstr(device_of("net_memif0", 4200, 1).text, ",bsize=6144"));
	cr_assert_eq(device_of("net_memif0,bsize=1024", 4200, 1).room, 4218);
	refused("net_memif0,bsize=0", 1500, 1, "bsize");
}

Test(device, numbers_that_are_none_are_refused)
{
	/* B116 */
	refused("net_af_packet0,iface=a,qpairs=", 1500, 1, "qpairs");
	refused("net_af_packet0,iface=a,qpairs=-1", 1500, 1, "qpairs");
	refused("net_af_packet0,iface=a,framesz=0x1000", 1500, 1, "framesz");
	refused("net_af_packet0,iface=a,framesz=4k", 1500, 1, "framesz");
	refused("net_vhost0,iface=s,queues=99999999999", 1500, 1, "queues");
}

Test(device, what_cannot_be_a_device_is_refused)
{
	refused("", 1500, 1, "expected");
	refused(",iface=a", 1500, 1, "expected");
	refused("net_null0 iface=a", 1500, 1, "expected");
	refused("net_tun0", 1500, 1, "net_tap"); /* B86 */
	refused("net_nulllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll0",
		1500, 1, "expected");
}

Test(device, arguments_are_found_by_their_whole_key)
{
	char value[16];

	cr_assert(device_argument("net_x0,iface=a,face=b", "face", value, sizeof(value)));
	cr_assert_str_eq(value, "b");
	cr_assert_not(device_argument("net_x0,iface=a", "ifac", value, sizeof(value)));
	cr_assert_not(device_argument("iface=a", "iface", value, sizeof(value)));
}

Test(eal, lcores_map_control_and_workers_and_may_share_a_cpu)
{
	struct net_config config = config_of("net_null0", 2);

	cr_assert_eq(build(&config, NULL), 0);
	cr_assert(find("--lcores=0@0,1@1,2@2"));
	config.worker_cpu[1] = 0;
	cr_assert_eq(build(&config, NULL), 0);
	cr_assert(find("--lcores=0@0,1@1,2@0"));
}

Test(eal, pci_bus_is_scanned_only_when_a_port_is_on_it)
{
	struct net_config config = config_of("net_null0", 1);

	cr_assert_eq(build(&config, NULL), 0);
	cr_assert(find("--no-pci"));
	cr_assert(find("--vdev=net_null0"));
	config = config_of("0000:3b:00.0", 1);
	cr_assert_eq(build(&config, NULL), 0);
	cr_assert_null(find("--no-pci"));
	cr_assert(find("-a0000:3b:00.0"));
	cr_assert_null(find("--vdev"));
}

Test(eal, memory_without_hugepages_covers_the_buffers)
{
	struct net_config config = config_of("net_null0", 1);
	uint32_t one = eal_memory_mib(&config), four;

	cr_assert_eq(build(&config, NULL), 0);
	cr_assert(find("--no-huge"));
	cr_assert(find("-m"));
	cr_assert_lt(one, 200);
	config.workers = 4;
	four = eal_memory_mib(&config);
	cr_assert_gt(four, one + one / 2);
	config.port[0].mtu = 9000;
	cr_assert_gt(eal_memory_mib(&config), four);
	config.hugepages = true;
	cr_assert_eq(build(&config, NULL), 0);
	cr_assert_null(find("--no-huge"));
	cr_assert(find("--in-memory"));
}

Test(eal, two_daemons_have_two_prefixes_and_one_has_always_the_same)
{
	struct net_config config = config_of("net_null0", 1);
	char first[64];

	/* B114 */
	cr_assert_eq(build(&config, NULL), 0);
	strcpy(first, find("--file-prefix="));
	cr_assert_eq(build(&config, NULL), 0);
	cr_assert_str_eq(find("--file-prefix="), first);
	cr_assert_eq(eal_arguments_build(&arguments, &config, "/run/b.sock", NULL, &message), 0);
	cr_assert_str_neq(find("--file-prefix="), first);
}

Test(eal, arguments_of_the_administrator_come_last_and_win)
{
	char *extra[] = { "--file-prefix=mine", "-m512", "--log-level=debug", NULL };
	struct net_config config = config_of("net_null0", 1);

	cr_assert_eq(build(&config, extra), 0);
	cr_assert_str_eq(find("--file-prefix"), "--file-prefix=mine");
	cr_assert_str_eq(find("-m"), "-m512");
	cr_assert_str_eq(find("--log-level"), "--log-level=debug");
	cr_assert(arguments.verbose);
	cr_assert_str_eq(arguments.argument[arguments.count - 1], "--log-level=debug");
	cr_assert_null(arguments.argument[arguments.count]);
}

Test(eal, what_the_configuration_says_cannot_be_said_twice)
{
	static char *const twice[] = { "-l", "--lcores=0-3", "-c3", "--no-huge" };
	struct net_config config = config_of("net_null0", 1);

	for (unsigned int i = 0; i < 4; i++) {
		char *extra[] = { twice[i], NULL };

		cr_assert_eq(build(&config, extra), -EINVAL);
		cr_assert(strstr(message, "configuration"), "%s", message);
	}
}

Test(eal, too_many_arguments_are_an_error_and_not_cut)
{
	static char *extra[EAL_MAX_ARGUMENTS + 1];
	struct net_config config = config_of("net_null0", 1);

	for (int i = 0; i < EAL_MAX_ARGUMENTS; i++)
		extra[i] = "-v";
	cr_assert_eq(build(&config, extra), -EINVAL);
	cr_assert_not_null(message);
}

Test(eal, for_a_caller_that_runs_everything_there_is_one_core_and_no_trace)
{
	struct net_config config = config_of("net_memif0,role=client", 1);

	config.caller_runs = true;
	cr_assert_eq(build(&config, NULL), 0);
	cr_assert(find("--lcores=0@") && !strchr(find("--lcores=0@"), ','));
	cr_assert(find("--no-telemetry") && find("--no-shconf") && find("--no-huge"));
	/* It comes with its port; memory is for those of later configurations as well. */
	cr_assert(!find("--vdev") && find("--no-pci"));
	cr_assert_str_eq(find("-m"), "-m1024");
	config.hugepages = true;
	cr_assert_eq(build(&config, NULL), 0);
	cr_assert(find("--in-memory") && !find("--no-huge") && !find("--no-shconf"));
	config = config_of("0000:3b:00.0", 1);
	config.caller_runs = true;
	cr_assert_eq(build(&config, NULL), 0);
	cr_assert(find("-a0000:3b:00.0") && !find("--no-pci"));
}
