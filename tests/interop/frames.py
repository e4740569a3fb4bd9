# SPDX-License-Identifier: BSD-3-Clause
"""What QEMU recorded of the guest's port."""
import struct

from rig import Failure


def pcap_frames(path, offset=0):
    """From a position in the file on, as pcap_end() gave it."""
    with open(path, "rb") as file:
        if file.read(4) != b"\xd4\xc3\xb2\xa1":
            raise Failure(f"{path} is no little-endian pcap file")
        file.seek(max(24, offset))
        while len(header := file.read(16)) == 16:
            length = struct.unpack("<I", header[8:12])[0]
            frame = file.read(length)
            if len(frame) == length:    # the guest may be writing the last one
                yield frame


def pcap_end(path, offset=0):
    """Behind the last whole frame, looked for from a position on that it gave before."""
    end = max(24, offset)
    for frame in pcap_frames(path, end):
        end += 16 + len(frame)
    return end


def vlan(frame):
    """The VLAN of a tagged frame, else None."""
    if frame[12:14] == b"\x81\x00":
        return int.from_bytes(frame[14:16], "big") & 0xfff
    return None


def ip_payload(frame):
    """(protocol, bytes behind the IP header), for the frames without options we see."""
    if vlan(frame) is not None:
        frame = frame[:12] + frame[16:]
    if frame[12:14] == b"\x08\x00":
        return frame[23], frame[14 + (frame[14] & 15) * 4:]
    if frame[12:14] == b"\x86\xdd":
        return frame[20], frame[54:]
    return None, b""


def is_roce(frame):
    protocol, payload = ip_payload(frame)
    return protocol == 17 and payload[2:4] == struct.pack(">H", 4791)


def is_unreachable(frame):
    protocol, payload = ip_payload(frame)
    return (protocol, payload[:1]) in ((1, b"\x03"), (58, b"\x01"))
