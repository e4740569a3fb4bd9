# SPDX-License-Identifier: BSD-3-Clause
"""A RoCEv2 peer made by hand: frames, ICRC and connection management written for the tests alone.

Nothing in here comes from the code under test, so that both cannot be wrong in the same way.
"""
import collections
import itertools
import random
import select
import socket
import struct
import time
import zlib

import rig
from rig import Failure, expect, expect_equal

ROCE_PORT = 4791
GSI_QKEY = 0x80010000

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM = range(6)
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM = range(6, 12)
READ_REQUEST = 0x0C
READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = range(0x0D, 0x11)
ACK, ATOMIC_ACK, COMPARE_SWAP, FETCH_ADD = range(0x11, 0x15)
SEND_LAST_INV, SEND_ONLY_INV = 0x16, 0x17
FLUSH, ATOMIC_WRITE = 0x1C, 0x1D
UC_WRITE_ONLY = 0x2A
UD_SEND_ONLY, UD_SEND_ONLY_IMM = 0x64, 0x65
CNP = 0x81

BROADCAST_MAC = b"\xff" * 6

NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_OPERATION = 0x60, 0x61, 0x62, 0x63

REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP = range(0x10, 0x19)


# --- frames -----------------------------------------------------------------------------------


def mac_bytes(text):
    return bytes(int(part, 16) for part in text.split(":"))


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def gid(address):
    raw = packed(address)
    return raw if len(raw) == 16 else bytes(10) + b"\xff\xff" + raw


def ones_sum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(data):
    return ~ones_sum(data) & 0xFFFF


def bth(opcode, qpn, psn, *, ack=False, solicited=False, mig=True, pad=0, tver=0, pkey=0xFFFF,
        resv8a=0, resv7=0):
    return struct.pack("!BBHII", opcode, solicited << 7 | mig << 6 | pad << 4 | tver, pkey,
                       resv8a << 24 | qpn, ack << 31 | resv7 << 24 | psn & 0xFFFFFF)


def reth(address, token, length):
    return struct.pack("!QII", address & (1 << 64) - 1, token, length)


def atomic_eth(address, token, swap_add, compare=0):
    return struct.pack("!QIQQ", address, token, swap_add & (1 << 64) - 1, compare)


def deth(qkey, source):
    return struct.pack("!II", qkey, source)


def icrc(ip, udp, transport):
    """Over the packet from the IP header on; what routers may change counts as ones."""
    if ip[0] >> 4 == 4:
        ip = ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    else:
        first = struct.unpack("!I", ip[:4])[0] | 0x0FFFFFFF
        ip = struct.pack("!I", first) + ip[4:7] + b"\xff" + ip[8:]
    masked = b"\xff" * 8 + ip + udp[:6] + b"\xff\xff" + transport[:4] + b"\xff" + transport[5:]
    return struct.pack("<I", zlib.crc32(masked))


def ipv4(source, destination, length, *, tos=0, ident=0, fragment=0x4000, ttl=64, protocol=17,
         options=b""):
    header = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, tos, 20 + len(options) + length,
                         ident, fragment, ttl, protocol, 0, source, destination) + options
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:]


def ipv6(source, destination, length, *, tclass=0, flow=0, hops=64, following=17):
    return struct.pack("!IHBB16s16s", 6 << 28 | tclass << 20 | flow, length, following, hops,
                       source, destination)


class Frame:
    """A frame in parts that a test may change before it is put together."""

    def __init__(self, peer, transport, *, sport=0xC123, udp_checksum=0, destination=None,
                 destination_mac=None, tags=None, source=None, ip_options=None):
        here, there = packed(source or peer.ip), packed(destination or peer.wire.ip_for(peer.ip))
        length = 8 + len(transport) + 4
        self.ethernet = mac_bytes(destination_mac or peer.wire.mac) + mac_bytes(peer.mac)
        tags = peer.tags if tags is None else tags
        self.tags = b"".join(struct.pack("!HH", *tag) for tag in tags)
        make = ipv4 if len(here) == 4 else ipv6
        self.ip = make(here, there, length, **(ip_options or {}))
        self.udp = struct.pack("!HHHH", sport, ROCE_PORT, length, udp_checksum)
        self.transport = transport
        self.icrc = icrc(self.ip, self.udp, transport)
        self.tail = b""

    def refresh_checksum(self):
        zeroed = self.ip[:10] + b"\0\0" + self.ip[12:]
        self.ip = self.ip[:10] + struct.pack("!H", checksum(zeroed)) + self.ip[12:]

    def right_udp_checksum(self):
        """What a sender that fills in the UDP checksum would write."""
        addresses = self.ip[12:20] if self.ip[0] >> 4 == 4 else self.ip[8:40]
        whole = self.udp + self.transport + self.icrc
        pseudo = addresses + struct.pack("!IHBB", len(whole), 0, 0, 17)
        return checksum(pseudo + whole) or 0xFFFF

    def set_udp_checksum(self, value):
        self.udp = self.udp[:6] + struct.pack("!H", value)

    def bytes(self):
        kind = struct.pack("!H", 0x0800 if self.ip[0] >> 4 == 4 else 0x86DD)
        return (self.ethernet + self.tags + kind + self.ip + self.udp + self.transport + self.icrc
                + self.tail)


class Packet:
    """A RoCE packet that the daemon sent, its lengths and ICRC verified."""

    def __init__(self, frame, tci):
        self.frame = frame
        self.tci = tci
        self.destination_mac, self.source_mac = frame[:6], frame[6:12]
        size = 20 if frame[12:14] == b"\x08\x00" else 40
        ip = frame[14:14 + size]
        if size == 20:
            total, self.traffic_class, self.hops = struct.unpack("!2xH", ip[:4])[0], ip[1], ip[8]
            expect_equal(checksum(ip), 0, "checksum of an IPv4 header of the daemon's")
            expect_equal(ip[0], 0x45, "version and header length of the daemon's IPv4")
            self.source, self.destination = ip[12:16], ip[16:20]
            expect_equal(total, len(frame) - 14, "IPv4 length of a frame of the daemon's")
        else:
            word, length = struct.unpack("!IH", ip[:6])
            self.traffic_class, self.hops = word >> 20 & 0xFF, ip[7]
            self.source, self.destination = ip[8:24], ip[24:40]
            expect_equal(length, len(frame) - 54, "IPv6 length of a frame of the daemon's")
        udp = frame[14 + size:22 + size]
        self.sport, _, length, _ = struct.unpack("!HHHH", udp)
        expect_equal(length, len(frame) - 14 - size, "UDP length of a frame of the daemon's")
        transport = frame[22 + size:-4]
        expect_equal(frame[-4:], icrc(ip, udp, transport), "ICRC of a frame of the daemon's")
        self.take_transport(transport)

    def take_transport(self, transport):
        self.opcode, flags, self.pkey, word, psn = struct.unpack("!BBHII", transport[:12])
        becn = 0x40 if self.opcode == CNP else 0
        expect_equal((flags & 0x0F, word >> 24, psn >> 24 & 0x7F), (0, becn, 0), "reserved bits")
        self.mig, self.pad = bool(flags & 0x40), flags >> 4 & 3
        self.qpn, self.psn, self.ack_request = word & 0xFFFFFF, psn & 0xFFFFFF, bool(psn >> 31)
        rest = transport[12:]
        self.syndrome = self.msn = self.original = None
        if self.opcode in (READ_FIRST, READ_LAST, READ_ONLY, ACK, ATOMIC_ACK):
            word, = struct.unpack("!I", rest[:4])
            self.syndrome, self.msn, rest = word >> 24, word & 0xFFFFFF, rest[4:]
        if self.opcode == ATOMIC_ACK:
            (self.original,), rest = struct.unpack("!Q", rest[:8]), rest[8:]
        if self.opcode == UD_SEND_ONLY:
            (self.qkey, self.source_qpn), rest = struct.unpack("!II", rest[:8]), rest[8:]
        self.payload = rest[:len(rest) - self.pad]

    def __repr__(self):
        return (f"<{self.opcode:#04x} psn {self.psn:#x} syndrome "
                f"{'-' if self.syndrome is None else hex(self.syndrome)} {len(self.payload)} B>")


class Mad:
    """A management datagram of the daemon's."""

    def __init__(self, packet):
        raw = packet.payload
        expect_equal(len(raw), 256, "size of a MAD of the daemon's")
        expect_equal(packet.qkey, GSI_QKEY, "Q_Key of a MAD of the daemon's")
        self.packet = packet
        self.raw = raw
        self.tid, self.attribute = struct.unpack("!8xQH", raw[:18])
        self.body = raw[24:]
        self.local_id, self.remote_id = struct.unpack("!II", self.body[:8])

    def __repr__(self):
        return f"<MAD {self.attribute:#x} {self.local_id:#x} {self.remote_id:#x}>"

    @property
    def reason(self):
        return struct.unpack("!H", self.body[10:12])[0]

    @property
    def private(self):
        offset = {REJ: 84, REP: 36, REQ: 140}[self.attribute]
        return self.body[offset:]


# --- the wire -----------------------------------------------------------------------------------


class Wire:
    """Our end of the link. What the daemon sends is sorted by queue pair, MADs apart."""

    AUXDATA = 8

    def __init__(self, interface, daemon, ip4, ip6=None):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.socket.setsockopt(263, self.AUXDATA, 1)  # SOL_PACKET: tags that were taken off
        self.socket.bind((interface, 0))
        self.daemon = daemon
        self.mac = daemon.port()["mac"]
        self.ip4, self.ip6 = ip4, ip6
        self.inbox = collections.defaultdict(collections.deque)
        self.notices = collections.defaultdict(collections.deque)  # CNPs, which answer no request
        self.mads = collections.deque()
        self.other = collections.deque()
        self.connections = {}
        self.by_number = {}
        self.peers = {}
        self.numbers = itertools.count(2)
        self.witness = None

    def ip_for(self, ip):
        return self.ip6 if ":" in ip else self.ip4

    def peer(self, six=False):
        """Another station on the wire."""
        number = next(self.numbers)
        prefix = self.ip6.rsplit(":", 1)[0] if six else self.ip4.rsplit(".", 2)[0]
        ip = f"{prefix}:{number:x}" if six else f"{prefix}.{number >> 8}.{number & 255}"
        return Peer(self, ip, f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}")

    def send(self, data):
        self.socket.send(data)

    def sort(self, frame, tci):
        if frame[12:14] == b"\x08\x06":
            self.answer_arp(frame, tci)
            return
        size = {b"\x08\x00": 20, b"\x86\xdd": 40}.get(frame[12:14])
        protocol = frame[23] if size == 20 else frame[20] if size else None
        if protocol != 17 or frame[16 + size:18 + size] != struct.pack("!H", ROCE_PORT):
            self.other.append(frame)
            return
        packet = Packet(frame, tci)
        if packet.qpn == 1:
            self.take_mad(Mad(packet))
        elif packet.opcode == CNP:
            self.notices[packet.qpn].append(packet)
        elif not self.had_before(packet):
            self.inbox[packet.qpn].append(packet)

    def had_before(self, packet):
        """An ORX1 once more, since our ACK was late: as any peer, we repeat that."""
        connection = self.by_number.get(packet.qpn)
        if (not connection or connection.answered_psn is None or packet.opcode != SEND_ONLY
                or connection.answered_psn - packet.psn & 0x800000):
            return False
        connection.acknowledge(packet.psn)
        return True

    def answer_arp(self, frame, tci):
        operation, = struct.unpack("!H", frame[20:22])
        peer = self.peers.get(frame[38:42])
        if operation == 1 and peer:
            tag = b"" if tci is None else struct.pack("!HH", 0x8100, tci)
            self.send(frame[6:12] + mac_bytes(peer.mac) + tag + frame[12:21] + b"\2"
                      + mac_bytes(peer.mac) + frame[38:42] + frame[22:32])
        else:
            self.other.append(frame)

    def take_mad(self, mad):
        connection = self.connections.get(mad.remote_id)
        if mad.attribute == DREQ and connection and connection.answers_dreq:
            connection.dreqs += 1
            connection.mad(DREP, connection.ids(), tid=mad.tid)
            return
        self.mads.append(mad)

    def pump(self, seconds=0.0, most=None):
        """Takes what has come, waiting at most so long for the first frame."""
        for _ in itertools.count() if most is None else range(most):
            if not select.select([self.socket], [], [], seconds)[0]:
                break
            frame, control, _, address = self.socket.recvmsg(65536, 256)
            seconds = 0
            if address[2] == 4:  # PACKET_OUTGOING
                continue
            tci = None
            for _, _, data in control:
                status, = struct.unpack("=I", data[:4])
                if status & 0x10:
                    tci, = struct.unpack("=H", data[16:18])
            self.sort(frame, tci)

    def wait(self, found, what):
        """Pumps until found() gives something."""
        end = time.monotonic() + rig.PATIENCE
        while True:
            value = found()
            if value:
                return value
            if time.monotonic() > end:
                raise Failure(f"no {what} from the daemon; MADs {list(self.mads)}")
            self.pump(0.2, 16)

    def mad(self, attribute, remote_id, what):
        """The next MAD of this kind for this id of ours."""
        def find():
            for mad in self.mads:
                if mad.attribute == attribute and mad.remote_id == remote_id:
                    self.mads.remove(mad)
                    return mad
            return None
        return self.wait(find, what)

    def worked_off(self):
        """What a flood has left is dealt with: a question, again and again, is answered."""
        peer = self.witness.peer
        rig.until(lambda: peer.ask_sidr(0.5), "a question behind a flood is answered")
        # Those before it may have been heard as well, and be answered later.
        for _ in range(2):
            self.witness.read(0, 8)
            peer.ask_sidr()
        self.mads = collections.deque(mad for mad in self.mads if mad.attribute != SIDR_REP)

    def barrier(self):
        """Everything sent so far has been dealt with, and its answers are here."""
        for _ in range(2):
            self.witness.read(0, 8)
        for _ in range(2):
            self.witness.peer.ask_sidr()
        self.witness.read(0, 8)
        self.pump()


class Peer:
    """A station: an address, a MAC, and what it can send."""

    guids = itertools.count(0x0200000000000001)
    sidrs = itertools.count(1)

    def __init__(self, wire, ip, mac):
        self.wire, self.ip, self.mac = wire, ip, mac
        self.guid = next(Peer.guids)
        self.tags = ()
        wire.peers[packed(ip)] = self

    def frame(self, transport, **options):
        return Frame(self, transport, **options)

    def send(self, transport, **options):
        self.wire.send(self.frame(transport, **options).bytes())

    def send_udp(self, payload, *, udp_length=None, tail=b"", **ip_options):
        """A datagram of any bytes to the RoCE port; `tail` lies behind its end in the frame."""
        length = 8 + len(payload)
        ip = ipv4(packed(self.ip), packed(self.wire.ip4), length, **ip_options)
        udp = struct.pack("!HHHH", 0xC123, ROCE_PORT, udp_length or length, 0)
        frame = mac_bytes(self.wire.mac) + mac_bytes(self.mac) + b"\x08\0" + ip + udp + payload
        self.wire.send(frame + tail)

    def send_mad(self, attribute, body, tid, *, method=3, pkey=0xFFFF, qkey=GSI_QKEY, **options):
        header = struct.pack("!BBBBHHQHHI", 1, 7, 2, method, 0, 0, tid, attribute, 0, 0)
        self.send(bth(UD_SEND_ONLY, 1, 0, pkey=pkey) + deth(qkey, 1)
                  + (header + body).ljust(256, b"\0"), **options)

    def announce(self):
        """Gratuitous ARP, as request and as answer."""
        for operation in (1, 2):
            body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
            body += mac_bytes(self.mac) + packed(self.ip) + bytes(6) + packed(self.ip)
            self.wire.send(BROADCAST_MAC + mac_bytes(self.mac) + b"\x08\x06" + body)

    def ask_sidr(self, patience=None):
        """A question that the connection manager answers at once, without any state; with a
        patience of its own None when no answer comes."""
        number = next(Peer.sidrs)
        service = 0x0000000001110000 | 9
        self.send_mad(SIDR_REQ, struct.pack("!IHHQ", number, 0xFFFF, 0, service), number)

        def answered():
            for mad in self.wire.mads:
                if mad.attribute == SIDR_REP and mad.local_id == number:
                    self.wire.mads.remove(mad)
                    return mad
            return None
        if patience is None:
            return self.wire.wait(answered, "SIDR REP")
        self.wire.pump(patience)
        return answered()


# --- connections ----------------------------------------------------------------------------------


class Connection:
    """An RC connection to an export, or the attempt at one."""

    ids_counter = itertools.count(0x1000)
    qpns = itertools.count(0x100)

    def __init__(self, peer, port, *, private=b"", mtu=1024, connect=True, rtu=True, **changes):
        self.peer, self.wire, self.port = peer, peer.wire, port
        self.local_id, self.qpn = next(Connection.ids_counter), next(Connection.qpns)
        self.remote_id = self.remote_qpn = 0
        self.tid = random.getrandbits(63)
        self.receive_psn = random.getrandbits(24)  # what the daemon's requests begin with
        self.psn = 0  # of our next request; the REP says where it begins
        self.answered_psn = None  # of the daemon's last ORX1
        self.mtu, self.private = mtu, private
        self.answers_dreq, self.dreqs = True, 0
        self.rep = None
        self.open = False
        self.sport = 0xC000 + self.qpn % 0x3FFF
        self.wire.connections[self.local_id] = self.wire.by_number[self.qpn] = self
        if connect:
            self.request(**changes)
            self.take_reply()
            if rtu:
                self.mad(RTU, self.ids())

    def ids(self):
        return struct.pack("!II", self.local_id, self.remote_id)

    def mad(self, attribute, body, *, tid=None, **options):
        self.peer.send_mad(attribute, body, self.tid if tid is None else tid, **options)

    def request_body(self, *, responder=16, initiator=16, retry=7, rnr=7, pkey=0xFFFF,
                     timeout=19, mtu_code=None, transport=0, service=None, here=None, there=None,
                     cma_here=None, cma_there=None, cma_version=0, tclass=0, qpn=None,
                     response=20, retries=15, flow=0, hops=64, alternate=b""):
        """A REQ. The defaults are what librdmacm fills in, bar a shorter time in timewait: the
        ACK timeout, two seconds, is longer than we are kept from answering."""
        here, there = here or self.peer.ip, there or self.wire.ip_for(self.peer.ip)
        code = mtu_code or {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[self.mtu]
        service = (0x0000000001060000 | self.port) if service is None else service
        body = struct.pack("!I4xQQ4xI", self.local_id, service, self.peer.guid, 0)
        body += (qpn or self.qpn).to_bytes(3, "big") + bytes([responder])
        body += bytes(3) + bytes([initiator]) + bytes(3) + bytes([response << 3 | transport << 1])
        body += self.receive_psn.to_bytes(3, "big") + bytes([response << 3 | retry])
        body += struct.pack("!HBB", pkey, code << 4 | rnr, retries << 4)
        body += struct.pack("!HH16s16sIBBBB", 0, 0, gid(here), gid(there), flow << 12, tclass, hops,
                            0, timeout << 3)
        body += alternate.ljust(44, b"\0")
        version = 6 if ":" in self.peer.ip else 4
        field = [packed(a).rjust(16, b"\0") for a in (cma_here or here, cma_there or there)]
        body += struct.pack("!BBH16s16s", cma_version, version << 4, 0xABCD, *field)
        return (body + self.private[:56]).ljust(232, b"\0")

    def request(self, **changes):
        mad_changes = {key: changes.pop(key) for key in ("mad_pkey", ) if key in changes}
        self.mad(REQ, self.request_body(**changes), pkey=mad_changes.get("mad_pkey", 0xFFFF))

    def take_reply(self):
        """Waits for the REP and reads it, or raises Refused."""
        def found():
            for mad in self.wire.mads:
                if mad.remote_id == self.local_id and mad.attribute in (REP, REJ):
                    self.wire.mads.remove(mad)
                    return mad
            return None
        mad = self.wire.wait(found, "REP or REJ")
        if mad.attribute == REJ:
            raise Refused(mad)
        self.read_reply(mad)

    def read_reply(self, mad):
        self.rep, self.open = mad, True
        self.remote_id = mad.local_id
        body = mad.body
        self.remote_qpn = int.from_bytes(body[12:15], "big")
        self.psn = int.from_bytes(body[20:23], "big")
        self.responder, self.initiator = body[24], body[25]
        self.window = Window(mad.private)

    def disconnect(self):
        """DREQ and its DREP, which comes even when the daemon knows the connection no more."""
        self.open = False
        self.mad(DREQ, self.ids() + self.remote_qpn.to_bytes(3, "big"))
        self.wire.mad(DREP, self.local_id, "DREP")

    # --- requests

    def post(self, opcode, extension=b"", payload=b"", *, psn=None, advance=1, frame=None, **flags):
        """Sends a request packet at the next PSN, or at another without moving on."""
        at = self.psn if psn is None else psn
        pad = flags.pop("pad", -len(payload) % 4)
        flags.setdefault("ack", True)
        qpn = flags.pop("qpn", self.remote_qpn)
        self.peer.send(bth(opcode, qpn, at, pad=pad, **flags) + extension + payload + bytes(pad),
                       **{"sport": self.sport, **(frame or {})})
        if psn is None:
            self.psn = self.psn + advance & 0xFFFFFF

    def at(self, offset):
        return self.window.address + offset

    def post_write(self, offset, data, **options):
        token = options.pop("token", self.window.token)
        length = options.pop("length", len(data))
        self.post(WRITE_ONLY, reth(self.at(offset), token, length), data, **options)

    def post_read(self, offset, length, **options):
        token = options.pop("token", self.window.token)
        packets = max(1, -(-length // self.mtu))
        self.post(READ_REQUEST, reth(self.at(offset), token, length), advance=packets, **options)

    def reply(self):
        """The daemon's next packet for this queue pair."""
        return self.wire.wait(lambda: self.wire.inbox[self.qpn] and
                              self.wire.inbox[self.qpn].popleft(), "answer")

    def replies(self):
        """All that it has sent, once everything has been dealt with."""
        self.wire.barrier()
        got = list(self.wire.inbox[self.qpn])
        self.wire.inbox[self.qpn].clear()
        return got

    def expect_ack(self, psn, msn=None):
        got = self.reply()
        expect((got.opcode, got.syndrome & 0x60, got.psn) == (ACK, 0, psn),
               f"expected ACK of {psn:#x}, got {got}")
        if msn is not None:
            expect_equal(got.msn, msn, "MSN")
        return got

    def expect_nak(self, syndrome, psn):
        got = self.reply()
        expect((got.opcode, got.syndrome, got.psn) == (ACK, syndrome, psn),
               f"expected NAK {syndrome:#x} of {psn:#x}, got {got}")
        expect_equal(len(got.payload), 0, "bytes behind the AETH of a NAK")

    def write(self, offset, data):
        psn = self.psn
        self.post_write(offset, data)
        return self.expect_ack(psn)

    def read(self, offset, length):
        psn, start = self.psn, len(self.wire.inbox[self.qpn])
        expect_equal(start, 0, f"packets that nobody asked for: {self.wire.inbox[self.qpn]}")
        self.post_read(offset, length)
        return self.take_read(psn, length)

    def take_read(self, psn, length):
        """The responses to a READ: opcodes, PSNs and lengths must be exact."""
        packets = max(1, -(-length // self.mtu))
        data = b""
        for number in range(packets):
            got = self.reply()
            last = number == packets - 1
            opcode = (READ_ONLY if packets == 1 else READ_FIRST if number == 0 else
                      READ_LAST if last else READ_MIDDLE)
            expect((got.opcode, got.psn) == (opcode, psn + number & 0xFFFFFF),
                   f"expected response {opcode:#x} at {psn + number:#x}, got {got}")
            data += got.payload
        expect_equal(len(data), length, "bytes of the READ")
        return data

    def atomic(self, opcode, offset, swap_add, compare=0):
        psn = self.psn
        self.post(opcode, atomic_eth(self.at(offset), self.window.token, swap_add, compare))
        got = self.reply()
        expect((got.opcode, got.psn) == (ATOMIC_ACK, psn), f"expected an atomic's answer: {got}")
        return got.original

    def ask(self, *, access=0, offset=0, length=0, name=b"", psn=None):
        """ORQ1 by SEND; the answer's window."""
        self.post(SEND_ONLY, b"", orq1(access, offset, length, name), psn=psn)
        return self.take_answer()

    def take_answer(self):
        """The ORX1 that comes by SEND; it is acknowledged."""
        while True:
            got = self.reply()
            if got.opcode == SEND_ONLY:
                break
            expect(got.opcode == ACK and got.syndrome & 0x60 == 0, f"expected ORX1, got {got}")
        self.had(got)
        return Window(got.payload)

    def had(self, answer):
        """Acknowledges an ORX1; what lies here of it once more, since we were late, is no news."""
        self.answered_psn = answer.psn
        self.acknowledge(answer.psn)
        inbox = self.wire.inbox[self.qpn]
        some = [packet for packet in inbox if not self.wire.had_before(packet)]
        inbox.clear()
        inbox.extend(some)

    def acknowledge(self, psn, syndrome=0x1F):
        """An ACK or NAK for a request of the daemon's."""
        self.peer.send(bth(ACK, self.remote_qpn, psn) + struct.pack("!I", syndrome << 24 | 1),
                       sport=self.sport)


class Window:
    """An ORX1."""

    def __init__(self, data):
        magic, version, self.access, zero, self.address, self.length, self.token, self.code = \
            struct.unpack("!IBBHQQII", data[:32])
        expect_equal((magic, version, zero), (0x4F525831, 1, 0), "head of ORX1")
        self.token_bytes = data[24:28]


def orq1(access=0, offset=0, length=0, name=b"", *, magic=0x4F525131, version=1, zero=0):
    return struct.pack("!IBBHQQ24s", magic, version, access, zero, offset, length, name)


class Refused(Exception):
    """A REJ in place of a REP."""

    def __init__(self, mad):
        super().__init__(f"REJ, reason {mad.reason}")
        self.mad, self.reason = mad, mad.reason
        self.magic, self.code = struct.unpack("!II", mad.private[:8])
