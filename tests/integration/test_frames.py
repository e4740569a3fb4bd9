# SPDX-License-Identifier: BSD-3-Clause
"""Frames whose headers are varied by hand: what must make no difference, and what must."""
import os
import struct

import rig
import roce
import stage
from rig import expect, expect_equal
from roce import (ACK, ATOMIC_ACK, READ_ONLY, UD_SEND_ONLY, WRITE_ONLY, bth, deth, reth)
from stage import Stage, case, connect, expect_alive, expect_memory, expect_silence, reasons


# --- frames that must make no difference, and those that must ------------------------------------


@case("W17, B04: what routers change is masked out of the ICRC, everything else is covered")
def icrc_cover(memory):
    c = connect()

    def frame():
        return c.peer.frame(bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True)
                            + reth(c.at(0), c.window.token, 8) + b"icrcicrc", sport=c.sport)

    def patch(part, at, xor):
        def change(f):
            value = bytearray(getattr(f, part))
            value[at] ^= xor
            setattr(f, part, bytes(value))
        return change
    memory[:8] = b"icrcicrc"
    with reasons():
        for change in (patch("ip", 8, 0x3F), patch("ip", 1, 0xB9), patch("udp", 6, 0x5A),
                       patch("transport", 4, 0xFF)):
            f = frame()
            change(f)
            f.refresh_checksum()
            c.wire.send(f.bytes())
            c.expect_ack(c.psn)
            c.psn = c.psn + 1 & 0xFFFFFF
    changes = [patch("ip", 5, 1), patch("udp", 0, 0x10), patch("transport", 8, 1),
               patch("transport", 1, 0x80), patch("transport", 11, 1), patch("transport", 35, 1),
               patch("icrc", 0, 1), patch("icrc", 3, 0x80), patch("ip", 15, 1)]
    with reasons(icrc=len(changes) + 1):
        for change in changes:
            f = frame()
            change(f)
            f.refresh_checksum()
            c.wire.send(f.bytes())
        f = frame()
        f.ip = f.ip[:16] + roce.packed(stage.ALIAS)
        f.refresh_checksum()
        c.wire.send(f.bytes())
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("W19, B15: an IPv4 identification is no fragment; fragments, options, extensions are dropped")
def fragments(memory):
    c = connect()

    def write(**ip_options):
        c.post_write(0, b"fragment", psn=c.psn, frame={"ip_options": ip_options})
    memory[:8] = b"fragment"
    for ident, flags in ((0x1234, 0x4000), (0x1234, 0), (0, 0), (0, 0x8000 | 0x4000)):
        with reasons():
            write(ident=ident, fragment=flags)
            c.expect_ack(c.psn)
            c.psn = c.psn + 1 & 0xFFFFFF
    before = Stage.daemon.verdicts()
    for ident, flags in ((0x1234, 0x2000), (0x1234, 185), (0, 0x2000 | 185)):
        write(ident=ident, fragment=flags)
    expect_silence(c)
    # Behind a packet socket's fanout the kernel keeps fragments to itself.
    expect(dict(Stage.daemon.verdicts() - before) in ({}, {"fragment": 3}), "reasons of fragments")
    with reasons(ip_options=1):
        write(options=b"\x01\x01\x01\x00")
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("W19: an IPv6 fragment header is dropped as a fragment, other extensions as such")
def ipv6_extensions(memory):
    c = connect(six=True)
    with reasons(fragment=1, ip_options=3):
        for following in (44, 0, 43, 60):
            f = c.peer.frame(bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True)
                             + reth(c.at(0), c.window.token, 8) + b"fragment", sport=c.sport)
            extension = bytes([17, 0, 0, 0, 0, 0, 0, 1])
            f.ip = (f.ip[:4] + struct.pack("!HB", len(f.udp + f.transport) + 12, following)
                    + f.ip[7:] + extension)
            c.wire.send(f.bytes())
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("B07, B16: IPv6: class, label, hops, UDP checksum do not matter; lengths and GIDs do")
def ipv6_fields(memory):
    c = connect(six=True)

    def frame(**ip_options):
        return c.peer.frame(bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True)
                            + reth(c.at(0), c.window.token, 8) + b"ipv6ipv6", sport=c.sport,
                            ip_options=ip_options)

    def accepted(f):
        c.wire.send(f.bytes())
        c.expect_ack(c.psn)
        c.psn = c.psn + 1 & 0xFFFFFF
    memory[:8] = b"ipv6ipv6"
    with reasons():
        accepted(frame(tclass=0x69, flow=0xABCDE, hops=7))
        f = frame()
        f.ip = struct.pack("!I", 6 << 28 | 0x69 << 20 | 0xABCDE) + f.ip[4:7] + b"\x07" + f.ip[8:]
        accepted(f)
        f = frame()
        f.set_udp_checksum(f.right_udp_checksum())
        accepted(f)
        f = frame()
        f.set_udp_checksum(f.right_udp_checksum() ^ 0x1111)
        accepted(f)
    with reasons(icrc=1):
        f = frame()
        f.ip = f.ip[:20] + b"\x01" + f.ip[21:]
        c.wire.send(f.bytes())
        expect_silence(c)
    with reasons(udp_length=1):
        f = frame()
        f.ip = f.ip[:5] + bytes([f.ip[5] - 1]) + f.ip[6:]
        c.wire.send(f.bytes())
        expect_silence(c)
    expect_memory(memory)


@case("B17, B08: MigReq, FECN, BECN, reserved bits do not matter; TVer other than 0 is dropped")
def bits(memory):
    c = connect()
    with reasons():
        for flags in ({"mig": False}, {"resv8a": 0x80}, {"resv8a": 0x40}, {"resv8a": 0x3F},
                      {"resv7": 0x7F}, {"solicited": True}, {"resv8a": 0xFF, "resv7": 0x7F}):
            psn = c.psn
            c.post_write(0, bytes(memory[:8]), **flags)
            c.expect_ack(psn)
    with reasons(tver=2):
        for version in (1, 15):
            c.post_write(0, b"versions", tver=version, psn=c.psn)
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("B88: the UDP source port may be anything and change with each packet; ours is constant")
def source_ports(memory):
    c = connect()
    ports = set()
    for port in (0, 1, 4791, 49152, 65535, 7):
        psn = c.psn
        c.post_write(0, bytes(memory[:8]), frame={"sport": port})
        ports.add(c.expect_ack(psn).sport)
    expect(len(ports) == 1 and min(ports) >= 0xC000, f"the daemon's source ports {ports}")


@case("B74: P_Keys match in their lower 15 bits, one being a full member; others are dropped")
def partition_keys(memory):
    c = connect()
    with reasons():
        for pkey in (0xFFFF, 0x7FFF):
            psn = c.psn
            c.post_write(0, bytes(memory[:8]), pkey=pkey)
            c.expect_ack(psn)
    with reasons(pkey=3):
        for pkey in (0x8001, 0x0000, 0x8000):
            c.post_write(0, b"wrong key", pkey=pkey, psn=c.psn)
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("B118: a wrong IPv4 header checksum is noticed in software")
def header_checksum(memory):
    c = connect()
    with reasons(ip_checksum=1):
        f = c.peer.frame(bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True)
                         + reth(c.at(0), c.window.token, 8) + b"checksum", sport=c.sport)
        f.ip = f.ip[:10] + b"\x12\x34" + f.ip[12:]
        c.wire.send(f.bytes())
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("W21, B80, B81: priority tags are served, tags of other VLANs and double tags are not")
def tags(memory):
    c = connect()
    with reasons():
        psn = c.psn
        c.post_write(0, b"priority", frame={"tags": [(0x8100, 5 << 13)]})
        c.expect_ack(psn)
    memory[:8] = b"priority"
    with reasons(wrong_vlan=2):
        c.post_write(0, b"vlan 100", psn=c.psn, frame={"tags": [(0x8100, 100)]})
        c.post_write(0, b"vlan 100", psn=c.psn, frame={"tags": [(0x8100, 7 << 13 | 4094)]})
        expect_silence(c)
    with reasons(double_tag=1):
        c.post_write(0, b"two tags", psn=c.psn, frame={"tags": [(0x8100, 0), (0x8100, 0)]})
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@rig.test("W21, B80: a port with vlan = 100 takes and sends VID 100, whatever PCP and DEI")
def vlan_port():
    rig.veth("d1", "p1")
    daemon = rig.Daemon("v", "net_af_packet0,iface=d1", "10.67.0.1/16", number=1,
                        port="vlan = 100\n")
    target = rig.Target("vtarget", daemon, "[export a]\nlisten = 10.67.0.1:7471\nsize = 4K\n"
                        "access = read,write\n")
    wire = roce.Wire("p1", daemon, "10.67.0.1")
    peer = wire.peer()
    peer.tags = [(0x8100, 100)]
    c = wire.witness = roce.Connection(peer, 7471)
    for tci in (100, 100 | 7 << 13 | 1 << 12):
        psn = c.psn
        c.post_write(0, b"vlan", frame={"tags": [(0x8100, tci)]})
        got = c.expect_ack(psn)
        expect_equal((got.tci or 0) & 0xFFF, 100, "VID of the daemon's frames")
    before = daemon.verdicts()
    for tagged in ([(0x8100, 101)], [], [(0x8100, 0)]):
        c.post_write(0, b"none", psn=c.psn, frame={"tags": tagged})
    expect_silence_of(c, wire)
    expect_equal(dict(daemon.verdicts() - before), {"wrong_vlan": 3}, "reasons")
    expect_equal(c.read(0, 4), b"vlan", "memory")
    expect_equal((target.stop(), daemon.stop()), (0, 0), "exit status")


def expect_silence_of(connection, wire):
    wire.barrier()
    expect_equal(list(wire.inbox[connection.qpn]), [], "packets where none may come")


@case("packets from an address that is not the peer's, or to another of ours, are dropped")
def wrong_addresses(memory):
    c = connect()
    stranger = Stage.wire.peer()
    with reasons(not_peer=2):
        c.post_write(0, b"stranger", psn=c.psn, frame={"source": stranger.ip})
        c.post_write(0, b"stranger", psn=c.psn, frame={"destination": stage.ALIAS})
        expect_silence(c)
    with reasons(not_ours_ip=1):
        c.post_write(0, b"stranger", psn=c.psn, frame={"destination": "10.66.77.77"})
        expect_silence(c)
    with reasons(not_ours_mac=1):
        c.post_write(0, b"stranger", psn=c.psn, frame={"destination_mac": stranger.mac})
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("packets for queue pairs that do not exist are dropped and counted")
def unknown_queue_pairs(memory):
    c = connect()
    numbers = [0, 2, 0xFFFFFF, c.remote_qpn ^ 1, c.remote_qpn ^ 0x800000]
    with reasons(qp_unknown=len(numbers)):
        for number in numbers:
            c.post_write(0, b"unknown!", psn=c.psn, qpn=number)
        expect_silence(c)
    with reasons(qp_type=2, qkey=1, pkey=1, length=1):
        c.post_write(0, b"to qp 1!", psn=c.psn, qpn=1)
        c.peer.send(bth(roce.UD_SEND_ONLY_IMM, 1, 0) + deth(roce.GSI_QKEY, 1) + bytes(260))
        c.peer.send(bth(UD_SEND_ONLY, 1, 0) + deth(0x11111111, 1) + bytes(256))
        c.peer.send(bth(UD_SEND_ONLY, 1, 0, pkey=0x8001) + deth(roce.GSI_QKEY, 1) + bytes(256))
        c.peer.send(bth(UD_SEND_ONLY, 1, 0) + deth(roce.GSI_QKEY, 1) + bytes(252))
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("opcodes of other services are dropped, undefined ones as unknown; the connection lives")
def services(memory):
    c = connect()
    others = list(range(0x20, 0x2C)) + [UD_SEND_ONLY, roce.UD_SEND_ONLY_IMM]
    with reasons(qp_type=len(others)):
        for opcode in others:
            c.peer.send(bth(opcode, c.remote_qpn, c.psn, ack=True) + reth(
                c.at(0), c.window.token, 8) + bytes(4) + b"service!", sport=c.sport)
        expect_silence(c)
    unknown = [0x15, *range(0x18, 0x1C), 0x1E, 0x1F, *range(0x2C, 0x64), *range(0x66, 0x81),
               *range(0x82, 0x100)]
    with reasons(opcode=len(unknown)):
        for number, opcode in enumerate(unknown):
            c.peer.send(bth(opcode, c.remote_qpn, c.psn, ack=True) + bytes(40), sport=c.sport)
            if number % 100 == 99:
                Stage.wire.barrier()
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("responses that nobody asked for are dropped and counted, one by one")
def responses(memory):
    c = connect()
    aeth = struct.pack("!I", 0x1F000001)
    before = Stage.daemon.verdicts()
    sent = 0
    for psn in (c.receive_psn, c.receive_psn - 1, c.receive_psn + 1, 0, 0x800000):
        for opcode, rest in ((ACK, aeth), (ACK, b"\x60" + aeth[1:]), (ACK, b"\x62" + aeth[1:]),
                             (ACK, b"\x2c" + aeth[1:]), (READ_ONLY, aeth + bytes(8)),
                             (roce.READ_FIRST, aeth + bytes(1024)), (roce.READ_MIDDLE, bytes(1024)),
                             (roce.READ_LAST, aeth + bytes(8)), (ATOMIC_ACK, aeth + bytes(8))):
            c.peer.send(bth(opcode, c.remote_qpn, psn & 0xFFFFFF) + rest, sport=c.sport)
            sent += 1
    expect_silence(c)
    moved = Stage.daemon.verdicts() - before
    expect(sum(moved.values()) == sent and set(moved) <= {"ack_future", "ack_ghost",
                                                          "response_unexpected"},
           f"{sent} responses: {dict(moved)}")
    expect_alive(c)
    expect_memory(memory)


@case("B02: every opcode, short of every length, to every kind of queue pair, ICRC wrong: counted")
def sweep(memory):
    c = connect()
    lengths = (0, 4, 11, 12, 16, 20, 27, 28, 32, 44, 64) if rig.QUICK else range(65)
    before = Stage.daemon.verdicts()
    sent = 0
    for length in lengths:
        for opcode in range(256):
            for qpn in (c.remote_qpn, 0, 1, 0xFFFFFF):
                c.peer.send_udp((bth(opcode, qpn, c.psn, ack=True) + bytes(52))[:length])
                sent += 1
            if opcode % 32 == 31:
                Stage.witness.read(0, 8)
    expect_silence(c)
    moved = Stage.daemon.verdicts() - before
    expect_equal(sum(moved.values()), sent, f"frames counted, by reason {dict(moved)}")
    expect(set(moved) <= {"runt", "opcode", "header_truncated", "pad", "icrc"},
           f"reasons {dict(moved)}")
    expect_alive(c)
    expect_memory(memory)


@case("random frames with a right ICRC on a live connection: the daemon stays and serves on")
def random_frames(memory):
    for _ in range(20 if rig.QUICK else 150):
        c = connect()
        for _ in range(5):
            opcode = os.urandom(1)[0] & 0x1F
            body = os.urandom(int.from_bytes(os.urandom(2), "big") % 1100)
            pad = len(body) % 4
            psn = c.psn + os.urandom(1)[0] % 3
            c.peer.send(bth(opcode, c.remote_qpn, psn, ack=True, pad=pad) + body, sport=c.sport)
        Stage.wire.barrier()
        Stage.wire.inbox[c.qpn].clear()
        c.disconnect()
    expect_memory(memory)


if __name__ == "__main__":
    rig.main(stage.build)
