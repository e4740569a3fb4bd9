# SPDX-License-Identifier: BSD-3-Clause
"""Connection management by hand-made datagrams: set-up, refusal, and the other direction."""
import os
import struct

import rig
import roce
import stage
from rig import Process, expect, expect_equal, until
from roce import NAK_ACCESS, REJ, REQ, RTU, orq1
from stage import (REJ_TIMEOUT, REJ_UNSUPPORTED, REJ_SERVICE, REJ_TRANSPORT, REJ_GID, REJ_MTU,
                   REJ_CONSUMER, SCRATCH, Stage, case, connect, expect_alive, refusal)

REFUSAL = 0x4F525231  # "ORR1"


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


@case("B83: a REQ that is repeated goes to the MAC that its peer has by then", slow=True)
def repeated_request(memory):
    peer = Stage.wire.peer()
    program = perf(peer, 7999)
    first = incoming()
    Stage.wire.mads.remove(first)
    expect_equal(first.packet.destination_mac, roce.mac_bytes(peer.mac), "where the REQ goes")
    peer.mac = "02:00:00:00:99:01"
    peer.announce()
    again = incoming()
    Stage.wire.mads.remove(again)
    expect_equal(again.raw, first.raw, "the REQ once more")
    expect_equal(again.packet.destination_mac, roce.mac_bytes(peer.mac), "where it goes now")
    answer = struct.pack("!II", 0x777, first.local_id) + bytes([0, 0, 0, REJ_CONSUMER])
    peer.send_mad(REJ, answer.ljust(84, b"\0") + struct.pack("!II", REFUSAL, 2), first.tid)
    expect(program.wait() > 0 and "no such export" in program.log(), program.log())


@case("a peer that does not exist: the program hears of it, nothing is left")
def absent_peer(memory):
    class Absent:
        """Nobody answers for this address."""
        ip = "10.66.99.99"
    program = perf(Absent, 7471)
    until(lambda: Stage.wire.pump(0.05) or not program.alive(), "the program gives up")
    expect(program.wait() > 0 and "HOST_UNREACHABLE: nobody answers for that address" in
           program.log(), program.log())


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
