# SPDX-License-Identifier: BSD-3-Clause
"""Whether the guest itself still works: two kernels and QEMU are asked, nothing of ours is."""
import socket
import time

ALL_PROTOCOLS = 3
EXPERIMENT = b"\x88\xb5"    # the EtherType that IEEE 802 leaves to local experiments
FRAMES = 20
SECONDS = 5
RPING_PORT = 7300
# Both ends are the guest's own, so no frame leaves it.
RPING = (f"(timeout 30 rping -s -a {{0}} -p {RPING_PORT} -C 5 &) ; sleep 1; "
         f"timeout 30 rping -c -a {{0}} -p {RPING_PORT} -C 5 && echo good; true")


def what_is_broken(rig, tap):
    """In words, or None."""
    return (tap and port(rig, tap)) or rdma(rig)


def port(rig, tap):
    """Frames that we put onto the tap are not counted in the guest, or those that it sends do
    not come out."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as wire:
        wire.bind((tap, 0))
        before = counted(rig)
        for _ in range(FRAMES):
            wire.send(b"\xff" * 6 + b"\x02\0\0\0\0\1" + EXPERIMENT + bytes(46))
        # Broadcasts, which leave no trace in what the guest counts of ICMP.
        rig.guest(f"arping -U -c 3 -w 5 -I eth0 {rig.untagged[4]}; true")
        if not comes_out(wire):
            return "its port lets no frame out"
    came = counted(rig) - before
    return None if came >= FRAMES else f"its port let {came} of {FRAMES} frames in"


def rdma(rig):
    """The guest's kernel does not talk to itself."""
    said = rig.guest(RPING.format(rig.guest_address[4]), timeout=90)
    if "good" in said:
        return None
    return "its RDMA does not reach itself: " + "; ".join(said.splitlines())


def counted(rig):
    return int(rig.guest("cat /sys/class/net/eth0/statistics/rx_packets"))


def comes_out(wire):
    """The tap's driver takes what the guest sends for received, and what others send for sent."""
    deadline = time.monotonic() + SECONDS
    while (left := deadline - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            if wire.recvfrom(65536)[1][2] != socket.PACKET_OUTGOING:
                return True
        except socket.timeout:
            break
    return False
