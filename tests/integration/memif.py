# SPDX-License-Identifier: BSD-3-Clause
"""A client of the memif protocol that comes, floods and leaves as it likes."""
import array
import mmap
import os
import socket
import struct
import time

import rig

HELLO, INIT, REGION, RING, CONNECT, CONNECTED, DISCONNECT = range(2, 9)
ACK = 1
COOKIE = 0x3E31F20
SLOTS = 1024
REGION_BYTES = 1 << 20
OUT, IN, BUFFER = 0, 32768, 65536  # both rings and the one buffer in the region
HEAD, TAIL, DESCRIPTORS = 6, 64, 128  # in a ring


class Memif:
    """One connection. Every slot of the ring to the server names the same buffer."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.settimeout(rig.PATIENCE)
        self.memory = None

    def expect(self, kind):
        message = self.socket.recv(128)
        if len(message) != 128 or struct.unpack_from("<H", message)[0] != kind:
            raise ConnectionError(f"expected message {kind}, got {message[:40]!r}")

    def send(self, kind, body=b"", descriptor=None):
        rights = []
        if descriptor is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        self.socket.sendmsg([(struct.pack("<H", kind) + body).ljust(128, b"\0")], rights)

    def join(self, length):
        """The handshake; frames will say that they are `length` bytes long."""
        self.expect(HELLO)
        self.send(INIT, struct.pack("<HIB", 0x200, 0, 0))
        self.expect(ACK)
        descriptor = os.memfd_create("region")
        os.ftruncate(descriptor, REGION_BYTES)
        self.memory = mmap.mmap(descriptor, REGION_BYTES)
        for ring in (OUT, IN):
            struct.pack_into("<IHH", self.memory, ring, COOKIE, 1, 0)
            self.memory[ring + DESCRIPTORS:ring + DESCRIPTORS + 16 * SLOTS] = \
                struct.pack("<HHIII", 0, 0, length, BUFFER, 0) * SLOTS
        self.send(REGION, struct.pack("<HQ", 0, REGION_BYTES), descriptor)
        os.close(descriptor)
        self.expect(ACK)
        for ring, to_server in ((OUT, 1), (IN, 0)):
            event = os.eventfd(0)
            self.send(RING, struct.pack("<HHHIBH", to_server, 0, 0, ring, 10, 0), event)
            os.close(event)
            self.expect(ACK)
        self.send(CONNECT)
        self.expect(CONNECTED)

    def flood(self, seconds):
        """Keeps the ring full."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tail, = struct.unpack_from("<H", self.memory, OUT + TAIL)
            struct.pack_into("<H", self.memory, OUT + HEAD, (tail + SLOTS - 1) & 0xffff)

    def leave(self):
        self.socket.close()
        if self.memory:
            self.memory.close()
