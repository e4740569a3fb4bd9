# SPDX-License-Identifier: BSD-3-Clause
"""Queue pairs of all types and shared receive queues: one program plays both ends of a link."""
import rig
from rig import Daemon, Process, expect_equal, test


class Pair:
    """The two daemons of all tests."""

    a = b = None


def setup():
    Pair.a = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24, fd66::1/64")
    Pair.b = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24, fd66::2/64",
                    number=1)


def start(scene, six=False):
    net = "fd66::" if six else "10.66.0."
    return Process("play", [rig.program("play"), Pair.a.socket, f"{net}1", Pair.b.socket,
                            f"{net}2", scene])


def play(scene, six=False):
    """The scene goes well, and leaves nothing behind in either daemon."""
    before = [daemon.counts() for daemon in (Pair.a, Pair.b)]
    process = start(scene, six)
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


@test("datagrams of every length with and without an immediate, over IPv4 and IPv6")
def datagrams():
    play("ud-exchange")
    play("ud-exchange", six=True)


@test("a datagram that cannot be taken is dropped, and the receive serves the next")
def datagrams_dropped():
    play("ud-dropped")


@test("datagrams that cannot be are refused inline, and the queue pair lives on")
def datagrams_refused():
    play("ud-refused")


@test("addresses: groups, other families, networks and hosts that are not there are refused")
def addresses():
    play("ud-addresses")


@test("addresses of a neighbour that does not answer: each request is told so")
def silent_neighbour():
    play("ud-nobody")


@test("datagrams into an SRQ")
def datagrams_shared():
    play("ud-shared")


@test("an address that is closed under datagrams")
def address_closed():
    play("ud-closing")


@test("a domain, a queue pair and an address are closed in every order")
def address_orders():
    play("ud-orders")


@test("OrielConnectQp of datagrams: values, the path MTU in force")
def datagram_values():
    play("ud-values")


@test("UC: messages of any length, immediates")
def uc_sends():
    play("uc-sends")
    play("uc-sends", six=True)


@test("UC: writes")
def uc_writes():
    play("uc-writes")


@test("UC: what it cannot do is refused inline")
def uc_refused():
    play("uc-refused")


@test("UC: a message without a receive is lost, the next one arrives")
def uc_lost():
    play("uc-lost")


@test("UC: a window is bound, used and invalidated")
def uc_window():
    play("uc-window")


@test("a datagram service is asked for its queue pair: data to the limits, refusals, misuse")
def services():
    for scene in ("service-resolve", "service-refuse", "service-misuse"):
        play(scene)
        play(scene, six=True)


@test("fast-register regions: registered, used and invalidated under one token")
def fast_rounds():
    play("fast-rounds")


@test("fast-register regions: the local token; an invalidate ends no request before it")
def fast_local():
    play("fast-local")


@test("fast-register regions: the peer's send with invalidate ends a registration")
def fast_remote_end():
    play("fast-remote-end")


@test("fast-register regions: rights are those of the registration")
def fast_rights():
    play("fast-rights")


@test("fast-register regions are closed in every state")
def fast_closes():
    play("fast-closes")


@test("kill -9 of a client with SRQs, addresses and messages under way: everything is as before")
def killed():
    for scene in ("srq-hang", "ud-hang") * (1 if rig.QUICK else 4):
        before = [daemon.counts() for daemon in (Pair.a, Pair.b)]
        process = start(scene)
        process.wait_log("hanging")
        process.kill()
        for daemon, baseline in zip((Pair.a, Pair.b), before):
            daemon.expect_counts(baseline)


rig.main(setup)
