# SPDX-License-Identifier: BSD-3-Clause
"""The link itself: jumbo frames, ends that do not agree on the MTU, a VLAN."""
import fault_cases
import frame_cases
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
        since = frame_cases.Since(rig)
        if change(rig, report, name, JUMBO, tag):
            run_both_ways(rig, report, name, 4096, TARGET, OUT)
            frame_cases.look(rig, report, f"{name} frames", since, mtu=4096, tag=tag)
            if rig.pcap:
                fault_cases.run_few(rig, report, name, 4096, tag)
    since = frame_cases.Since(rig)
    if rig.pcap and change(rig, report, "small vlan", 1500, VLAN):
        for version in (4, 6):
            where = f"{rig.link} small vlan ipv{version}"
            report.test(f"{where} pipeline", rig.client, version, "pipeline")
            report.test(f"{where} out pipeline", rig.connect_out, version, "pipeline")
        frame_cases.look(rig, report, "small vlan frames", since, mtu=1024, tag=VLAN)


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


def run_both_ways(rig, report, name, mtu, target, out):
    for version in (4, 6):
        where = f"{rig.link} {name} ipv{version}"
        report.test(f"{where} ping", ping, rig, version, mtu)
        for words in target:
            report.test(f"{where} {words}", rig.client, version, words)
        for words in out:
            report.test(f"{where} out {words}", rig.connect_out, version, words, mtu=mtu)


def add_vlan(rig, mtu, tag):
    rig.guest(f"{IP} link show eth0.{tag} >/tmp/vlan 2>&1 || "
              f"{IP} link add link eth0 name eth0.{tag} type vlan id {tag}")
    rig.guest(f"{IP} addr replace {rig.guest_address[4]}/24 dev eth0.{tag}")
    rig.guest(f"{IP} addr replace {rig.guest_address[6]}/64 dev eth0.{tag} nodad")
    rig.guest(f"{IP} link set eth0.{tag} mtu {mtu - 4} up")


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
