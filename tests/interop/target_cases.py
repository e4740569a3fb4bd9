# SPDX-License-Identifier: BSD-3-Clause
"""Stock clients against oriel-target, and what happens when one of the three dies."""
import os
import re
import time

from frames import is_roce, is_unreachable, pcap_frames
from rig import PATIENCE, Failure

REFUSALS = """below above cross wrap wrongkey foreigntoken invalidated readonly writeonly
 noatomic atomicbounds""".split()


# ---- tests ----

def run(rig, report):
    before = objects_at_rest(rig)
    for version in (4, 6):
        where = f"{rig.link} ipv{version}"
        report.test(f"{where} ping", ping, rig, version)
        for words in ("data", "atomic", "pipeline", "reject", "rebind", "sendinv",
                      *[f"refuse {name}" for name in REFUSALS], "cycles 100"):
            report.test(f"{where} {words}", rig.client, version, words)
        report.test(f"{where} dying client", dying_client, rig, version)
    report.test(f"{rig.link} nothing left behind", rig.must_have, before)
    report.test(f"{rig.link} no ICMP unreachable", no_unreachable, rig)
    report.test(f"{rig.link} target killed", target_killed, rig)
    report.test(f"{rig.link} daemon killed", daemon_killed, rig)
    for version in (4, 6):
        report.test(f"{rig.link} ipv{version} data after the restart", rig.client, version, "data")


def run_few(rig, report):
    for version in (4, 6):
        where = f"{rig.link} ipv{version}"
        report.test(f"{where} ping", ping, rig, version)
        for words in ("data", "atomic", "refuse above", "cycles 20"):
            report.test(f"{where} {words}", rig.client, version, words)


def ping(rig, version, longest=1400):
    program = {4: "ping", 6: "ping6"}[version]
    for size in (56, longest):
        said = rig.guest(f"{program} -c 2 -s {size} -w 40 {rig.daemon_address[version]}")
        if "2 packets received" not in said:
            raise Failure(said)


def dying_client(rig, version):
    for _ in range(3):
        rig.client(version, "die")
    rig.client(version, "cycles 3")
    rig.must_run("orield")
    rig.must_run("oriel-target")


def objects_at_rest(rig, seconds=PATIENCE):
    """What target and daemon hold with no client connected."""
    deadline = time.monotonic() + seconds
    while (now := rig.objects())["connections"] or now["qps"] or now["mws"]:
        if time.monotonic() > deadline:
            raise Failure(f"the first client's connection does not end: {now}")
        time.sleep(0.2)
    return now


def target_killed(rig):
    """The daemon disconnects the dead target's peers, lives on, and serves the next target. Before
    that the target has asked the idle peer whether it is there, and got its answers."""
    rig.configure(probe=1)
    rig.end("oriel-target")
    rig.start("oriel-target")
    rig.client(4, "wait 60")
    asked = rig.count("tx_write")
    rig.guest(f"export-client -a {rig.daemon_address[4]} hold 90 >/tmp/hold 2>&1 &")
    wait_for_line(rig, "/tmp/hold", "# holding")
    deadline = time.monotonic() + PATIENCE
    while rig.count("tx_write") < asked + 3:    # each but the first comes behind an answer
        if time.monotonic() > deadline:
            raise Failure(f"an idle peer was not asked: {rig.log('oriel-target')}")
        time.sleep(0.2)
    wait_for_line(rig, "/tmp/hold", "# holding")
    rig.kill("oriel-target")
    try:
        wait_for_line(rig, "/tmp/hold", "ok hold")
        rig.must_run("orield")
    finally:
        rig.start("oriel-target")
    rig.client(4, "wait 60")
    rig.client(4, "data")


def wait_for_line(rig, path, line, seconds=70):
    deadline = time.monotonic() + seconds
    said = ""
    while time.monotonic() < deadline:
        said = rig.guest(f"cat {path}")
        if line in said.splitlines():
            return
        if "FAIL" in said:
            break
        time.sleep(0.5)
    raise Failure(f"expected '{line}' from the guest, got:\n{said}")


def daemon_killed(rig):
    """The target connects again by itself, to the daemon's successor, with its data intact."""
    rig.client(4, "fill 7")
    rig.kill("orield")
    time.sleep(1)
    rig.must_run("oriel-target")
    if os.path.exists(rig.vhost):
        os.unlink(rig.vhost)    # as start_both() does
    rig.start("orield")
    rig.wait_for_daemon()
    rig.client(4, "wait 90")
    rig.client(4, "verify 7")
    rig.client(6, "verify 7")
    rig.must_run("oriel-target")


def no_unreachable(rig):
    """No kernel may think that RoCE is not for it. Asked before the daemon is killed: without
    it the guest's kernel finds no neighbour, and tells its own programs by ICMP."""
    said = rig.guest("cat /proc/net/snmp /proc/net/snmp6")
    names, values = [line.split()[1:] for line in said.splitlines() if line.startswith("Icmp:")]
    counters = dict(zip(names, values))
    counters.update(re.findall(r"^(Icmp6\w+)\s+(\d+)$", said, re.M))
    wrong = [f"guest counts {name} = {counters[name]}"
             for name in ("InDestUnreachs", "OutDestUnreachs", "Icmp6InDestUnreachs",
                          "Icmp6OutDestUnreachs") if counters.get(name, "0") != "0"]
    if rig.pcap:
        frames = list(pcap_frames(rig.pcap))
        if not any(is_roce(frame) for frame in frames):
            raise Failure(f"{rig.pcap} shows no RoCE at all")
        wrong += [f"frame {number}: {frame.hex()}" for number, frame in enumerate(frames, 1)
                  if is_unreachable(frame)]
    if wrong:
        raise Failure("\n".join(wrong[:10]))
