# SPDX-License-Identifier: BSD-3-Clause
"""Every RoCE frame of a recording against the InfiniBand specification: what it says of itself; and
on connections that the connection manager made, PSN, MSN and length as they were asked for."""
import collections
import struct
import zlib

from frames import ip_payload, is_roce, pcap_frames, vlan
from rig import Failure

MODULUS = 1 << 24
GSI = 1
MANY = 150000   # frames, looked at in three seconds: what comes behind them is as before
REQ, REP = 0x10, 0x13
RC, UC, UD = 0x00, 0x20, 0x60
CNP = 0x81

# Opcodes without their service.
FIRSTS, MIDDLES = {0, 6}, {1, 7}
LASTS = {2, 3, 8, 9, 0x16}
WRITES_WITH_RETH = {6, 10, 11}
IMMEDIATES, INVALIDATES = {3, 5, 9, 11}, {0x16, 0x17}
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = range(12, 17)
ACK, ATOMIC_ACK, COMPARE_SWAP, FETCH_ADD = range(17, 21)
READ_RESPONSES = {READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY}
RESPONSES = READ_RESPONSES | {ACK, ATOMIC_ACK}

Packet = collections.namedtuple("Packet", "sender source target service opcode psn ack_request"
                                " extended payload")


def audit(path, guest, begin=0, tag=0, noisy=False):
    """Counts of what was seen, also by who sent it, "guest", whose MAC is given, or "daemon"; a
    Failure names the first frame that is wrong. With `noisy` what the daemon sent may have been
    corrupted behind it: such frames are counted."""
    seen = collections.Counter()
    connections = Connections()
    for number, frame in enumerate(pcap_frames(path, begin), 1):
        if not is_roce(frame):
            continue
        if seen["frames"] == MANY:
            break
        seen["frames"] += 1
        sender = "guest" if frame[6:12] == guest else "daemon"
        try:
            must(icrc_is_right(frame), "wrong ICRC")
            must((vlan(frame) or 0) == tag, f"VLAN {vlan(frame)}, expected {tag}")
            packet = dissect(frame, sender)
        except (Failure, struct.error) as wrong:
            if noisy and sender == "daemon":
                seen["corrupted"] += 1
                continue
            raise Failure(f"frame {number}: {wrong}: {frame.hex()}") from None
        try:
            connections.take(packet, seen)
        except (Failure, struct.error) as wrong:
            raise Failure(f"frame {number}: {wrong}: {frame.hex()}") from None
        if packet.service == RC:
            seen["longest", sender] = max(seen["longest", sender], len(packet.payload))
    connections.close(seen)
    return seen


# ---- one frame ----

def without_tag(frame):
    return frame if vlan(frame) is None else frame[:12] + frame[16:]


def icrc_is_right(frame):
    """Over all from the IP header on, with what routers change set to ones, behind eight bytes of
    ones for the LRH."""
    frame = bytearray(without_tag(frame))
    length = (frame[14] & 15) * 4 if frame[14] >> 4 == 4 else 40
    ip, udp, rest = frame[14:14 + length], frame[14 + length:22 + length], frame[22 + length:]
    if length == 40:
        ip[0] |= 0x0f
        ip[1:4] = b"\xff" * 3
        ip[7] = 0xff
    else:
        ip[1] = ip[8] = ip[10] = ip[11] = 0xff
    udp[6:8] = b"\xff\xff"
    rest[4] = 0xff
    return zlib.crc32(b"\xff" * 8 + ip + udp + rest[:-4]) == int.from_bytes(rest[-4:], "little")


def must(condition, what):
    if not condition:
        raise Failure(what)


def extended_length(service, opcode):
    length = 0
    if service == UD:
        length += 8
    if opcode in WRITES_WITH_RETH or opcode == READ_REQUEST:
        length += 16
    if opcode in (COMPARE_SWAP, FETCH_ADD):
        length += 28
    if opcode in (READ_FIRST, READ_LAST, READ_ONLY, ACK, ATOMIC_ACK):
        length += 4
    if opcode in IMMEDIATES or opcode in INVALIDATES:
        length += 4
    return length + 8 * (opcode == ATOMIC_ACK)


def dissect(frame, sender):
    plain = without_tag(frame)
    _, udp = ip_payload(frame)
    must(struct.unpack(">H", udp[4:6])[0] == len(udp), "UDP's length is not the frame's")
    if plain[14] >> 4 == 4:
        must(struct.unpack(">H", plain[16:18])[0] == len(plain) - 14, "IP's length")
        source, target = plain[26:30], plain[30:34]
    else:
        must(struct.unpack(">H", plain[18:20])[0] == len(udp), "IP's length")
        source, target = plain[22:38], plain[38:54]
    bth = udp[8:20]
    code, flags, key, queue, psn = struct.unpack(">BBHII", bth)
    must(flags & 15 == 0, "the transport's version is not 0")
    must(key == 0xffff, f"P_Key {key:#x}")
    if code == CNP:
        return Packet(sender, source, (target, queue % MODULUS), CNP, 0, 0, False, b"", b"")
    must(not queue >> 24 & 0x3f and not psn >> 24 & 0x7f, "reserved bits")
    service, opcode = code & 0xe0, code & 0x1f
    must(service in (RC, UC, UD), f"opcode {code:#x}")
    if sender == "daemon":
        as_ours(udp, service, opcode)
    pad, start = flags >> 4 & 3, 20 + extended_length(service, opcode)
    payload = udp[start:len(udp) - 4 - pad]
    must(len(udp) - 4 - pad >= start, "shorter than its headers")
    must((len(payload) + pad) % 4 == 0, f"{pad} pad bytes behind {len(payload)}")
    must(not any(udp[len(udp) - 4 - pad:len(udp) - 4]), "pad bytes that are not zero")
    return Packet(sender, source, (target, queue % MODULUS), service, opcode, psn % MODULUS,
                  bool(psn >> 31), udp[20:start], payload)


def as_ours(udp, service, opcode):
    """What nobody else has to hold."""
    must(struct.unpack(">H", udp[0:2])[0] >= 0xc000, "the source port")
    must(udp[6:8] == b"\0\0", "a UDP checksum")
    must(udp[9] & 0x40, "MigReq is not set")
    must(not udp[16] & 0x80 or service == RC and opcode not in RESPONSES, "asks for an answer")


# ---- connections ----

class Way:
    """What one end asks of the other, and what it hears in answer."""

    def __init__(self, psn, mtu):
        self.start, self.mtu = psn, mtu
        self.next = 0           # packets, from the first on
        self.messages = 0       # whose last packet came
        self.inside = None      # opcode and bytes of a message whose end has not come
        self.announced = 0      # bytes, by the RETH
        self.done = [0]         # messages that have ended with each packet or before, and one more
        self.reads = {}         # bytes of a READ and its place in it, by packet
        self.ends = 0           # packets before and with the last end of a message
        self.asked = 0          # packets before and with the last that asked for an answer
        self.answered = 0       # of those before and with the last acknowledged
        self.refused = False

    def place(self, psn):
        """Of a packet or of what answers it; connections here have less than half of all PSNs."""
        place = (psn - self.start) % MODULUS
        return place if place < MODULUS // 2 else place - MODULUS

    def ask(self, packet, seen):
        place = self.place(packet.psn)
        if place < self.next:
            seen["again", packet.sender] += 1
            return
        if place > self.next:   # the one between was lost before the recording, and will come again
            seen["ahead", packet.sender] += 1
            return
        self.asked = place + 1 if packet.ack_request else self.asked
        if packet.opcode == READ_REQUEST:
            self.read(packet, place)
        else:
            self.piece(packet)
            self.done.append(self.messages)
            self.next += 1
        seen["requests", packet.sender] += 1

    def read(self, packet, place):
        must(self.inside is None, "a READ within a message")
        must(not packet.payload, "a READ request with a payload")
        length = struct.unpack(">I", packet.extended[12:16])[0]
        count = max(1, -(-length // self.mtu))
        for i in range(count):
            self.reads[place + i] = (length, i, count)
            self.done.append(self.messages + (i + 1 == count))
        self.next += count
        self.messages += 1

    def piece(self, packet):
        opcode, length = packet.opcode, len(packet.payload)
        begins, ends = opcode not in MIDDLES | LASTS, opcode not in FIRSTS | MIDDLES
        must(begins == (self.inside is None), f"opcode {opcode:#x} at this place of a message")
        must(length <= self.mtu, f"{length} bytes, more than the path MTU")
        must(ends or length == self.mtu, f"{length} bytes before the message's end")
        must(begins or length, "an empty end of a message")
        if opcode in WRITES_WITH_RETH:
            self.announced = struct.unpack(">I", packet.extended[12:16])[0]
        elif begins:
            self.announced = None
        total = length + (0 if begins else self.inside)
        must(not ends or self.announced in (None, total),
             f"a WRITE of {total} bytes that announced {self.announced}")
        self.inside = None if ends else total
        self.messages += ends

    def answer(self, packet, seen):
        place = self.place(packet.psn)
        must(place <= self.next, f"PSN {packet.psn:#x} is answered before it was sent")
        if packet.opcode in READ_RESPONSES:
            self.response(packet, place, seen)
        if packet.opcode == READ_MIDDLE or place < -1:
            return
        syndrome, msn = packet.extended[0], int.from_bytes(packet.extended[1:4], "big")
        ours = packet.sender == "daemon"    # rdma_rxe may count a duplicate, or ahead of its PSN
        if syndrome >> 5 in (1, 3):
            # All before it has ended, and it has not.
            must(not ours or msn == self.done[place] % MODULUS,
                 f"MSN {msn} in a NAK where {self.done[place]} messages have ended")
            seen["naks", packet.sender] += 1
            self.refused |= syndrome >> 5 == 3 and syndrome != 0x60
            return
        must(syndrome == 0x1f or not ours and syndrome >> 5 == 0, f"syndrome {syndrome:#x}")
        must(place < self.next, f"PSN {packet.psn:#x} is acknowledged before it was sent")
        self.answered = max(self.answered, place + 1)
        if packet.opcode in (ACK, ATOMIC_ACK):
            # An atomic that came again is answered as before, with the MSN of now.
            later = self.messages - self.done[place + 1] if packet.opcode == ATOMIC_ACK else 0
            must(not ours or (msn - self.done[place + 1]) % MODULUS <= later,
                 f"MSN {msn} where {self.done[place + 1]} messages have ended")
            seen["acks", packet.sender] += 1

    def response(self, packet, place, seen):
        must(place in self.reads, f"a response to PSN {packet.psn:#x}, which is no READ's")
        length, i, count = self.reads[place]
        due = length - i * self.mtu if i + 1 == count else self.mtu
        must(len(packet.payload) == due, f"{len(packet.payload)} bytes in response {i} of {count}")
        must((packet.opcode in (READ_LAST, READ_ONLY)) == (i + 1 == count),
             f"opcode {packet.opcode:#x} in response {i} of {count}")
        self.answered = max(self.answered, place + 1)
        seen["responses", packet.sender] += 1


class Connections:
    """The two ways of each, by who is asked; who is asked answers on the same."""

    def __init__(self):
        self.requests = {}      # by the communication id of who asks for a connection
        self.asked = {}
        self.answered = {}
        self.all = []
        self.silent = []

    def take(self, packet, seen):
        if packet.service == UD and packet.target[1] == GSI:
            self.manage(packet, seen)
        elif packet.service == RC:
            ways = self.answered if packet.opcode in RESPONSES else self.asked
            way = ways.get(packet.target)
            if way is None:
                seen["unknown"] += 1
            elif packet.opcode in RESPONSES:
                way.answer(packet, seen)
            else:
                way.ask(packet, seen)

    def manage(self, packet, seen):
        mad = packet.payload
        must(len(mad) == 256, "a MAD that is not of 256 bytes")
        kind, data = int.from_bytes(mad[16:18], "big"), mad[24:]
        if kind == REQ:
            self.requests[packet.source, data[0:4]] = (
                int.from_bytes(data[32:35], "big"), int.from_bytes(data[44:47], "big"),
                128 << (data[50] >> 4))
        elif kind == REP:
            request = self.requests.pop((packet.target[0], data[4:8]), None)
            if request:
                self.connect(packet, data, request)
                seen["connections"] += 1
                seen[f"path MTU {request[2]}"] += 1

    def connect(self, packet, data, request):
        """Each side sends from the PSN on that the other has named."""
        queue, psn, mtu = request
        active = (packet.target[0], queue)
        passive = (packet.source, int.from_bytes(data[12:15], "big"))
        for who, other, start in ((active, passive, int.from_bytes(data[20:23], "big")),
                                  (passive, active, psn)):
            way = Way(start, mtu)
            self.asked[other] = self.answered[who] = way
            self.all.append(way)

    def close(self, seen):
        for way in self.all:
            if way.refused:
                seen["refused"] += 1
            elif way.answered < way.asked:
                seen["unanswered"] += 1
            elif way.asked < way.ends:
                seen["unasked"] += 1
