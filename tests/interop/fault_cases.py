# SPDX-License-Identifier: BSD-3-Clause
"""Frames lost, doubled, reordered and corrupted each way, by the daemon's own faults: all that
completes on a good link completes, with equal data."""
import json
import re

import frame_cases
from rig import Failure, command

# What is counted as, and what it is, each way, of all frames, ARP and the CM's included.
FAULTS = {
    "loss": (["lost"], ["loss=1%", "seed=1"]),
    "noise": (["duplicated", "reordered", "corrupted"],
              ["duplicate=1%", "reorder=1%", "corrupt=0.1%", "seed=2"]),
}
# A stock client waits seconds for each answer lost, unless told not to: 268 ms.
CLIENT = "-t 16 -l"
TARGET = ["data", "atomic", "pipeline", "sendinv", "cycles 5"]
OUT = ["send", "write", "read", "atomic", "serve", "pipeline", "late", "invalidate", "cycles 5"]
MEBIBYTES = 8

# The same on other links: with few frames, more of them corrupted.
FEW_FAULTS = {
    "loss": (["lost"], ["loss=1%", "seed=3"]),
    "noise": (["duplicated", "reordered", "corrupted"],
              ["duplicate=1%", "reorder=1%", "corrupt=1%", "seed=4"]),
}
FEW_CLIENT = "-t 17 -l"
FEW_TARGET = ["pipeline", "stream 2"]
FEW_OUT = ["write", "read"]


def run(rig, report):
    speed = {}
    streams(rig, report, "no fault", speed)
    for name, (counters, words) in FAULTS.items():
        since = frame_cases.Since(rig)
        rig.last("faults", set_faults, rig, words)
        for version in (4, 6):
            where = f"{rig.link} {name} ipv{version}"
            for words in TARGET:
                report.test(f"{where} {words}", rig.client, version, f"{CLIENT} {words}")
            for words in OUT:
                report.test(f"{where} out {words}", rig.connect_out, version, f"-l {words}")
        streams(rig, report, name, speed)
        report.test(f"{rig.link} {name} happened", happened, rig, counters)
        rig.last("faults", set_faults, rig, ["off"])
        frame_cases.look(rig, report, f"{name} frames", since, mtu=1024, faults=counters)
    for version in (4, 6):
        report.test(f"{rig.link} silence ipv{version} out silent", silence, rig, version)
    for (who, operation), by_fault in speed.items():
        said = ", ".join(f"{name} {figure}" for name, figure in by_fault.items())
        print(f"# {rig.link} {operation} by {who}, MiB/s: {said}")


def run_few(rig, report, link, mtu, tag):
    """Either role over either family meets each fault once in one of them."""
    target = [(4, "loss"), (6, "noise")]
    for name, (counters, words) in FEW_FAULTS.items():
        since = frame_cases.Since(rig)
        rig.last("faults", set_faults, rig, words)
        for version in (4, 6):
            where = f"{rig.link} {link} {name} ipv{version}"
            if (version, name) in target:
                for words in FEW_TARGET:
                    report.test(f"{where} {words}", rig.client, version, f"{FEW_CLIENT} {words}")
            else:
                for words in FEW_OUT:
                    report.test(f"{where} out {words}", rig.connect_out, version, f"-l {words}",
                                mtu=mtu)
        report.test(f"{rig.link} {link} {name} happened", happened, rig, counters)
        rig.last("faults", set_faults, rig, ["off"])
        frame_cases.look(rig, report, f"{link} {name} frames", since, mtu=mtu, tag=tag,
                         faults=counters)


def streams(rig, report, name, speed):
    def measure(who, function, *args):
        said = function(*args)
        for operation, figure in re.findall(r"(WRITE|READ) (\S+) MiB/s", said):
            speed.setdefault((who, operation), {})[name] = figure

    report.test(f"{rig.link} {name} stream", measure, "the stock client", rig.client, 4,
                f"{CLIENT} stream {MEBIBYTES}")
    report.test(f"{rig.link} {name} out stream", measure, "ours", rig.connect_out, 4,
                f"stream {MEBIBYTES}")


def set_faults(rig, words):
    command(rig.programs["orielctl"], "--socket", rig.socket, "fault", "wan0", *words)


def happened(rig, counters):
    said = command(rig.programs["orielctl"], "--socket", rig.socket, "--json", "fault")
    port = next(iter(json.loads(said).values()))
    seen = {f"{way}_{counter}": port[f"{way}_{counter}"] for counter in counters
            for way in ("receive", "transmit")}
    if not all(seen.values()):
        raise Failure(f"frames: {seen}")


def silence(rig, version):
    """Nothing passes any more: requests and the disconnect end by themselves."""
    try:
        rig.connect_out_until("# connected", lambda: set_faults(rig, ["loss=100%"]), version,
                              "silent")
    finally:
        set_faults(rig, ["off"])
