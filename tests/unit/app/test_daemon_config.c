/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's configuration: what a file becomes. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <sched.h>

#include "config_file.h"
#include "orield/config.h"

static struct config config;

static bool caller_runs;

static int read_config(const char *format, ...)
{
	char text[2048];
	va_list arguments;
	int error;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	error = config_read(&config, config_file(text), caller_runs, stderr);
	config_file_remove();
	return error;
}

/* A processor that this process may use: the n-th. */
static int processor(int n)
{
	cpu_set_t allowed;

	cr_assert_eq(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && n-- == 0)
			return cpu;
	return -1;
}

Test(daemon_config, a_file_with_only_a_port_gets_the_documented_defaults)
{
	cr_assert_eq(read_config("[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n"), 0);
	cr_assert_str_eq(config.control.socket_path, "/run/oriel/ndk.sock");
	cr_assert_str_eq(config.control.socket_group, "");
	cr_assert_eq(config.control.bad_token_budget, 64);
	cr_assert_eq(config.net.workers, 1);
	cr_assert_eq(config.net.idle, NET_IDLE_ADAPTIVE);
	cr_assert_eq(config.hugepages, HUGEPAGES_AUTO);
	cr_assert(config.telemetry);
	cr_assert_eq(config.max_qps, 16384);
	cr_assert_eq(config.max_windows, 1048576);
	cr_assert_eq(config.net.port[0].mtu, 1500);
	cr_assert_eq(config.net.port[0].vlan, 0);
}

Test(daemon_config, every_key_reaches_its_place)
{
	const struct net_port_config *port;
	int cpu = processor(0);

	cr_assert_eq(
		read_config("[daemon]\nworkers = %d\ncontrol-core = %d\nsocket = /run/y\n"
			    "socket-group = staff\nidle = busy\nmigrate = no\nhugepages = "
			    "no\ntelemetry = no\n"
			    "bad-token-budget = 0\nmax-queue-pairs = 1024\nmax-windows = 4096\n"
			    "[port wan0]\ndevice = net_a0,iface=eth1\n"
			    "ip = 10.0.0.1/24, fd00::1/64\nvlan = 4094\nmtu = 9600\n"
			    "gateway = 10.0.0.254, fd00::fe\n",
			    cpu, cpu),
		0);
	port = &config.net.port[0];
	cr_assert_eq(config.net.worker_cpu[0], (uint32_t)cpu);
	cr_assert_eq(config.net.control_cpu, (uint32_t)cpu);
	cr_assert_str_eq(config.control.socket_path, "/run/y");
	cr_assert_str_eq(config.control.socket_group, "staff");
	cr_assert_eq(config.net.idle, NET_IDLE_BUSY);
	cr_assert_not(config.net.migrate);
	cr_assert_eq(config.hugepages, HUGEPAGES_NO);
	cr_assert_not(config.telemetry);
	cr_assert_eq(config.control.bad_token_budget, 0);
	cr_assert_eq(config.max_qps, 1024);
	cr_assert_eq(config.max_windows, 4096);
	cr_assert_str_eq(port->name, "wan0");
	cr_assert_str_eq(port->device, "net_a0,iface=eth1");
	cr_assert_eq(port->addresses, 2);
	cr_assert_eq(port->address[0].prefix_length, 96 + 24, "a prefix of the GID");
	cr_assert_eq(port->address[0].gid[15], 1);
	cr_assert_eq(port->address[1].prefix_length, 64);
	cr_assert_eq(port->vlan, 4094);
	cr_assert_eq(port->mtu, 9600);
	cr_assert_eq(port->gateway4[15], 254);
	cr_assert_eq(port->gateway6[15], 0xfe);
	cr_assert_eq(port->device_line, 14);
}

Test(daemon_config, faults_are_shares_of_their_port)
{
	const struct net_fault *fault;

	cr_assert_eq(read_config("[fault a]\nreceive-loss = 1%%\nreceive-delay-us = 20\n"
				 "transmit-loss = 0.0001%%\ntransmit-corrupt = 12.34%%\nseed = 7\n"
				 "transmit-delay = 0%%\n"
				 "[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n"),
		     0);
	fault = config.net.port[0].fault;
	cr_assert_eq(fault[NET_RECEIVE].loss, 10000);
	cr_assert_eq(fault[NET_RECEIVE].delay_us, 20);
	cr_assert_eq(fault[NET_RECEIVE].seed, 7);
	cr_assert_eq(fault[NET_TRANSMIT].loss, 1);
	cr_assert_eq(fault[NET_TRANSMIT].corrupt, 123400);
	cr_assert_eq(fault[NET_TRANSMIT].delay_us, 1000);
	cr_assert_eq(fault[NET_TRANSMIT].seed, 7);
}

Test(daemon_config, faults_that_cannot_be_are_refused)
{
	static const char *const bad[] = {
		"receive-loss = 1",
		"receive-loss = 101%%",
		"receive-loss = 100.1%%",
		"receive-loss = 0.00001%%",
		"receive-loss = .5%%",
		"receive-loss = -1%%",
		"receive-loss = 1.%%",
		"receive-loss = 1e1%%",
		"loss = 1%%",
		"receive-delay-us = 1ms",
		"transmit-delay-us = 10000001",
		"seed = x",
		"receive-loss = 60%%\nreceive-delay = 40.0001%%",
	};

	cr_redirect_stderr();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char text[256];

		snprintf(text, sizeof(text),
			 "[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n[fault a]\n%s\n", bad[i]);
		cr_assert_eq(read_config(text), -EINVAL, "%s", bad[i]);
	}
	cr_assert_eq(read_config("[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n"
				 "[fault b]\nseed = 1\n"),
		     -EINVAL, "of a port that there is not");
}

Test(daemon_config, workers_are_lists_and_ranges)
{
	if (processor(1) != processor(0) + 1)
		cr_skip_test("needs two neighbouring processors");
	cr_assert_eq(read_config("[daemon]\nworkers = %d-%d\n[port a]\ndevice = net_null0\n"
				 "ip = 10.0.0.1/24\n",
				 processor(0), processor(1)),
		     0);
	cr_assert_eq(config.net.workers, 2);
	cr_assert_eq(config.net.worker_cpu[1], (uint32_t)processor(1));
	cr_assert_eq(read_config("[daemon]\nworkers = %d , %d\n[port a]\ndevice = net_null0\n"
				 "ip = 10.0.0.1/24\n",
				 processor(1), processor(0)),
		     0);
	cr_assert_eq(config.net.worker_cpu[0], (uint32_t)processor(1));
}

Test(daemon_config, ports_are_told_apart_and_share_neither_device_nor_address)
{
	static const char two[] = "[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n"
				  "[port b]\ndevice = %s\nip = %s\n";

	cr_redirect_stderr();
	cr_assert_eq(read_config(two, "net_null1", "10.0.1.1/24"), 0);
	cr_assert_eq(config.net.ports, 2);
	cr_assert_eq(read_config(two, "net_null0", "10.0.1.1/24"), -EINVAL);
	cr_assert_eq(read_config(two, "net_null1", "10.0.0.1/16"), -EINVAL);
}

Test(daemon_config, a_gateway_needs_an_address_of_its_family)
{
	static const char text[] = "[port a]\ndevice = net_null0\nip = %s\ngateway = %s\n";

	cr_redirect_stderr();
	cr_assert_eq(read_config(text, "10.0.0.1/24", "10.0.0.2"), 0);
	cr_assert_eq(read_config(text, "10.0.0.1/24", "fd00::2"), -EINVAL);
	cr_assert_eq(read_config(text, "fd00::1/64", "10.0.0.2"), -EINVAL);
}

Test(daemon_config, more_than_there_is_room_for_is_refused)
{
	char text[2048], *end = text;

	cr_redirect_stderr();
	for (unsigned int p = 0; p <= NET_MAX_PORTS; p++)
		end += sprintf(end, "[port p%u]\ndevice = net_null%u\nip = 10.0.%u.1/24\n", p, p,
			       p);
	cr_assert_eq(read_config("%s", text), -EINVAL);
	end = text + sprintf(text, "[port a]\ndevice = net_null0\nip = ");
	for (unsigned int a = 0; a <= NET_MAX_ADDRESSES; a++)
		end += sprintf(end, "10.0.%u.1/24,", a);
	cr_assert_eq(read_config("%s\n", text), -EINVAL);
}

Test(daemon_config, congestion_control_is_on_with_the_published_parameters)
{
	const struct congestion_parameters *c = &config.congestion;

	cr_assert_eq(read_config("[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n"), 0);
	cr_assert(c->enabled);
	cr_assert_eq(c->line_rate, 0, "the ports'");
	cr_assert_eq(c->minimum_rate, 100000000 / 8);
	cr_assert_eq(c->gain_shift, 8);
	cr_assert_eq(c->cnp_interval, 50000);
	cr_assert_eq(c->cnp_dscp, 48);
	cr_assert_not(config.net.port[0].own_dscp);
}

Test(daemon_config, every_key_of_congestion_control_reaches_its_place)
{
	const struct congestion_parameters *c = &config.congestion;

	cr_assert_eq(read_config("[congestion]\nenabled = no\nline-rate = 25G\n"
				 "minimum-rate = 8M\ngain = 16\nrecovery-stages = 1\n"
				 "additive-rate = 16000000\nhyper-rate = 24M\nalpha-period = 1\n"
				 "increase-period = 2\nincrease-bytes = 32K\nreduce-period = 3\n"
				 "cnp-interval = 4\ncnp-dscp = 0\n"
				 "[port a]\ndevice = net_null0\nip = 10.0.0.1/24\ndscp = 26\n"),
		     0);
	cr_assert_not(c->enabled);
	cr_assert_eq(c->line_rate, 25000000000 / 8);
	cr_assert_eq(c->minimum_rate, 1000000);
	cr_assert_eq(c->gain_shift, 4);
	cr_assert_eq(c->recovery_stages, 1);
	cr_assert_eq(c->additive_rate, 2000000);
	cr_assert_eq(c->hyper_rate, 3000000);
	cr_assert_eq(c->alpha_period, 1000);
	cr_assert_eq(c->increase_period, 2000);
	cr_assert_eq(c->increase_bytes, 32768);
	cr_assert_eq(c->reduce_period, 3000);
	cr_assert_eq(c->cnp_interval, 4000);
	cr_assert_eq(c->cnp_dscp, 0);
	cr_assert(config.net.port[0].own_dscp);
	cr_assert_eq(config.net.port[0].dscp, 26);
}

Test(daemon_config, what_a_caller_that_runs_everything_has_no_use_for_is_taken_and_means_nothing)
{
	caller_runs = true;
	cr_assert_eq(
		read_config("[daemon]\nworkers = 1020-1023\ncontrol-core = 1019\n"
			    "socket = /run/b.sock\ntelemetry = yes\nmigrate = yes\nidle = busy\n"
			    "[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n"),
		0);
	cr_assert(config.net.caller_runs && config.net.workers == 1);
	cr_assert_eq(config.net.idle, NET_IDLE_BUSY);
	cr_assert(!config.telemetry && !config.net.migrate);
	cr_assert_str_eq(config.control.socket_path, "");
	/* What means something is checked as ever. */
	cr_redirect_stderr();
	cr_assert_eq(read_config("[daemon]\nworkers = 3-2\n"
				 "[port a]\ndevice = net_null0\nip = 10.0.0.1/24\n"),
		     -EINVAL);
}
