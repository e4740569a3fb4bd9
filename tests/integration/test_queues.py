# SPDX-License-Identifier: BSD-3-Clause
"""Queue pairs of all types and shared receive queues: one program plays both ends of a link."""
import subprocess

import rig
from rig import Daemon, Process, expect_equal, test


class Pair:
    """The two daemons of all tests."""

    a = b = None


def setup():
    # Scenes use tokens that are dead far more often than an honest peer would.
    patient = {"more": "bad-token-budget = 0\n"}
    Pair.a = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24, fd66::1/64",
                    port=narrow("server", 1), **patient)
    Pair.b = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24, fd66::2/64", number=1,
                    port=narrow("client", 2), **patient)


def narrow(role, host):
    """A second port of each daemon, for path MTU 512."""
    device = rig.memif("narrow", role).replace("net_memif0", "net_memif1")
    return f"[port narrow]\ndevice = {device}\nip = 10.66.1.{host}/24\nmtu = 600\n"


def start(scene, six=False):
    net = "fd66::" if six else "10.66.0."
    return Process("play", [rig.program("play"), Pair.a.socket, f"{net}1", Pair.b.socket,
                            f"{net}2", scene])


def guarded():
    """Two daemons of which the second counts bad tokens."""
    return (Daemon("c", rig.memif("guarded", "server"), "10.67.0.1/24", number=2),
            Daemon("d", rig.memif("guarded", "client"), "10.67.0.2/24", number=3,
                   more="bad-token-budget = 3\n"))


def play(scene, six=False):
    """The scene goes well, and leaves nothing behind in either daemon."""
    before = [daemon.counts() for daemon in (Pair.a, Pair.b)]
    process = start(scene, six)
    expect_equal(process.wait(120), 0, f"{scene}:\n{process.log()}")
    for daemon, baseline in zip((Pair.a, Pair.b), before):
        daemon.expect_counts(baseline)
    return process.log()


def plays(*scenes):
    for scene in scenes:
        play(scene)


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


@test("a datagram by a port that carries less than the queue pair's is refused inline")
def datagrams_narrow():
    play("ud-narrow")


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


@test("UC: a peer that guesses tokens is not heard any more")
def uc_guess():
    guesser, guard = guarded()
    process = Process("play", [rig.program("play"), guesser.socket, "10.67.0.1", guard.socket,
                               "10.67.0.2", "uc-guess"])
    expect_equal(process.wait(120), 0, f"uc-guess:\n{process.log()}")
    expect_equal(guard.status()["peers_shut_out"], 1, "peers shut out")
    expect_equal((guesser.stop(), guard.stop()), (0, 0), "exit status")


def fault(*words):
    """The link to b, as orielctl sets it."""
    result = subprocess.run([rig.program("orielctl"), "--socket", Pair.a.socket, "fault", "link",
                             "transmit", *words], capture_output=True, text=True,
                            timeout=rig.PATIENCE, check=False)
    expect_equal((result.returncode, result.stderr), (0, ""), f"orielctl fault {words}")


@test("UC: over a link that loses frames a message comes whole or not at all")
def uc_whole():
    fault("loss=10%", "seed=5")
    try:
        rig.note(play("uc-whole"))
    finally:
        fault("off")


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


@test("NdkGetPrivilegedMemoryRegionToken: local access by logical address, and nothing to a peer")
def privileged():
    plays("privileged", "privileged-refused", "privileged-freed")


@test("fast-register regions are closed in every state")
def fast_closes():
    play("fast-closes")


@test("NdkConnectWithSharedEndpoint: one local address, many destinations, no 4-tuple twice")
def endpoint_shared():
    play("endpoint-shared")
    play("endpoint-shared", six=True)


@test("local addresses: who has one keeps listeners, endpoints and connectors off it")
def endpoint_conflicts():
    play("endpoint-conflicts")


@test("a shared endpoint and a listener wait for their connectors and keep their address")
def endpoint_closes():
    plays("endpoint-closes", "listener-closes")


@test("STATUS_TOO_MANY_ADDRESSES: all ports from 49152 on are taken")
def endpoint_ports():
    play("endpoint-ports")


@test("NdkControlConnectEvents: a paused listener is as good as none, and keeps its address")
def listener_paused():
    play("listener-paused")


@test("NdkGetConnectionData: limits, sizes and bytes on the active side")
def connector_data():
    play("connector-data")


@test("a connector that is closed while another thread posts on its queue pair")
def connector_closed_beside():
    play("connector-closed-beside")


@test("connections that the active side rejects or abandons, and requests nobody answers")
def connector_refusals():
    plays("connector-rejects", "connector-abandons", "connector-ignored")


@test("NdkConnect: a refused connect is tried again with the same connector")
def connector_retries():
    play("connector-retries")
    play("connector-retries", six=True)


@test("NdkConnect: a host that is not there, then one that is, with the same connector")
def connector_nobody():
    play("connector-nobody")


@test("NdkConnect to oneself: there is no loopback, and the adapter says so")
def connector_loopback():
    play("connector-loopback")
    play("connector-loopback", six=True)


@test("NdDualConnection, NdDualListen: what is in use is refused, and as it was")
def connector_twice():
    play("connector-twice")


@test("NdLargePrivateData, NdInvalidIP: a connect that cannot be uses nothing up")
def connector_limits():
    play("connector-limits")
    play("connector-limits", six=True)


@test("two ends that connect to each other at the same time")
def connector_crossing():
    play("connector-crossing")


@test("NdkDisconnect: the peer hears of it once, and its queues are left alone until it follows")
def connector_disconnects():
    play("connector-disconnects")


@test("NdkFlush before connecting: receives are cancelled, with one notification")
def qp_flushed():
    play("qp-flushed")


@test("a message longer than its receive: DATA_OVERRUN at the receiver, DATA_ERROR at the sender")
def qp_short_receive():
    play("qp-short-receive")


@test("an access past the end: the initiator is told, all else on both sides is cancelled")
def qp_violation():
    play("qp-violation")


@test("a send that nobody receives: IO_TIMEOUT at the sender, nothing at the target")
def qp_no_receive():
    play("qp-no-receive")


@test("NDK_OP_FLAG_INLINE: the bytes at the post, any number of pieces, any token")
def qp_inlined():
    play("qp-inlined")


@test("what a peer does to a queue pair is told to its owner once, by its kind; the last of an SRQ too")
def qp_events():
    play("qp-events")


@test("OrielFetchAdd, OrielCompareSwap: old values, memory, refusals")
def qp_atomics():
    play("qp-atomics")
    play("qp-atomics", six=True)


@test("OrielSendImmediate, OrielWriteImmediate: the four bytes, the lengths, what is written where")
def qp_immediates():
    play("qp-immediates")


@test("requests of no bytes need neither address nor token, and tell whether the peer is there")
def qp_nothing():
    play("qp-nothing")


@test("NdkBind: every combination of rights lets a peer do just that")
def window_rights():
    play("window-rights")


@test("NdkBind: the first and the last byte, and the bytes around them")
def window_edges():
    play("window-edges")


@test("NdkBind, NdkInvalidate: what is refused inline changes nothing")
def window_refusals():
    play("window-refusals")


@test("NdkBind: each bind has a new token unrelated to the old, which is dead at once")
def window_tokens():
    play("window-tokens")


@test("NdkBind: the token can be read on return and is of no use before the bind is done")
def window_not_yet():
    play("window-not-yet")


@test("NdkBind: many windows on one region, overlapping, each with rights and an end of its own")
def window_overlaps():
    play("window-overlaps")


@test("a bind, then a send that tells the token: the peer always finds it bound")
def window_told():
    play("window-told")
    play("window-told", six=True)


@test("NDK_OP_FLAG_SILENT_SUCCESS of binds and invalidates: an entry for failures only")
def window_silent():
    play("window-silent")


@test("a region with bound windows cannot be deregistered, and its close waits for them")
def window_busy():
    play("window-busy")


@test("NdkSendAndInvalidate ends windows, never regions, before the receive completes")
def window_ended():
    play("window-ended")


@test("a window may be used by any queue pair of its domain, or by one only when tied to it")
def window_tied():
    play("window-tied")


@test("a window moves to another region and to another queue pair")
def window_moves():
    play("window-moves")


@test("nothing is written through a window once its invalidate has completed")
def window_in_use():
    rig.note(play("window-in-use"))


@test("NdInvalidRead, NdOverWrite and so on: the initiator is told, the target's receive cancelled")
def mw_violations():
    play("mw-violations")


@test("ndmw: one half of a window inverted into the other, then word by word")
def mw_inverted():
    play("mw-inverted")


@test("NdMRDeregister: windows without rights hold a region, binds that are only queued do not")
def mw_deregistered():
    play("mw-deregistered")


@test("DestroyQpWithBoundMw: a window outlives its queue pair, unless it is tied to it")
def mw_owner_closed():
    play("mw-owner-closed")


@test("CrossQpInvalidate: which queue pairs may end a window, or bind it anew")
def mw_ended_elsewhere():
    play("mw-ended-elsewhere")


@test("C10-72: a window of another domain is as good as none to a queue pair and its peer")
def mw_foreign():
    play("mw-foreign")


@test("NdkCloseMw while a peer reads through the window")
def mw_closed_in_use():
    play("mw-closed-in-use")


@test("DeallocPdWithOutstandingMw: a domain is closed when its windows are")
def mw_domain():
    play("mw-domain")


@test("a bind on a queue pair in error is cancelled and leaves the window free")
def mw_in_error():
    play("mw-in-error")


@test("MwBindAccess: what a region must grant for each right of a window")
def mw_rights():
    play("mw-rights")


@test("OrielOpenAdapter: versions 1.0 to 2.1, the highest of the major is told everywhere")
def life_versions():
    play("life-versions")


@test("NdkQueryAdapterInfo: every limit can be had, and no more")
def life_limits():
    play("life-limits")


@test("a connection whose both ends do everything in callbacks, closes included")
def life_callbacks():
    play("life-callbacks")
    play("life-callbacks", six=True)


@test("ORIEL_OPEN_PROGRESS_THREAD: callbacks come though nobody drives progress")
def life_thread():
    play("life-thread")


@test("NdkResizeCq under traffic: every completion once and in order")
def resizes():
    rig.note(play("cq-resizes"))


@test("NdkResizeCq: the depth in force")
def resized_depth():
    play("cq-depth")


@test("an arm outlives a resize; moderated callbacks")
def notifications():
    play("cq-notifications")


@test("a CQ is closed while it is resized")
def resize_closes():
    play("cq-closes")


@test("kill -9 of a client with SRQs, addresses and messages under way: everything is as before")
def killed():
    for scene in ("srq-hang", "ud-hang", "cq-hang") * (1 if rig.QUICK else 4):
        before = [daemon.counts() for daemon in (Pair.a, Pair.b)]
        process = start(scene)
        process.wait_log("hanging")
        process.kill()
        for daemon, baseline in zip((Pair.a, Pair.b), before):
            daemon.expect_counts(baseline)


rig.main(setup)
