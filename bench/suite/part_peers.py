# SPDX-License-Identifier: BSD-3-Clause
"""P7: what a program reaches through Oriel, and through UCX and libfabric over TCP loopback."""
import os
import re

from .link import OURS, PAGES_EACH, THEIRS, Orield, memif
from .samples import Measure, Part
from .world import Failed, Server, awake, huge_pages, run, run_json, until, write_file

EXPORT = """[target]
socket = {socket}
[export bench]
listen = {address}:7471
size = 64M
access = read,write,atomic
"""
MTU = 4300  # packets of 4096; that of the other side's TCP loopback is 65536
SAME = "--pattern", "fixed"  # the same memory each time, as ucx_perftest has it
DEEP = "-t", "256", "-Q", "64"  # ucp_put_bw waits for nothing from the far end before it is over
UCX = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n"}


class PeersPart(Part):
    name = "peers"
    keys = {"P7"}

    def prepare(self, world, wanted):
        """A daemon on one processor, the program with its data plane or daemon on the other."""
        self.world = world
        self.far = Orield(world, "far", workers=world.cores.worker, mtu=MTU)
        target = write_file("target.conf", EXPORT.format(socket=self.far.socket, address=THEIRS))
        self.target = world.serve("target", [world.program("oriel-target"), "--config", target],
                                  world.cores.worker, "oriel-target: serving")
        self.near = None
        if os.path.exists(f"{world.build}/app/libndk-inprocess.so"):
            config = write_file("near.conf", IN_PROCESS.format(
                core=world.cores.generator, address=OURS, device=memif("far", "client"), mtu=MTU,
                hugepages="yes" if huge_pages() >= PAGES_EACH else "no"))
            self.socket = f"in-process:{config}"
        else:
            self.near = Orield(world, "near", workers=world.cores.generator, idle="adaptive",
                               address=OURS, role="client", link="far", mtu=MTU)
            self.socket = self.near.socket
            self.near.pause()
        self.target.pause()
        self.far.pause()

    def measures(self):
        part = 10 if self.world.quick else 2
        return [
            Measure("perf_write8", {"P7"}, lambda: self.perf("write", 8, *DEEP)),
            Measure("ucx_put8", {"P7"}, lambda: self.ucx("ucp_put_bw", 8, 400000 // part)),
            Measure("perf_write64k", {"P7"}, lambda: self.perf("write", 65536, *SAME)),
            Measure("ucx_put64k", {"P7"}, lambda: self.ucx("ucp_put_bw", 65536, 16000 // part)),
            Measure("perf_read64k", {"P7"}, lambda: self.perf("read", 65536, *SAME)),
            Measure("ucx_get64k", {"P7"}, lambda: self.ucx("ucp_get", 65536, 1600 // part)),
            Measure("perf_latency", {"P7"}, self.perf_latency),
            Measure("ucx_latency", {"P7"}, lambda: self.ucx("ucp_put_lat", 8, 40000 // part, 1)),
            Measure("fabric_64k", {"P7"}, lambda: self.fabric(65536, 10000 // part)),
        ]

    def perf(self, operation, size, *more):
        return self.perf_result(operation, "-s", str(size), *more)["messages_per_second"]

    def perf_latency(self):
        """From post to completion: a whole turn, where ucx_perftest says half of one."""
        return self.perf_result("write_lat", "-s", "8")["latency_us"]["p50"]

    def perf_result(self, operation, *more):
        """Of oriel-perf, with all that serves it awake."""
        servers = [self.far.server, self.target] + ([self.near.server] if self.near else [])
        with awake(*servers):
            said = run_json(
                [self.world.program("oriel-perf"), "--export", f"{THEIRS}:7471", "-D",
                 str(self.world.seconds), "--json", "--poll", "-d", self.socket, *more, operation],
                core=self.world.cores.generator, timeout=15)
        return said["results"][0]

    def ucx(self, test, size, times, column=None):
        """Messages a second; or, by column, microseconds (half a turn)."""
        words = ["ucx_perftest", "-p", "13337"]
        server = Server("ucx", words, self.world.cores.worker, UCX)
        try:
            server_listens(13337)
            said = run([*words, "-t", test, "-s", str(size), "-n", str(times), "-w", "100", "-f",
                        "127.0.0.1"], core=self.world.cores.generator, environment=UCX)
        finally:
            server.end()
        rows = [line.split() for line in said.splitlines() if re.match(r"\s*\d+\s+[\d.]+\s", line)]
        if not rows:
            raise Failed(f"ucx_perftest said no result: {said[-200:]}")
        return float(rows[-1][-1 if column is None else column])

    def fabric(self, size, times):
        """Messages a second each way; fi_pingpong sends one at a time."""
        words = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-d", "lo", "-I", str(times), "-S",
                 str(size)]
        server = Server("fabric", words, self.world.cores.worker)
        try:
            server_listens(47592)
            said = run([*words, "127.0.0.1"], core=self.world.cores.generator)
        finally:
            server.end()
        line = said.split("\n")[1].split()
        return 1e6 / float(line[-2])

    def extras(self):
        return {"P7": {"oriel-perf runs": "through a daemon that shares its processor"
                       if self.near else "with the data plane in its process"}}


IN_PROCESS = """[daemon]
workers = {core}
control-core = {core}
idle = busy
hugepages = {hugepages}

[port link]
device = {device}
ip = {address}/24
mtu = {mtu}
"""


def server_listens(port):
    """Looks into the kernel's table: a connection to try it would be taken for the client's."""
    def listens():
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}", encoding="ascii") as file:
                if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
                       for line in file.readlines()[1:]):
                    return True
        return False
    until(listens, f"a server listens on port {port}", 10)
