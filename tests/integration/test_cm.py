# SPDX-License-Identifier: BSD-3-Clause
"""Connection management by hand-made datagrams: set-up, refusal, repetition, loss, the end."""
import os
import random
import signal
import struct

import rig
import roce
import stage
from rig import Process, expect, expect_equal, until
from roce import DREP, DREQ, MRA, NAK_ACCESS, REJ, REP, REQ, RTU, bth, orq1
from stage import SCRATCH, Stage, case, connect, expect_alive

REJ_NO_RESOURCES, REJ_TIMEOUT, REJ_UNSUPPORTED = 3, 4, 5
REJ_SERVICE, REJ_TRANSPORT, REJ_STALE, REJ_GID = 8, 9, 10, 12
REJ_MTU, REJ_CONSUMER = 26, 28
REFUSAL = 0x4F525231  # "ORR1"


def refusal(port=SCRATCH, *, peer=None, six=False, private=b"", **changes):
    """The REJ that an attempt to connect must end with."""
    c = roce.Connection(peer or Stage.wire.peer(six), port, private=private, connect=False)
    c.request(**changes)
    try:
        c.take_reply()
    except roce.Refused as refused:
        expect_equal(refused.mad.remote_id, c.local_id, "id in the REJ")
        expect_equal(refused.mad.tid, c.tid, "transaction in the REJ")
        return refused
    raise rig.Failure(f"accepted: {port} {private!r} {changes}")


def pending(**changes):
    """A connection whose REP has come and whose RTU has not been sent."""
    return connect(rtu=False, **changes)


def settle():
    """Waits until what hangs in the air has come down."""
    until(lambda: Stage.wire.pump() or stage.settled(), stage.difference)


# --- set-up -------------------------------------------------------------------------------------


@case("REQ, REP, RTU over IPv4 and IPv6: ids, numbers and ORX1 are consistent")
def plain(memory):
    for six in (False, True):
        c = connect(six=six)
        expect_equal(c.rep.tid, c.tid, "transaction of the REP")
        expect_equal(c.rep.packet.destination, roce.packed(c.peer.ip), "where the REP went")
        expect_equal((c.window.access, c.window.length, c.window.code), (7, stage.SIZE, 0), "ORX1")
        expect(c.remote_qpn > 1 and c.window.token, "numbers of the REP")
        expect_equal((c.rep.body[15:20], c.rep.body[26] & 7, c.rep.body[27] & 0x0F),
                     (bytes(5), 0, 0), "reserved bytes, failover and flow control of the REP")
        expect(any(c.rep.body[28:36]), "the CA GUID of the REP")
        expect_equal(c.rep.body[28:36], Stage.witness.rep.body[28:36], "CA GUIDs of one daemon")
        expect_equal(c.read(0, 64), bytes(memory[:64]), "memory")


@case("numbers, tokens and ids of successive connections cannot be guessed from each other")
def unpredictable(memory):
    some = [connect() for _ in range(12)]
    for name, values in (("queue pair number", [c.remote_qpn for c in some]),
                         ("token", [c.window.token for c in some]),
                         ("PSN", [c.psn for c in some])):
        expect_equal(len(set(values)), len(values), f"{name}s that are different")
        steps = {(b - a) & 0xFFFFFF for a, b in zip(values, values[1:])}
        expect(len(steps) > 8, f"{name}s follow a pattern: {[hex(v) for v in values]}")


@case("B40: READ depths are the smaller of both ends', each direction for itself")
def depths(memory):
    for responder, initiator in ((128, 1), (1, 128), (16, 16), (255, 255), (0, 0)):
        c = connect(responder=responder, initiator=initiator)
        expect_equal((c.responder, c.initiator), (min(initiator, 16), min(responder, 16)),
                     f"depths of the REP to {responder}, {initiator}")


@case("B75: private data of any length: the rest is ignored, nothing at all asks for everything")
def private_data(memory):
    for private in (b"", b"\0" * 56, orq1(), orq1()[:47], orq1() + os.urandom(8)):
        expect_equal(connect(private=private).window.length, stage.SIZE, f"window for {private!r}")
    for private in (b"O", b"\x01\0\0\0", orq1()[:3], os.urandom(55) + b"\1"):
        refused = refusal(private=private)
        expect_equal((refused.reason, refused.magic, refused.code), (REJ_CONSUMER, REFUSAL, 1),
                     f"refusal of {private!r}")


@case("B65: refusals carry reason 28 and the code of what was wrong")
def refusal_codes(memory):
    for private, code, port in (
            (orq1(magic=0x4F525132), 1, SCRATCH), (orq1(version=2), 1, SCRATCH),
            (orq1(zero=1), 1, SCRATCH), (orq1(access=8), 1, SCRATCH),
            (orq1(name=b"absent"), 2, SCRATCH), (orq1(name=b"readonly"), 2, SCRATCH),
            (orq1(name=b"scratchx"), 2, SCRATCH), (orq1(name=b"Scratch"), 2, SCRATCH),
            (orq1(access=2), 3, stage.READ_ONLY), (orq1(access=7), 3, stage.NO_ATOMIC),
            (orq1(offset=stage.SIZE), 4, SCRATCH), (orq1(offset=1, length=stage.SIZE), 4, SCRATCH),
            (orq1(offset=1 << 63, length=1 << 63), 4, SCRATCH),
            (orq1(offset=8, length=(1 << 64) - 8), 4, SCRATCH),
            (b"", 6, stage.NARROW)):
        refused = refusal(port, private=private)
        expect_equal((refused.reason, refused.magic, refused.code), (REJ_CONSUMER, REFUSAL, code),
                     f"refusal of {private!r} at {port}")


@case("names, parts and rights that are asked for are what the window has")
def parts(memory):
    for private, port, length, access in (
            (orq1(name=b"scratch", offset=100, length=28), SCRATCH, 28, 7),
            (orq1(access=1, offset=60000), SCRATCH, 5536, 1),
            (orq1(name=b"first"), stage.TWIN, 4096, 1), (orq1(name=b"second"), stage.TWIN, 8192, 3),
            (orq1(), stage.TWIN, 4096, 1)):
        window = connect(port, private=private).window
        expect_equal((window.length, window.access), (length, access), f"window of {private!r}")
    c = connect()
    for private, code in (({"name": b"absent"}, 2), ({"access": 8}, 1), ({"offset": 1 << 40}, 4)):
        window = c.ask(**private)
        expect_equal((window.access, window.length, window.token, window.code), (0, 0, 0, code),
                     f"answer to {private}")
    expect_equal(c.ask(offset=8, length=8).length, 8, "a good request behind bad ones")
    narrow = roce.Peer(Stage.wire, "10.66.255.7", "02:00:00:00:ff:07")
    expect_equal(connect(stage.NARROW, peer=narrow).window.length, stage.SIZE, "an allowed peer")


@case("B66: nobody listens: REJ 8 at once; other services and transports are refused by reason")
def nobody(memory):
    expect_equal(refusal(stage.ABSENT_PORT).reason, REJ_SERVICE, "an unused port")
    expect_equal(refusal(service=0x0000000001110000 | SCRATCH).reason, REJ_SERVICE, "UDP's space")
    expect_equal(refusal(service=0x1234567890ABCDEF).reason, REJ_SERVICE, "another kind")
    for transport in (1, 2, 3):
        expect_equal(refusal(transport=transport).reason, REJ_TRANSPORT, f"transport {transport}")


@case("B89: a path MTU that the port cannot do is refused by reason 26, with the one that it can")
def path_mtu(memory):
    for code in (0, 4, 5, 6, 15):
        refused = refusal(mtu_code=code) if code else refusal_of_code_zero()
        expect_equal(refused.reason, REJ_MTU, f"reason for MTU code {code}")
        expect_equal(refused.mad.body[12], 3, "the MTU code that would do")
    for mtu in (256, 512, 1024):
        c = connect(mtu=mtu)
        c.write(0, bytes(memory[:mtu]))
        expect_equal(c.read(0, 3 * mtu + 1), bytes(memory[:3 * mtu + 1]), f"READ at MTU {mtu}")


def refusal_of_code_zero():
    c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
    body = bytearray(c.request_body())
    body[50] &= 0x0F
    c.mad(REQ, bytes(body))
    try:
        c.take_reply()
    except roce.Refused as refused:
        return refused
    raise rig.Failure("accepted: MTU code 0")


@case("a REQ whose path is not the one it came by is refused: data never goes to third parties")
def paths(memory):
    other = Stage.wire.peer().ip
    expect_equal(refusal(there=other, cma_there="10.66.0.1").reason, REJ_GID, "another target GID")
    expect_equal(refusal(here=other).reason, REJ_UNSUPPORTED, "another source GID")
    expect_equal(refusal(here="fd66::99", there="fd66::1", cma_here=other,
                         cma_there="10.66.0.1").reason, REJ_GID, "GIDs of another family")
    expect_equal(refusal(cma_there=other).reason, REJ_CONSUMER, "a foreign CMA address")
    expect_equal(refusal(cma_version=1).reason, REJ_CONSUMER, "a CMA header of another version")


@case("a REQ for a queue pair that cannot be connected, 0, 1 or 0xFFFFFF, is refused")
def special_numbers(memory):
    for number in (0, 1, 0xFFFFFF):
        c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
        body = bytearray(c.request_body())
        body[32:35] = number.to_bytes(3, "big")
        c.mad(REQ, bytes(body))
        try:
            c.take_reply()
            raise rig.Failure(f"accepted: queue pair {number:#x}")
        except roce.Refused as refused:
            expect_equal(refused.reason, REJ_UNSUPPORTED, f"reason for queue pair {number:#x}")


@case("B74: P_Keys in MADs: 7FFF and FFFF come in, others are dropped; a REQ names the default")
def partition_keys(memory):
    c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
    with stage.reasons(pkey=3):
        for pkey in (0x8001, 0x0000, 0x8000):
            c.request(mad_pkey=pkey)
    c.request(mad_pkey=0x7FFF)
    c.take_reply()
    c.mad(RTU, c.ids())
    expect_alive(c)
    expect_equal(refusal(pkey=0x8001).reason, REJ_UNSUPPORTED, "a REQ for another partition")


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
    until(lambda: Stage.wire.pump() or stage.settled(), stage.difference, patience=60)
    Stage.wire.mads.clear()


@case("B68: a peer that does not answer the daemon's DREQ is given up, and all is freed")
def silent_end(memory):
    c = connect(response=10, retries=2)
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
    os.kill(Stage.target.pid, signal.SIGSTOP)
    try:
        c.request()

        def patience():
            c.request()
            Stage.wire.pump(0.2)
            return any(mad.attribute == MRA and mad.remote_id == c.local_id
                       for mad in Stage.wire.mads)
        until(patience, "an MRA")
    finally:
        os.kill(Stage.target.pid, signal.SIGCONT)
    c.take_reply()
    c.mad(RTU, c.ids())
    expect_alive(c)
    Stage.wire.mads.clear()


@case("B66: requests that pile up before a listener are bounded for each peer, then refused")
def backlog(memory):
    peer, other = Stage.wire.peer(), Stage.wire.peer()
    os.kill(Stage.target.pid, signal.SIGSTOP)
    try:
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
    finally:
        os.kill(Stage.target.pid, signal.SIGCONT)
    late.take_reply()
    late.mad(RTU, late.ids())
    expect_alive(late)
    gone = {mad.remote_id for mad in refused}
    Stage.wire.mads = type(Stage.wire.mads)(m for m in Stage.wire.mads if m not in refused)
    for c in some:
        if c.local_id not in gone:
            c.take_reply()


@case("the listener's program is killed: those who wait are refused, later ones find nobody")
def killed_listener(memory):
    target = rig.Target("mortal", Stage.daemon, "[export mortal]\nlisten = 10.66.0.1:7600\n"
                        "size = 4K\naccess = read,write\n")
    live = connect(7600)
    c = roce.Connection(Stage.wire.peer(), 7600, connect=False)
    os.kill(target.pid, signal.SIGSTOP)
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
    live.post_write(0, b"too late", psn=live.psn)
    stage.expect_silence(live)
    expect_equal(refusal(7600).reason, REJ_SERVICE, "the port of the dead")


@case("B58, B29: a program that is killed while a READ of its memory is answered: no byte behind it")
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
    for c in some:
        c.request()
    for c in some:
        c.take_reply()
        c.mad(RTU, c.ids())
    expect(Stage.daemon.status()["connections"] > len(some), "connections at once")
    for c in some:
        psn = c.psn
        c.post_write(0, bytes(memory[:8]))
        c.expect_ack(psn)
    for c in some:
        c.open = False
        c.mad(DREQ, c.ids() + c.remote_qpn.to_bytes(3, "big"))
    for c in some:
        Stage.wire.mad(DREP, c.local_id, "DREP")


# --- the daemon as the active side ----------------------------------------------------------------


def perf(peer, port):
    return Process("perf", [rig.program("oriel-perf"), "--export", f"{peer.ip}:{port}", "-n", "1"],
                   {"ORIEL_SOCKET": Stage.daemon.socket})


def incoming():
    return Stage.wire.wait(lambda: next((m for m in Stage.wire.mads if m.attribute == REQ), None),
                           "REQ of the daemon's")


@case("B18: a REQ of the daemon's names ports, addresses and service as rdma_cm does")
def own_request(memory):
    peer = Stage.wire.peer()
    program = perf(peer, 7999)
    mad = incoming()
    Stage.wire.mads.remove(mad)
    body = mad.body
    expect_equal(struct.unpack("!Q", body[8:16])[0], 0x0000000001060000 | 7999, "service id")
    expect_equal(body[56:72] + body[72:88], roce.gid("10.66.0.1") + roce.gid(peer.ip), "GIDs")
    version, family, port = struct.unpack("!BBH", body[140:144])
    expect_equal((version, family), (0, 4 << 4), "versions of the CMA header")
    expect(port >= 49152, f"source port {port}")
    expect_equal(body[144:176], roce.packed("10.66.0.1").rjust(16, b"\0")
                 + roce.packed(peer.ip).rjust(16, b"\0"), "addresses of the CMA header")
    expect_equal(struct.unpack("!H", body[48:50])[0], 0xFFFF, "P_Key")
    expect_equal(body[176:180], b"ORQ1", "private data")
    answer = struct.pack("!II", 0x777, mad.local_id) + bytes([0, 0, 0, REJ_CONSUMER])
    peer.send_mad(REJ, answer.ljust(84, b"\0") + struct.pack("!II", REFUSAL, 2), mad.tid)
    expect(program.wait() > 0 and "no such export" in program.log(), program.log())


@case("a peer that does not exist: the program hears of it, nothing is left")
def absent_peer(memory):
    class Absent:
        """Nobody answers for this address."""
        ip = "10.66.99.99"
    program = perf(Absent, 7471)
    until(lambda: Stage.wire.pump(0.05) or not program.alive(), "the program gives up")
    expect(program.wait() > 0 and "HOST_UNREACHABLE" in program.log(), program.log())


@case("a program that is killed while it connects leaves nothing, and its peer is told")
def killed_connecting(memory):
    peer = Stage.wire.peer()
    for _ in range(3 if rig.QUICK else 10):
        program = perf(peer, 7999)
        mad = incoming()
        program.kill()
        Stage.wire.mads.clear()
        rejection = Stage.wire.mad(REJ, 0, "REJ: the daemon takes its request back")
        expect_equal((rejection.local_id, rejection.reason), (mad.local_id, REJ_TIMEOUT), "REJ")
    Stage.wire.mads.clear()


# --- peers that guess -----------------------------------------------------------------------------


@rig.test("bad-token-budget: a peer that guesses is shut out for a while, others are served")
def budget():
    rig.veth("d2", "p2")
    daemon = rig.Daemon("b", "net_af_packet0,iface=d2", "10.68.0.1/16", number=1,
                        more="bad-token-budget = 3\n")
    target = rig.Target("btarget", daemon, "[export a]\nlisten = 10.68.0.1:7471\nsize = 4K\n"
                        "access = read,write\n")
    wire = roce.Wire("p2", daemon, "10.68.0.1")
    wire.witness = roce.Connection(wire.peer(), 7471)
    guesser = wire.peer()
    for _ in range(4):
        c = roce.Connection(guesser, 7471)
        psn = c.psn
        c.post_read(0, 8, token=c.window.token ^ 0x10)
        c.expect_nak(NAK_ACCESS, psn)
    until(lambda: daemon.status()["peers_shut_out"] == 1, "the peer is shut out")
    try:
        roce.Connection(guesser, 7471)
        raise rig.Failure("the guesser is let in")
    except roce.Refused as refused:
        expect_equal(refused.reason, REJ_CONSUMER, "reason")
    expect_equal(daemon.status()["bad_tokens"], 4, "bad tokens")
    c = roce.Connection(wire.peer(), 7471)
    c.write(0, b"others")
    expect_equal(wire.witness.read(0, 6), b"others", "memory")
    expect_equal((target.stop(), daemon.stop()), (0, 0), "exit status")


if __name__ == "__main__":
    rig.main(stage.build)
