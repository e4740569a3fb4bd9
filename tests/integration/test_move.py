# SPDX-License-Identifier: BSD-3-Clause
"""Several workers: queue pairs that move between them while a client's data goes through."""
import os
import random
import signal
import time

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test, until

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write,atomic
"""


def two_workers():
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        raise rig.Skip("needs two processors")
    return f"{processors[0]},{processors[1]}"


def pair(more="", at_client=None):
    """Two daemons of two workers each; worker n of one hears what worker n of the other sends."""
    server = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24", workers=two_workers(),
                    more=more)
    client = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", workers=two_workers(),
                    more=more if at_client is None else at_client)
    return server, client, Target("target", server, EXPORT)


def steady(peer, *arguments):
    return Process("steady", [rig.program("steady"), "10.66.0.1", "7471", "10.66.0.2", *arguments],
                   {"ORIEL_SOCKET": peer.socket})


def queue_pair(daemon):
    """The only one that is connected, or None."""
    qps = daemon.command("/oriel/qps").values()
    return next((qp for qp in qps if qp["state"] == "RTS"), None)


def connected(daemon):
    """The same; waits for it."""
    return until(lambda: queue_pair(daemon), f"a queue pair of {daemon.name} is connected")


def home(daemon):
    return connected(daemon)["worker"]


def move(daemon, worker):
    return daemon.command(f"/oriel/move,{connected(daemon)['qpn']},{worker}")


def counter(daemon, name):
    return sum(worker[name] for worker in daemon.command("/oriel/workers").values())


def arrived(daemon):
    """Waits until no queue pair is on its way."""
    until(lambda: counter(daemon, "moved_in") == counter(daemon, "moved_out"),
          lambda: f"{counter(daemon, 'moved_in')} of {counter(daemon, 'moved_out')} have arrived")


def rounds(traffic):
    return traffic.log().count("round")


def must_go_on(traffic):
    """The traffic, which compares what it gets, is there and makes progress."""
    before = rounds(traffic)
    traffic.wait_log("round", before + 2)


def finish(traffic, *processes):
    expect_equal(traffic.stop(), 0, f"exit status of the traffic: {traffic.log()[-300:]}")
    for process in processes:
        expect_equal(process.stop(), 0, f"exit status of {process.name}")


@test("a queue pair follows its frames to the worker at which they land, and stays there")
def follows():
    # On a slow machine the client's would be back at the answers' before the server's has followed.
    server, client, target = pair(at_client="migrate = no\n")
    traffic = steady(client, "loop")
    must_go_on(traffic)
    for _ in range(2):
        there = 1 - home(client)
        expect_equal(move(client, there), {"move": "asked"}, "answer")
        until(lambda: home(client) == there, "the client's queue pair is where it was sent")
        until(lambda: home(server) == there, "the server's queue pair has followed")
        arrived(server)
        moved = counter(server, "moved_in")
        must_go_on(traffic)
        expect_equal(home(server), there, "home of the server's queue pair")
        expect_equal(counter(server, "moved_in"), moved, "moves of a queue pair that is right")
    handed = server.port()["handed_over"]
    rig.note(f"{handed} frames were handed over until their queue pair had followed them")
    arrived(server)
    finish(traffic, target, client, server)


@test("/oriel/move under load: hundreds of moves at both ends, and the data is right")
def under_load():
    server, client, target = pair("migrate = no\n")
    traffic = steady(client, "loop")
    must_go_on(traffic)
    goal = 60 if rig.QUICK else 300
    asked = 0
    end = time.monotonic() + 2 * rig.PATIENCE
    while counter(server, "moved_in") < goal or counter(client, "moved_in") < goal:
        for daemon in (server, client):
            move(daemon, random.randrange(2))
            asked += 1
        expect(traffic.alive(), f"the traffic ended: {traffic.log()[-300:]}")
        expect(time.monotonic() < end, f"{counter(server, 'moved_in')} and "
               f"{counter(client, 'moved_in')} moves of {goal}, {asked} were asked for")
    must_go_on(traffic)
    verdicts = server.verdicts() + client.verdicts()
    rig.note(f"{counter(server, 'moved_in')} and {counter(client, 'moved_in')} moves; "
             f"{rounds(traffic) * 64} rounds of data; {dict(verdicts)}")
    for daemon in (server, client):
        arrived(daemon)
    finish(traffic, target, client, server)


@test("/oriel/move refuses what cannot be")
def refused():
    server, client, target = pair()
    watcher = steady(client, "watch")
    watcher.wait_log("connected")
    qpn = connected(server)["qpn"]
    for parameters in ("", f"{qpn}", f"{qpn},2", f"{qpn},x", f"{qpn},1,1", "16777217,1", "5,1"):
        answer = server.command(f"/oriel/move,{parameters}")
        expect("error" in answer, f"'{parameters}': {answer}")
    finish(watcher, target, client, server)


@test("connections are closed while their queue pairs move: nothing is left behind")
def closed():
    server, client, target = pair("migrate = no\n")
    before = (server.counts(), client.counts())
    for _ in range(5 if rig.QUICK else 25):
        traffic = steady(client, "loop")
        traffic.wait_log("connected")
        connected(server)
        connected(client)
        traffic.popen.send_signal(random.choice((signal.SIGTERM, signal.SIGKILL)))
        for _ in range(4):
            for daemon in (server, client):
                for qp in daemon.command("/oriel/qps").values():
                    daemon.command(f"/oriel/move,{qp['qpn']},{random.randrange(2)}")
        traffic.wait()
    server.expect_counts(before[0])
    client.expect_counts(before[1])
    for process in (target, client, server):
        expect_equal(process.stop(), 0, f"exit status of {process.name}")


@test("a daemon that is killed while queue pairs move: the other end serves on", slow=True)
def killed():
    server, client, target = pair()
    traffic = steady(client, "loop")
    must_go_on(traffic)
    for _ in range(5):
        move(client, random.randrange(2))
    client.kill()
    expect(traffic.wait() > 0, "the traffic must fail")
    client = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", workers=two_workers())
    started = time.monotonic()
    traffic = steady(client, "loop")
    must_go_on(traffic)
    rig.note(f"served again after {time.monotonic() - started:.1f} s")
    finish(traffic, target, client, server)


if __name__ == "__main__":
    rig.main()
