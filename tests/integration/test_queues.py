# SPDX-License-Identifier: BSD-3-Clause
"""Shared receive queues between two daemons: one program plays both ends."""
import rig
from rig import Daemon, Process, expect_equal, test


class Pair:
    """The two daemons of all tests."""

    a = b = None


def setup():
    Pair.a = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24")
    Pair.b = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", number=1)


def start(scene):
    return Process("play", [rig.program("play"), Pair.a.socket, "10.66.0.1", Pair.b.socket,
                            "10.66.0.2", scene])


def play(scene):
    """The scene goes well, and leaves nothing behind in either daemon."""
    before = [daemon.counts() for daemon in (Pair.a, Pair.b)]
    process = start(scene)
    expect_equal(process.wait(60), 0, f"{scene}:\n{process.log()}")
    for daemon, baseline in zip((Pair.a, Pair.b), before):
        daemon.expect_counts(baseline)
    return process.log()


@test("receives of an SRQ go to its queue pairs in the order in which messages arrive")
def share():
    play("srq-share")


@test("NdkModifySrq: one notification for each arm, at once if the threshold is not met already")
def limit():
    play("srq-limit")


@test("a message that finds an SRQ empty waits at its sender and fails nobody")
def empty():
    play("srq-empty")


@test("NdkModifySrq: depth within the ring, never below what is queued")
def depths():
    play("srq-depths")


@test("a queue pair that is closed in the middle of a message loses no receive of the others")
def holders():
    rig.note(play("srq-holders"))


@test("an SRQ and its queue pairs are closed in every order")
def orders():
    play("srq-orders")


@test("kill -9 of a client with SRQs and messages under way: everything is as before")
def killed():
    for _ in range(2 if rig.QUICK else 5):
        before = [daemon.counts() for daemon in (Pair.a, Pair.b)]
        process = start("srq-hang")
        process.wait_log("hanging")
        process.kill()
        for daemon, baseline in zip((Pair.a, Pair.b), before):
            daemon.expect_counts(baseline)


rig.main(setup)
