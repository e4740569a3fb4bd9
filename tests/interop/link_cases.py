# SPDX-License-Identifier: BSD-3-Clause
"""The link itself: jumbo frames, ends that do not agree on the MTU, a VLAN."""
from frames import is_roce, pcap_end, pcap_frames, vlan
from rig import Failure
from target_cases import ping

JUMBO = 4200    # the least that a path MTU of 4096 fits in, IPv6 and VLAN included, is 4188
VLAN = 100
IP = "/usr/bin/ip"  # busybox has one of its own, which is too old
OUT = "send write read serve pipeline invalidate".split()
TARGET = "data atomic pipeline sendinv".split()


def run(rig, report):
    """Daemon and guest are on a link of 1500 bytes when this begins."""
    mixed(rig, report)
    for name, tag in (("jumbo", 0), ("vlan", VLAN)):
        begin = pcap_end(rig.pcap) if rig.pcap else 0
        if change(rig, report, name, JUMBO, tag):
            run_both_ways(rig, report, name, 4096)
            if rig.pcap:
                report.test(f"{rig.link} {name} frames", frames, rig, begin, tag)


def mixed(rig, report):
    """The daemon on 1500 bytes, the guest on more."""
    rig.last("mtu", set_guest_mtu, rig, JUMBO)
    for version in (4, 6):
        where = f"{rig.link} mixed ipv{version}"
        report.test(f"{where} too large an MTU", too_large, rig, version)
        for words in ("send", "write", "read", "serve"):
            report.test(f"{where} out {words}", rig.connect_out, version, words)


def too_large(rig, version):
    """CM reject reason 26, invalid path MTU: Linux proposes what its own link takes."""
    said = rig.guest(f"export-client -a {rig.daemon_address[version]} data || true")
    if "status 26" not in said:
        raise Failure(f"expected a reject with reason 26\n{said}")


def set_guest_mtu(rig, mtu):
    rig.guest(f"{IP} link set eth0 mtu {mtu}")


def run_both_ways(rig, report, name, mtu):
    for version in (4, 6):
        where = f"{rig.link} {name} ipv{version}"
        report.test(f"{where} ping", ping, rig, version, mtu)
        for words in TARGET:
            report.test(f"{where} {words}", rig.client, version, words)
        for words in OUT:
            report.test(f"{where} out {words}", rig.connect_out, version, words, mtu=mtu)


def add_vlan(rig, mtu, tag):
    rig.guest(f"{IP} link add link eth0 name eth0.{tag} type vlan id {tag}")
    rig.guest(f"{IP} addr add {rig.guest_address[4]}/24 dev eth0.{tag}")
    rig.guest(f"{IP} addr add {rig.guest_address[6]}/64 dev eth0.{tag} nodad")
    rig.guest(f"{IP} link set eth0.{tag} mtu {mtu - 4} up")


def frames(rig, begin, tag):
    """All of it was on the VLAN, or on none, and full frames went both ways."""
    longest = {}
    for frame in pcap_frames(rig.pcap, begin):
        if not is_roce(frame):
            continue
        if (vlan(frame) or 0) != tag:
            raise Failure(f"a frame of VLAN {vlan(frame)}: {frame[:80].hex()}")
        longest[frame[6:12]] = max(longest.get(frame[6:12], 0), len(frame))
    if len(longest) != 2 or min(longest.values()) < 4096:
        raise Failure(f"longest RoCE frames by sender: {longest}")


def change(rig, report, name, mtu, tag):
    """Start daemon and target on another kind of link, and bring the guest onto it."""
    try:
        rig.end_both()
        rig.configure(mtu, tag)
        rig.start_both()
        rig.last("mtu", set_guest_mtu, rig, mtu)
        if tag:
            rig.last("vlan", add_vlan, rig, mtu, tag)
        rig.client(4, "wait 60")
    except Failure as failure:
        report.result(f"{rig.link} {name} set-up", str(failure))
        return False
    report.result(f"{rig.link} {name} set-up")
    return True
