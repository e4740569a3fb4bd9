# SPDX-License-Identifier: BSD-3-Clause
"""What stands at the two ends of a memif: orield with an oriel-sink, a testpmd, oriel-flood."""
import contextlib
import os
import signal
import subprocess
import time

from .world import WORK, Failed, awake, huge_pages, run, run_json, until, write_file

OURS, THEIRS = "10.66.0.2", "10.66.0.1"
PAGES_EACH = 160  # free 2 MiB pages before a server gets some

CONFIG = """[daemon]
workers = {workers}
control-core = {control}
socket = {socket}
idle = {idle}
hugepages = {hugepages}
bad-token-budget = 0
{more}
[port link]
device = {device}
ip = {address}/24
mtu = {mtu}
"""


def memif(name, role):
    return f"net_memif0,role={role},socket={WORK}/{name}.memif,socket-abstract=no"


class Orield:
    """A daemon on a memif of its own, and the sinks that have queue pairs and windows in it."""

    def __init__(self, world, name, *, idle="busy", mtu=1500, workers=None, address=THEIRS,
                 role="server", link=None):
        self.world = world
        self.name = name
        self.link = link or name
        self.mtu = mtu
        self.socket = f"{WORK}/{name}.sock"
        self.sinks = {}
        self.wanted_sinks = {}
        self.config = write_file(f"{name}.conf", CONFIG.format(
            workers=world.cores.worker if workers is None else workers,
            control=world.cores.control, socket=self.socket, idle=idle, mtu=mtu, more="",
            hugepages="yes" if huge_pages() >= PAGES_EACH else "no", address=address,
            device=memif(self.link, role)))
        self.start()

    def start(self):
        self.server = self.world.serve(
            self.name, [self.world.program("orield"), "--config", self.config], None,
            "orield: ready")

    def revive(self):
        """After it has died, which the report says: all anew, so that the rest can be measured."""
        self.end()
        for path in (self.socket, f"{WORK}/{self.link}.memif"):
            if os.path.exists(path):
                os.unlink(path)
        self.start()
        for name, (arguments, patience) in self.wanted_sinks.items():
            self.sink(name, *arguments, patience=patience)
        self.pause()

    def sink(self, name, *arguments, patience=30):
        """Sinks come up while a generator answers for their peer's address."""
        self.wanted_sinks[name] = arguments, patience
        table = f"{WORK}/{self.name}.{name}.table"
        server = self.world.serve(
            f"{self.name}-{name}",
            [self.world.program("oriel-sink"), "--peer", OURS, "--table", table, *arguments],
            self.world.cores.generator, "", {"ORIEL_SOCKET": self.socket})
        generator = subprocess.Popen(
            flood_command(self.world, self, "--table", f"{table}.never"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: os.path.exists(table) or server.popen.poll() is not None,
                  lambda: f"{name}: no table: {server.log()}", patience)
        finally:
            generator.send_signal(signal.SIGTERM)
            try:
                generator.wait(5)
            except subprocess.TimeoutExpired:
                generator.kill()
                generator.wait()
        if not os.path.exists(table):
            raise Failed(f"oriel-sink: {server.log()[-400:]}")
        server.pause()
        self.sinks[name] = (server, table)

    def pause(self):
        self.server.pause()

    def flood(self, sink, *arguments, beside=()):
        """DPDK's memif may fail when its client leaves while it is polled; then once more."""
        for last in (False, True):
            if self.server.popen.poll() is not None:
                self.revive()
            server, table = self.sinks[sink]
            try:
                with awake(self.server, server, *beside):
                    return checked(run_json(flood_command(
                        self.world, self, "--table", table, "--json", *arguments)))
            except Failed:
                if last or beside or self.server.popen.poll() is None:
                    raise
        return None

    def counters(self):
        said = run_json([self.world.program("orielctl"), "--socket", self.socket, "--json",
                         "stats"], core=self.world.cores.generator)
        return said["workers"]["0"]

    def binds_per_second(self, sink, seconds):
        """The sink churns by itself; nothing else runs."""
        with awake(self.server, self.sinks[sink][0]):
            time.sleep(0.1)
            before, start = self.counters()["binds"], time.monotonic()
            time.sleep(seconds)
            after, end = self.counters()["binds"], time.monotonic()
        return (after - before) / (end - start)

    def end(self):
        for server, _ in self.sinks.values():
            self.world.stop(server)
        self.sinks.clear()
        self.world.stop(self.server)


class InProcess:
    """An oriel-sink with the data plane in its process, on the worker's core, for one run each."""

    mtu = 1500
    link = "in-process"

    def __init__(self, world):
        self.world = world
        if not os.path.exists(f"{world.build}/app/libndk-inprocess.so"):
            raise Failed("this build has no libndk-inprocess.so")
        self.config = write_file("in-process.conf", CONFIG.format(
            workers=world.cores.worker, control=world.cores.worker, socket=f"{WORK}/none",
            idle="busy", hugepages="no", more="", device=memif(self.link, "server"),
            address=THEIRS, mtu=self.mtu))

    def churn(self, *arguments):
        """Messages, and binds while they came, a second."""
        table = f"{WORK}/in-process.table"
        for left in (table, f"{WORK}/{self.link}.memif"):  # of a round before, which was killed
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)
        sink = self.world.serve(
            "in-process",
            [self.world.program("oriel-sink"), "--peer", OURS, "--table", table, "-q", "8", "-w",
             "1", "--churn", "--progress"], self.world.cores.worker, "",
            {"ORIEL_SOCKET": f"in-process:{self.config}"})
        try:
            until(lambda: os.path.exists(f"{WORK}/{self.link}.memif") or sink.popen.poll()
                  is not None, lambda: f"no link: {sink.log()}")
            report = checked(run_json(flood_command(self.world, self, "--table", table, "--json",
                                                    *arguments)))
            end = report["began"] + report["seconds"]
            until(lambda: progress(sink)[-1:] and progress(sink)[-1][0] > end,
                  lambda: f"oriel-sink does not count: {sink.log()[-300:]}")
            counts = progress(sink)
        finally:
            self.world.stop(sink)
        binds = at(counts, end) - at(counts, report["began"])
        return {"messages": rate(report), "binds": binds / report["seconds"]}


def progress(sink):
    """What an oriel-sink --progress has counted, and when; the last line may not be whole yet."""
    lines = sink.log().splitlines(keepends=True)
    return [(float(when), int(binds)) for when, binds in
            (line.split() for line in lines if line[:1].isdigit() and line.endswith("\n"))]


def at(counts, when):
    """Between two counts it goes on evenly."""
    for (early, before), (late, after) in zip(counts, counts[1:]):
        if early <= when <= late:
            return before + (after - before) * (when - early) / (late - early)
    raise Failed(f"nothing was counted around {when:.3f}: {counts[:1]} to {counts[-1:]}")


class Testpmd:
    """DPDK's own forwarder on a memif: the bare link."""

    def __init__(self, world, mode, *, jumbo=False):
        self.world = world
        self.mode = mode
        self.room = 6144 + 128 if jumbo else 2176
        self.mtu = 4300 if jumbo else 1500
        self.started = 0
        self.start()

    def start(self):
        """On a new link: the socket of a dead one would be in the way."""
        self.started += 1
        self.link = f"testpmd-{self.mode}-{self.mtu}-{self.started}"
        self.server = self.world.serve(self.link, testpmd_command(
            self.world, self.link, self.mode, "server", self.world.cores.worker, self.room), None,
            "start packet forwarding")
        self.server.pause()

    def revive(self):
        """Its last client may have been its end: see doc/performance.md."""
        if self.server.popen.poll() is not None:
            self.world.stop(self.server)
            self.start()

    def flood(self, *arguments):
        """The driver may fail when its client leaves while it polls; then once more."""
        for last in (False, True):
            self.revive()
            try:
                with awake(self.server):
                    return checked(run_json(flood_command(
                        self.world, self, "--testpmd", self.mode, "--json", *arguments)))
            except Failed:
                if last or self.server.popen.poll() is None:
                    raise
        return None

    def filled_by_testpmd(self, frame):
        """Frames a second that another testpmd brings onto the link, which takes all of them."""
        log = f"{WORK}/txonly.log"
        self.revive()
        with awake(self.server), open(log, "w", encoding="utf-8") as file:
            generator = subprocess.Popen(
                testpmd_command(self.world, self.link, "txonly", "client",
                                self.world.cores.generator, 2176, f"--txpkts={frame}"),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file)
            try:
                return transmitted(log, self.world.seconds)
            finally:
                generator.kill()
                generator.wait()


class Absent:
    """In the place of a server that did not come up: only who uses it fails, with the reason."""

    def __init__(self, reason):
        self.reason = reason

    def __getattr__(self, name):
        def fail(*_, **__):
            raise Failed(self.reason)
        return fail


def testpmd(world, mode, **options):
    try:
        return Testpmd(world, mode, **options)
    except Failed as failed:
        return Absent(str(failed))


def transmitted(log, seconds):
    """From the running counts of a testpmd."""
    def rates():
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file if "Tx-pps:" in line]
        return [int(line[1]) for line in lines if int(line[1])]
    until(lambda: len(rates()) > max(1, seconds), "testpmd txonly transmits", 20)
    return float(rates()[-1])


def testpmd_command(world, link, mode, role, core, room, *more):
    memory = ["--in-memory", "-m", "64"] if huge_pages() >= PAGES_EACH else ["--no-huge", "-m",
                                                                            "128"]
    return ["dpdk-testpmd", "--lcores", f"0@{world.cores.control},1@{core}", "--file-prefix",
            f"{link}-{role}", "--no-pci", *memory, "--vdev", memif(link, role), "--",
            f"--total-num-mbufs={4096 if room > 4096 else 12288}", f"--mbuf-size={room}",
            f"--forward-mode={mode}", "--auto-start", "--no-mlockall", "--stats-period=1", *more]


def flood_command(world, peer, *arguments):
    return [world.program("oriel-flood"), "-d", memif(peer.link, "client"), "--ip", f"{OURS}/24",
            "--target", THEIRS, "--mtu", str(peer.mtu), "--cpu", str(world.cores.generator), "-W",
            "0.1", "-D", str(world.seconds), *arguments]


def checked(report):
    """What was sent was acknowledged or sent again, and nothing was refused."""
    counters = report["counters"]
    lost = counters["messages"] - counters["acknowledged"] - counters["resent"]
    if lost or counters["fatal"] or counters["answers_wrong"]:
        raise Failed(f"{lost} messages unaccounted for, {counters['fatal']} refused, "
                     f"{counters['answers_wrong']} answers wrong")
    return report


def rate(report):
    return report["served_per_second"]


def memory_speeds(world, *names):
    """Nanoseconds of benchmarks of oriel-micro, on the worker's core."""
    said = run_json([world.program("oriel-micro"), "--json", "--rounds", "5", *names],
                    core=world.cores.worker)
    return {name: said[name]["median_ns"] for name in names}


__all__ = ["Orield", "Testpmd", "awake", "memory_speeds", "rate", "run"]
