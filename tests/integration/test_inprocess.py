# SPDX-License-Identifier: BSD-3-Clause
"""A data plane within the client: the same scenes, programs and messages as with a daemon."""
import os
import re
import signal
import subprocess

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test

PREFIX = "in-process:"
PORT = """[daemon]
hugepages = no
{more}
[port link]
device = {device}
ip = 10.66.0.2/24, fd66::2/64
"""
EXPORT = ("[export scratch]\nlisten = 10.66.0.{}:7471\nsize = 256K\n"
          "access = read,write,atomic\n")


def config(device=None, more=""):
    """For the data plane in a client; it connects to the daemon's end of the link."""
    return rig.write_file("client.conf", PORT.format(
        device=device or rig.memif("link", "client"), more=more))


class World:
    """The daemon at the other end of the link, and its target."""

    daemon = target = baseline = None


class InProcess:
    """What stands for a daemon where a program is told which one to use."""

    socket = None


def build():
    World.daemon = Daemon("b", rig.memif("link", "server"), "10.66.0.1/24, fd66::1/64")
    World.target = Target("target", World.daemon, EXPORT.format(1))
    World.baseline = World.daemon.counts()
    InProcess.socket = PREFIX + config()


def play(*scenes, six=False, passive=False):
    """Scenes go well with the first end in-process, or the second, and leave nothing."""
    net = "fd66::" if six else "10.66.0."
    ends = [[InProcess.socket, f"{net}2"], [World.daemon.socket, f"{net}1"]]
    if passive:
        ends.reverse()
    for scene in scenes:
        process = Process("play", [rig.program("play"), *ends[0], *ends[1], scene])
        expect_equal(process.wait(120), 0, f"{scene}:\n{process.log()}")
        expect("oriel in-process" not in process.log(), process.log())
        World.daemon.expect_counts(World.baseline)


def steady(*arguments, socket=None):
    return Process("steady", [rig.program("steady"), "10.66.0.1", "7471", "10.66.0.2", *arguments],
                   environment={"ORIEL_SOCKET": socket or InProcess.socket})


@test("in-process: a client connects, is refused, disconnects and closes as one with a daemon")
def connects():
    play("connector-data", "connector-rejects", "connector-disconnects")


@test("in-process: a client listens and accepts as one with a daemon")
def listens():
    play("endpoint-shared", "connector-rejects", "listener-paused", passive=True)


@test("in-process: windows, their rights, ends and tokens, IPv4 and IPv6")
def windows():
    play("window-rights", "window-tokens", "window-in-use")
    play("window-rights", "window-ended", passive=True)
    play("service-resolve", six=True)


@test("in-process: datagrams, unreliable connections, shared receives, inline data")
def queues():
    play("ud-exchange", "uc-sends", "srq-share", "qp-inlined", "fast-rounds")


@test("in-process: a queue that is resized, notifications, a flush")
def completions():
    play("cq-resizes", "cq-notifications", "qp-flushed")


@test("in-process: adapters one behind the other in one process, each with data compared")
def again():
    process = steady("again")
    expect_equal(process.wait(120), 0, process.log())
    expect_equal(process.log().count("verified 262144 bytes"), 3, process.log())
    World.daemon.expect_counts(World.baseline)


@test("in-process: who sleeps on the event descriptor is served")
def sleeps():
    target = Target("short", World.daemon, EXPORT.format(1).replace("7471", "7472"))
    process = Process("steady", [rig.program("steady"), "10.66.0.1", "7472", "10.66.0.2", "sleep"],
                      environment={"ORIEL_SOCKET": InProcess.socket})
    process.wait_log("connected")
    expect_equal(target.stop(), 0, "the target")
    expect_equal(process.wait(), 0, process.log())
    expect("disconnected" in process.log(), process.log())


@test("in-process: oriel-perf writes, reads and compares, and needs no processor of the daemon's")
def perf():
    process = Process("oriel-perf", [
        "taskset", "-c", str(rig.cpu(1)), rig.program("oriel-perf"), "--in-process",
        config(more="workers = 999\ncontrol-core = 998\nidle = busy"), "--export", "10.66.0.1:7471",
        "--verify", "-n", "2000", "-s", "4096", "write"])
    expect_equal(process.wait(120), 0, process.log())
    InProcess.socket = PREFIX + config()


@test("in-process: oriel-perf as perftest's server, of each kind, and as its client")
def perftest():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # The same adapter each time, so that the daemon need not find out who has the address now.
    own = PREFIX + config(rig.memif("link", "client") + ",mac=02:00:00:00:66:02")
    for words in ("write_bw", "read_bw -R", "send_lat"):
        # perftest's own ACK timeout would be over in two seconds.
        words = words.split() + ["-n", "200", "-s", "4096"] + ["-u", "16"] * ("-R" not in words)
        for sockets, address in (([World.daemon.socket, own], "10.66.0.1"),
                                 ([own, World.daemon.socket], "10.66.0.2")):
            ends = []
            for socket, host in zip(sockets, ([], [address if "-R" in words else "localhost"])):
                ends.append(Process("oriel-perf", [rig.program("oriel-perf"), *words, *host],
                                    environment={"ORIEL_SOCKET": socket}))
            for end in ends:
                expect_equal(end.wait(), 0, f"{words}: {end.log()}")
    InProcess.socket = PREFIX + config()
    World.daemon.expect_counts(World.baseline)


@test("in-process: an oriel-target serves from its own process")
def target():
    own = Target("own", InProcess, EXPORT.format(2))
    process = Process("steady", [rig.program("steady"), "10.66.0.2", "7471", "10.66.0.1", "fill",
                                 "7"], environment={"ORIEL_SOCKET": World.daemon.socket})
    expect_equal(process.wait(120), 0, process.log())
    process = Process("steady", [rig.program("steady"), "10.66.0.2", "7471", "10.66.0.1", "verify",
                                 "7"], environment={"ORIEL_SOCKET": World.daemon.socket})
    expect_equal(process.wait(120), 0, process.log())
    expect_equal(own.stop(), 0, own.log())
    World.daemon.expect_counts(World.baseline)


def refused(socket, *texts):
    """The program goes on, and has the reason to tell."""
    process = steady("fill", "1", socket=socket)
    expect_equal(process.wait(), 1, process.log())
    for text in ("oriel-perf: no session", *texts):
        expect(text in process.log(), f"expected '{text}' in:\n{process.log()}")
    expect_equal(len(process.log().splitlines()), 1, process.log())


@test("in-process: what cannot be is a message and a status, and the client lives on")
def refusals():
    refused(PREFIX + "/run/it/absent.conf", "/run/it/absent.conf: No such file or directory")
    path = rig.write_file("bad.conf", "[daemon]\nidle = lazy\n[port a]\ndevice = net_null0\n"
                                      "ip = 10.0.0.1/24\n")
    refused(PREFIX + path, f"{path}:2: [daemon] idle = lazy: expected busy or adaptive")
    path = rig.write_file("bad.conf", PORT.format(device="net_nothing0", more=""))
    refused(PREFIX + path, "DPDK has no driver net_nothing here")
    device = "net_memif0,socket=/no/where,socket-abstract=no"
    path = rig.write_file("bad.conf", PORT.format(device=device, more=""))
    refused(PREFIX + path, "net_memif0")


@test("in-process: one such adapter at a time")
def one():
    ends = [InProcess.socket, "10.66.0.2"]
    process = Process("play", [rig.program("play"), *ends, *ends, "connector-data"])
    expect_equal(process.wait(), 1, process.log())
    expect("one at a time: expected STATUS_SUCCESS, got STATUS_DEVICE_BUSY" in process.log(),
           process.log())


@test("in-process: signals are the client's own threads' to take, and its processors its own")
def signals():
    process = steady("loop")
    process.wait_log("round 64")
    masks = {}
    for task in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{task}/status", encoding="ascii") as file:
            text = file.read()
        masks[int(task)] = int(re.search(r"SigBlk:\s+(\w+)", text).group(1), 16)
        if int(task) == process.pid:
            allowed = re.search(r"Cpus_allowed:\s+(\w+)", text).group(1)
    ends = 1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1 | 1 << signal.SIGPIPE - 1
    expect_equal(masks.pop(process.pid), 0, "signals that the client's thread does not take")
    expect(masks, "DPDK has a thread")
    expect(all(mask & ends == ends for mask in masks.values()), f"{masks}")
    expect_equal(int(allowed, 16).bit_count(), len(os.sched_getaffinity(0)), "its processors")
    expect_equal(process.stop(), 0, process.log())


@test("in-process: when the daemon at the other end is killed the client hears of it, and ends itself")
def other_end():
    other = Daemon("other", rig.memif("other", "server"), "10.66.0.1/24", number=1)
    target = Target("other-target", other, EXPORT.format(1))
    process = steady("loop", socket=PREFIX + rig.write_file("other.conf", PORT.format(
        device=rig.memif("other", "client"), more="")))
    process.wait_log("round 64")
    other.kill()
    expect_equal(process.wait(), 1, f"a SIGPIPE would be -13:\n{process.log()}")
    expect("STATUS_IO_TIMEOUT" in process.log(), process.log())
    target.kill()


@test("in-process: neither a client that ends without closing nor one that is killed leaves files")
def killed():
    before = sorted(os.listdir("/run"))
    process = steady("loop")
    process.wait_log("round 64")
    process.popen.send_signal(signal.SIGKILL)
    process.wait()
    expect_equal(sorted(os.listdir("/run")), before, "/run")
    # The port is there for the next one; the peer's daemon gives up what the dead one had.
    process = steady("again")
    expect_equal(process.wait(120), 0, process.log())


if __name__ == "__main__":
    rig.main(build)
