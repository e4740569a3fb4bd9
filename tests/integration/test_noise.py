# SPDX-License-Identifier: BSD-3-Clause
"""What else is on a LAN: answered where it asks for us, else dropped by reason."""
import os
import struct

import rig
import roce
import stage
from rig import expect, expect_equal
from roce import UD_SEND_ONLY, WRITE_ONLY, bth, checksum, deth, ipv4, ipv6, mac_bytes, packed, reth
from stage import Stage, case, connect, expect_alive, expect_memory, expect_silence

BROADCAST = "ff:ff:ff:ff:ff:ff"
SOLICITED = "ff02::1:ff00:1"  # of fd66::1


def ethernet(peer, kind, payload, destination=None):
    return (mac_bytes(destination or Stage.wire.mac) + mac_bytes(peer.mac)
            + struct.pack("!H", kind) + payload)


def send_ip(peer, protocol, payload, *, destination="10.66.0.1", mac=None, **options):
    header = ipv4(packed(peer.ip), packed(destination), len(payload), protocol=protocol, **options)
    Stage.wire.send(ethernet(peer, 0x0800, header + payload, mac))


def send_ip6(peer, protocol, payload, *, destination="fd66::1", mac=None, hops=255):
    header = ipv6(packed(peer.ip), packed(destination), len(payload), following=protocol, hops=hops)
    Stage.wire.send(ethernet(peer, 0x86DD, header + payload, mac))


def arp(peer, operation, target, *, sender=None, mac=BROADCAST):
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + mac_bytes(peer.mac)
    body += packed(sender or peer.ip) + bytes(6) + packed(target)
    Stage.wire.send(ethernet(peer, 0x0806, body, mac))


def echo(peer, *, destination="10.66.0.1", wrong=0, size=32):
    body = struct.pack("!BBHHH", 8, 0, 0, 7, 9) + os.urandom(size)
    body = body[:2] + struct.pack("!H", checksum(body) ^ wrong) + body[4:]
    send_ip(peer, 1, body, destination=destination)
    return body


def icmp6(peer, kind, rest, *, destination="fd66::1", mac=None, wrong=0, hops=255):
    body = struct.pack("!BBH", kind, 0, 0) + rest
    pseudo = packed(peer.ip) + packed(destination) + struct.pack("!II", len(body), 58)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body) ^ wrong) + body[4:]
    send_ip6(peer, 58, body, destination=destination, mac=mac, hops=hops)
    return body


def solicit(peer, target, **options):
    return icmp6(peer, 135, bytes(4) + packed(target) + b"\1\1" + mac_bytes(peer.mac),
                 destination=SOLICITED, mac="33:33:ff:00:00:01", **options)


def answers():
    """Frames that are no RoCE, after everything has been dealt with."""
    Stage.wire.barrier()
    got = list(Stage.wire.other)
    Stage.wire.other.clear()
    return got


def expect_no_answer(what):
    expect_equal([frame.hex() for frame in answers()], [], f"answers to {what}")


@case("B85: ARP for our addresses is answered, for others and by impostors it is not")
def arp_requests(memory):
    peer = Stage.wire.peer()
    for address in ("10.66.0.1", stage.ALIAS):
        arp(peer, 1, address)
        got = answers()
        expect_equal(len(got), 1, f"answers for {address}")
        expect_equal(got[0][:6] + got[0][20:32], mac_bytes(peer.mac) + b"\0\2"
                     + mac_bytes(Stage.wire.mac) + packed(address), "the ARP answer")
    for target in ("10.66.0.9", "10.66.0.255", "0.0.0.0", "255.255.255.255"):
        arp(peer, 1, target)
    arp(peer, 2, "10.66.0.1")
    arp(peer, 9, "10.66.0.1")
    expect_no_answer("ARP that is none of ours")
    # Truncated, of another hardware, of another protocol.
    for body in (b"", bytes(8), struct.pack("!HHBBH", 6, 0x0800, 6, 4, 1) + bytes(20),
                 struct.pack("!HHBBH", 1, 0x86DD, 6, 16, 1) + bytes(20), os.urandom(27)):
        Stage.wire.send(ethernet(peer, 0x0806, body, BROADCAST))
    expect_no_answer("malformed ARP")


@case("B85: echo requests are answered over IPv4 and IPv6; B118: not with a wrong checksum")
def pings(memory):
    peer, six = Stage.wire.peer(), Stage.wire.peer(six=True)
    body = echo(peer)
    got = answers()
    expect_equal(len(got), 1, "answers to a ping")
    expect_equal((got[0][34], checksum(got[0][34:]), got[0][38:]), (0, 0, body[4:]), "echo reply")
    body = icmp6(six, 128, struct.pack("!HH", 7, 9) + os.urandom(20))
    got = answers()
    expect_equal(len(got), 1, "answers to a ping over IPv6")
    expect_equal((got[0][54], got[0][58:]), (129, body[4:]), "echo reply")
    echo(peer, wrong=1)
    icmp6(six, 128, bytes(8), wrong=1)
    echo(peer, destination="10.66.0.99")
    send_ip(peer, 1, struct.pack("!BBHHH", 0, 0, 0xFFFF, 0, 0))
    send_ip(peer, 1, b"\x08\0")
    expect_no_answer("bad pings")


@case("B85: neighbour solicitations for us are answered; others, or with a wrong checksum, are not")
def solicitations(memory):
    six = Stage.wire.peer(six=True)
    solicit(six, "fd66::1")
    got = answers()
    expect_equal(len(got), 1, "answers to a solicitation")
    expect_equal((got[0][54], got[0][62:78], got[0][80:86]),
                 (136, packed("fd66::1"), mac_bytes(Stage.wire.mac)), "neighbour advertisement")
    solicit(six, "fd66::2")
    solicit(six, "fd66::1", wrong=1)
    solicit(six, "fd66::1", hops=254)
    icmp6(six, 135, bytes(4), destination=SOLICITED, mac="33:33:ff:00:00:01")
    icmp6(six, 134, struct.pack("!BBHII", 64, 0, 1800, 0, 0), destination="ff02::1",
          mac="33:33:00:00:00:01")
    icmp6(six, 143, bytes(24), destination="ff02::16", mac="33:33:00:00:00:16")
    expect_no_answer("solicitations that are none of ours, RA, MLD")


@case("B85: the noise of an office LAN changes nothing and is counted by reason")
def office(memory):
    c = connect()
    peer = Stage.wire.peer()
    udp = lambda source, destination, payload: struct.pack(
        "!HHHH", source, destination, 8 + len(payload), 0) + payload
    before = Stage.daemon.verdicts()
    sent = 0
    for _ in range(10):
        # DHCP, mDNS, SSDP, NetBIOS
        send_ip(peer, 17, udp(68, 67, os.urandom(300)), destination="255.255.255.255",
                mac=BROADCAST)
        send_ip(peer, 17, udp(5353, 5353, os.urandom(80)), destination="224.0.0.251",
                mac="01:00:5e:00:00:fb")
        send_ip(peer, 17, udp(40000, 1900, os.urandom(80)), destination="239.255.255.250",
                mac="01:00:5e:7f:ff:fa")
        # TCP to the RoCE port, UDP from it, SCTP, GRE
        send_ip(peer, 6, struct.pack("!HHIIHHHH", 4791, 4791, 1, 0, 0x5002, 1024, 0, 0))
        send_ip(peer, 17, udp(4791, 4000, os.urandom(60)))
        send_ip(peer, 132, os.urandom(40))
        # LLDP, spanning tree (a length in place of the type), MPLS, jumbo type, loopback
        Stage.wire.send(ethernet(peer, 0x88CC, os.urandom(60), "01:80:c2:00:00:0e"))
        Stage.wire.send(ethernet(peer, 38, b"\x42\x42\x03" + os.urandom(40), "01:80:c2:00:00:00"))
        Stage.wire.send(ethernet(peer, 0x8847, os.urandom(60)))
        Stage.wire.send(ethernet(peer, 0x9000, os.urandom(46)))
        # Ethernet types of IP with something else behind them
        Stage.wire.send(ethernet(peer, 0x0800, os.urandom(1)))
        Stage.wire.send(ethernet(peer, 0x0800, b"\x65" + os.urandom(40)))
        Stage.wire.send(ethernet(peer, 0x86DD, b"\x45" + os.urandom(60)))
        sent += 13
    expect_no_answer("noise")
    moved = Stage.daemon.verdicts() - before
    expect_equal(sum(moved.values()), sent, f"frames counted, by reason {dict(moved)}")
    expect_equal((moved["not_roce_port"], moved["not_udp"], moved["not_ip"], moved["ip_version"]),
                 (40, 20, 40, 20), f"frames of known reasons {dict(moved)}")
    expect_alive(c)
    expect_memory(memory)


def fragments_kept():
    """IPv4 fragments that the kernel took to put them together: net_af_packet asks it to."""
    with open("/proc/net/snmp", encoding="ascii") as file:
        names, values = [line.split() for line in file if line.startswith("Ip:")]
    return int(values[names.index("ReasmReqds")])


@case("random frames of every length: each is counted once, nothing is answered")
def random_frames(memory):
    c = connect()
    own = mac_bytes(Stage.wire.mac)
    before, kept = Stage.daemon.verdicts(), fragments_kept()
    sent = 0
    for number in range(300 if rig.QUICK else 3000):
        frame = own + os.urandom(6) + (b"\x08\0", b"\x86\xdd", os.urandom(2))[number % 3]
        frame += os.urandom(number % 1400)
        if number % 100 == 0:  # a fragment, as chance makes one in some thousands
            frame = own + os.urandom(6) + b"\x08\0\x45\0\0\x30" + os.urandom(2)
            frame += struct.pack("!HBB", 0x2000 | number // 100, 64, 17) + os.urandom(60)
        if frame[12:14] in (b"\x08\x06", b"\x81\0", b"\x88\xa8"):
            continue
        # ICMP goes the slow path, whose refusals are the port's to count.
        if frame[12:14] == b"\x08\0" and frame[23:24] == b"\x01":
            continue
        if frame[12:14] == b"\x86\xdd" and frame[20:21] == b"\x3a":
            continue
        Stage.wire.send(frame)
        sent += 1
        if sent % 100 == 0:
            Stage.witness.read(0, 8)
    expect_no_answer("random frames")
    moved = Stage.daemon.verdicts() - before
    expect_equal(sum(moved.values()) + fragments_kept() - kept, sent,
                 f"frames counted, by reason {dict(moved)}")
    expect(fragments_kept() > kept, "the kernel took fragments")
    expect_alive(c)
    expect_memory(memory)


@case("B87: RC to a group address or MAC, UD to a group and QPN 0xFFFFFF: dropped as multicast")
def multicast(memory):
    c = connect()
    body = bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True) + reth(c.at(0), c.window.token, 8)
    with stage.reasons(multicast=6):
        for destination, mac in (("239.1.1.1", "01:00:5e:01:01:01"), ("239.1.1.1", None),
                                 ("10.66.0.1", "01:00:5e:01:01:01"), ("10.66.0.1", BROADCAST),
                                 ("255.255.255.255", BROADCAST)):
            c.peer.send(body + b"multicas", destination=destination, destination_mac=mac,
                        sport=c.sport)
        c.peer.send(bth(UD_SEND_ONLY, 0xFFFFFF, 0) + deth(1, 1) + bytes(8), destination="239.1.1.1",
                    destination_mac="01:00:5e:01:01:01")
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("frames for other stations and other addresses are dropped, though we hear them")
def others(memory):
    c = connect()
    body = bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True) + reth(c.at(0), c.window.token, 8)
    with stage.reasons(not_ours_mac=1, not_ours_ip=2):
        c.peer.send(body + b"not ours", destination_mac="02:00:00:00:aa:aa", sport=c.sport)
        c.peer.send(body + b"not ours", destination="10.66.0.200", sport=c.sport)
        c.peer.send(body + b"not ours", destination="10.66.255.255", sport=c.sport)
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("a REQ that comes from a group's MAC does not make the daemon send data to the group")
def group_source(memory):
    peer = Stage.wire.peer()
    peer.mac = "03:00:00:00:77:77"
    c = roce.Connection(peer, stage.SCRATCH, connect=False)
    c.request()
    Stage.wire.barrier()
    for mad in list(Stage.wire.mads):
        expect(not mad.packet.destination_mac[0] & 1, f"sent to a group: {mad}")
    Stage.wire.mads.clear()
    c.mad(roce.REJ, struct.pack("!II", c.local_id, 0) + bytes([0, 0, 0, 4]))


if __name__ == "__main__":
    rig.main(stage.build)
