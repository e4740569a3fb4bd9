# SPDX-License-Identifier: BSD-3-Clause
"""Connection management by hand-made datagrams: repetition, loss, silence, crowds, the end."""
import os
import random
import struct

import rig
import roce
import stage
from rig import expect, expect_equal, until
from roce import DREP, DREQ, MRA, NAK_ACCESS, REJ, REP, REQ, RTU, bth, orq1
from stage import (REJ_NO_RESOURCES, REJ_TIMEOUT, REJ_SERVICE, REJ_STALE, REJ_CONSUMER, SCRATCH,
                   Stage, case, connect, expect_alive, refusal)


def pending(**changes):
    """A connection whose REP has come and whose RTU has not been sent."""
    return connect(rtu=False, **changes)


def settle():
    """Waits until what hangs in the air has come down."""
    until(lambda: Stage.wire.pump() or stage.settled(), stage.difference)


# --- repetition, loss -----------------------------------------------------------------------------


@case("B62, B63: a repeated REQ makes no second connection; the REP comes again")
def repeated_req(memory):
    c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
    for _ in range(3):
        c.request()
    c.take_reply()
    c.request()
    again = Stage.wire.mad(REP, c.local_id, "REP once more")
    expect_equal(again.raw, c.rep.raw, "the repeated REP")
    c.mad(RTU, c.ids())
    expect_alive(c)
    connections = Stage.daemon.status()["connections"]
    for _ in range(3):
        c.request()
    Stage.wire.barrier()
    expect_equal(Stage.daemon.status()["connections"], connections, "connections")
    expect_alive(c)
    Stage.wire.mads.clear()


@case("B62: the same queue pair number behind another address is another connection")
def same_number(memory):
    a = connect()
    b = connect(qpn=a.qpn)
    b.qpn = a.qpn
    expect_alive(a)
    expect_alive(b)


@case("B62: a REQ with a queue pair number that a live connection of the peer has is stale")
def stale(memory):
    a = connect()
    c = roce.Connection(a.peer, SCRATCH, connect=False)
    c.request(qpn=a.qpn)
    try:
        c.take_reply()
        raise rig.Failure("accepted")
    except roce.Refused as refused:
        expect_equal(refused.reason, REJ_STALE, "reason")
    until(lambda: Stage.wire.pump() or a.dreqs, "the old connection is ended")


@case("B63: RTU, DREQ, DREP, REP, REJ three times and at wrong times: one transition each")
def repeated(memory):
    c = pending()
    for _ in range(3):
        c.mad(RTU, c.ids())
    expect_alive(c)
    for _ in range(3):
        c.mad(DREP, c.ids())
        c.mad(REP, c.ids() + bytes(220))
        c.mad(MRA, c.ids() + bytes(220))
    expect_alive(c)
    for _ in range(3):
        c.disconnect()
    c.mad(RTU, c.ids())
    for _ in range(3):
        c.mad(REJ, c.ids() + bytes([2 << 6, 0, 0, 4]))
    c.disconnect()
    Stage.wire.barrier()
    Stage.wire.mads.clear()


@case("B63, B68: a DREQ for ids that nobody knows is answered by a DREP, each time")
def strange_dreq(memory):
    c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
    c.remote_id, c.remote_qpn = 0x12345678, 0x123456
    for _ in range(3):
        c.disconnect()


@case("a DREQ with another queue pair number, or from another address, ends nothing")
def wrong_dreq(memory):
    c = connect()
    c.mad(DREQ, c.ids() + (c.remote_qpn ^ 1).to_bytes(3, "big"))
    expect_alive(c)
    stranger = Stage.wire.peer()
    stranger.send_mad(DREQ, c.ids() + c.remote_qpn.to_bytes(3, "big"), c.tid)
    stranger.send_mad(REJ, c.ids() + bytes([2 << 6, 0, 0, 28]), c.tid)
    Stage.wire.barrier()
    expect_alive(c)
    Stage.wire.mads.clear()


@case("B64: data that comes before the RTU is served and establishes; a late RTU is harmless")
def no_rtu(memory):
    c = pending()
    c.write(0, bytes(memory[:8]))
    until(lambda: Stage.daemon.status()["connections_pending"] == 0, "established by data")
    window = c.ask(length=64)
    expect_equal(window.length, 64, "window asked for without RTU")
    c.mad(RTU, c.ids())
    c.window = window
    expect_equal(c.read(0, 64), bytes(memory[:64]), "after the late RTU")


@case("B65: our REJ in place of the RTU frees what was made, also one without the daemon's id")
def rejected(memory):
    for known in (True, False):
        c = pending()
        remote = c.remote_id if known else 0
        c.mad(REJ, struct.pack("!II", c.local_id, remote) + bytes([1 << 6, 0, 0, REJ_CONSUMER]))
        c.open = False
        settle()


@case("B76: peers that leave between REQ and RTU, by REJ, DREQ or in silence, leave nothing")
def left(memory):
    for number in range(20 if rig.QUICK else 100):
        c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
        c.request(response=8, retries=1)
        how = number % 4
        if how == 0:
            c.mad(REJ, struct.pack("!II", c.local_id, 0) + bytes([0, 0, 0, REJ_TIMEOUT]))
        elif how == 1:
            c.take_reply()
            c.disconnect()
        elif how == 2:
            c.take_reply()
            c.open = False
    until(lambda: Stage.wire.pump() or stage.settled(), stage.difference)
    Stage.wire.mads.clear()


def hurried():
    """A connection on whose peer the daemon waits for a fifth of a second. On a busy machine our
    RTU comes later than that: then another one."""
    while True:
        c = connect(response=10, retries=2)
        Stage.wire.barrier()
        if not any(mad.attribute == REJ and mad.remote_id == c.local_id
                   for mad in Stage.wire.mads):
            return c
        c.open = False


@case("B68: a peer that does not answer the daemon's DREQ is given up, and all is freed")
def silent_end(memory):
    c = hurried()
    c.answers_dreq = False
    psn = c.psn
    c.post_read(0, 8, token=0x11223344)
    c.expect_nak(NAK_ACCESS, psn)
    c.open = False
    settle()
    seen = [mad for mad in Stage.wire.mads if mad.attribute == DREQ and mad.remote_id == c.local_id]
    expect(1 < len(seen) <= 4, f"DREQs that were sent: {len(seen)}")
    Stage.wire.mads.clear()


@case("B77: service-id resolution of a UD service is answered by a status, again and again")
def resolution(memory):
    peer = Stage.wire.peer()
    for _ in range(3):
        answer = peer.ask_sidr()
        expect_equal(answer.body[4], 1, "status: service not supported")


@case("malformed MADs are dropped and counted; the daemon lives")
def malformed(memory):
    peer = Stage.wire.peer()
    before = Stage.daemon.status()["cm_malformed"]
    bad = 0
    for version, kind, class_version, method in ((2, 7, 2, 3), (1, 3, 2, 3), (1, 7, 1, 3),
                                                 (1, 7, 2, 2), (1, 7, 2, 0x81), (0, 0, 0, 0)):
        header = struct.pack("!BBBBHHQHHI", version, kind, class_version, method, 0, 0, 1, REQ, 0,
                             0)
        peer.send(bth(roce.UD_SEND_ONLY, 1, 0) + roce.deth(roce.GSI_QKEY, 1)
                  + header.ljust(256, b"\xff"))
        bad += 1
    Stage.wire.barrier()
    expect_equal(Stage.daemon.status()["cm_malformed"] - before, bad, "MADs counted as malformed")
    for number in range(200 if rig.QUICK else 2000):
        peer.send_mad(random.choice((REQ, MRA, REJ, REP, RTU, DREQ, DREP, 0x19, 0x1A, 0x30)),
                      os.urandom(232), number)
        if number % 50 == 49:
            Stage.wire.barrier()
    Stage.wire.barrier()
    Stage.wire.mads.clear()


@case("B67: an application that takes its time: MRA for who asks again, then the REP")
def slow_accept(memory):
    c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
    with Stage.target.stopped():
        c.request()

        def patience():
            c.request()
            Stage.wire.pump(0.2)
            return any(mad.attribute == MRA and mad.remote_id == c.local_id
                       for mad in Stage.wire.mads)
        until(patience, "an MRA")
    c.take_reply()
    c.mad(RTU, c.ids())
    expect_alive(c)
    Stage.wire.mads.clear()


@case("B66: requests that pile up before a listener are bounded for each peer, then refused")
def backlog(memory):
    peer, other = Stage.wire.peer(), Stage.wire.peer()
    with Stage.target.stopped():
        some = [roce.Connection(peer, SCRATCH, connect=False) for _ in range(300)]
        for number, c in enumerate(some):
            c.request()
            if number % 50 == 49:
                Stage.wire.barrier()
        Stage.wire.barrier()
        refused = [mad for mad in Stage.wire.mads if mad.attribute == REJ]
        expect_equal((len(refused), {mad.reason for mad in refused}), (44, {REJ_NO_RESOURCES}),
                     "refusals of 300 requests")
        late = roce.Connection(other, SCRATCH, connect=False)
        late.request()
    late.take_reply()
    late.mad(RTU, late.ids())
    expect_alive(late)
    gone = {mad.remote_id for mad in refused}
    Stage.wire.mads = type(Stage.wire.mads)(m for m in Stage.wire.mads if m not in refused)
    for c in some:
        if c.local_id not in gone:
            c.take_reply()


@case("B66: requests that are taken back go on counting while the application does not look")
def taken_back(memory):
    peer, other = Stage.wire.peer(), Stage.wire.peer()
    with Stage.target.stopped():
        for number in range(300):
            c = roce.Connection(peer, SCRATCH, connect=False)
            c.request()
            c.mad(REJ, struct.pack("!II", c.local_id, 0) + bytes([0, 0, 0, REJ_TIMEOUT]))
            c.open = False
            if number % 25 == 24:
                Stage.wire.barrier()
        refused = [mad for mad in Stage.wire.mads if mad.attribute == REJ]
        expect_equal((len(refused), {mad.reason for mad in refused}), (44, {REJ_NO_RESOURCES}),
                     "refusals of 300 requests that were taken back")
        late = roce.Connection(other, SCRATCH, connect=False)
        late.request()
    late.take_reply()
    late.mad(RTU, late.ids())
    expect_alive(late)
    Stage.wire.mads.clear()


@case("the listener's program is killed: those who wait are refused, later ones find nobody")
def killed_listener(memory):
    before = Stage.daemon.counts()["qps"]
    target = rig.Target("mortal", Stage.daemon, "[export mortal]\nlisten = 10.66.0.1:7600\n"
                        "size = 4K\naccess = read,write\n")
    live = connect(7600)
    c = roce.Connection(Stage.wire.peer(), 7600, connect=False)
    with target.stopped():
        c.request()
        Stage.wire.barrier()
        target.kill()
    try:
        c.take_reply()
        raise rig.Failure("accepted by the dead")
    except roce.Refused as refused:
        expect(refused.reason in (REJ_CONSUMER, REJ_SERVICE), f"reason {refused.reason}")
    until(lambda: Stage.wire.pump() or live.dreqs, "a DREQ for the connection of the dead")
    live.open = False
    # Until its queue pair has gone as well a request is refused, not passed over.
    until(lambda: Stage.daemon.counts()["qps"] == before, "the queue pair of the dead is gone")
    live.post_write(0, b"too late", psn=live.psn)
    stage.expect_silence(live)
    expect_equal(refusal(7600).reason, REJ_SERVICE, "the port of the dead")


@case("B58, B29: a program that is killed while a READ of its memory is answered: no byte behind it",
      slow=True)
def killed_while_reading(memory):
    export = "[export mortal]\nlisten = 10.66.0.1:7601\nsize = 8M\naccess = read,write\n"
    for _ in range(2 if rig.QUICK else 6):
        target = rig.Target("mortal", Stage.daemon, export)
        sessions = Stage.daemon.status()["sessions"]
        c = connect(7601, responder=16, initiator=16)
        c.write(0, b"secret" * 100)
        for _ in range(16):
            c.post_read(0, 8 << 20)
        c.reply()
        target.kill()
        until(lambda: Stage.wire.pump() or Stage.daemon.status()["sessions"] < sessions,
              "the session is gone")
        # What came meanwhile may fill our socket, in which an answer has to have room.
        Stage.wire.pump()
        Stage.wire.barrier()
        Stage.wire.inbox[c.qpn].clear()
        # Its memory may be another's by now.
        target = rig.Target("mortal", Stage.daemon, export)
        fresh = connect(7601)
        expect_equal(fresh.read(0, 600), bytes(600), "memory of the next program")
        stage.expect_silence(c)
        fresh.post(roce.READ_REQUEST, roce.reth(c.at(0), c.window.token, 8))
        fresh.expect_nak(NAK_ACCESS, fresh.psn - 1 & 0xFFFFFF)
        c.open = fresh.open = False
        target.stop()


# --- crowds ---------------------------------------------------------------------------------------


@case("B41: connections that did one atomic each, and end, leave nothing")
def atomics_leave_nothing(memory):
    for number in range(50 if rig.QUICK else 300):
        c = connect()
        c.atomic(roce.FETCH_ADD if number % 2 else roce.COMPARE_SWAP, 0, 0)
        if number % 3:
            c.post(roce.FETCH_ADD, roce.atomic_eth(c.at(0), c.window.token, 0))  # not waited for
        c.disconnect()
        Stage.wire.inbox[c.qpn].clear()


@case("B76: who was refused may try again at once, under the same id and number")
def tries_again(memory):
    for _ in range(5):
        c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False, private=orq1(name=b"absent"))
        for _ in range(3):
            c.request()
            try:
                c.take_reply()
                raise rig.Failure("accepted")
            except roce.Refused as refused:
                expect_equal(refused.code, 2, "code of the refusal")
            c.tid = random.getrandbits(63)
        c.private = orq1()
        c.request()
        c.take_reply()
        c.mad(RTU, c.ids())
        expect_alive(c)


@case("B128, B133: hundreds of connections asked for at once are all made, and all end")
def crowd(memory):
    some = [roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
            for _ in range(100 if rig.QUICK else 520)]
    in_steps(some, lambda c: c.request())
    for c in some:
        c.take_reply()
    in_steps(some, lambda c: c.mad(RTU, c.ids()))
    expect(Stage.daemon.status()["connections"] > len(some), "connections at once")
    for c in some:
        psn = c.psn
        c.post_write(0, bytes(memory[:8]))
        c.expect_ack(psn)
        c.open = False
    in_steps(some, lambda c: c.mad(DREQ, c.ids() + c.remote_qpn.to_bytes(3, "big")))
    for c in some:
        Stage.wire.mad(DREP, c.local_id, "DREP")


def in_steps(some, send):
    """Sends for each, never more at once than the link holds: af_packet's ring has 512 frames."""
    for number, c in enumerate(some):
        send(c)
        if number % 50 == 49:
            Stage.wire.barrier()


if __name__ == "__main__":
    rig.main(stage.build)
