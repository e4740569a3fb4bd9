#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""oriel-perf in-process against through a daemon, in turns, to the same target: medians and ratios.

Usage: in-process.py BUILD-DIRECTORY [ROUNDS]   (root: it makes namespaces of its own)

The target and its daemon are on one processor; on the other either oriel-perf alone, polling, or
oriel-perf and the daemon that it uses, taking turns by sleeping. Each round measures both ways
one behind the other. All have real-time priority, as if the machine were theirs, so runs are short.
"""
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../tests/integration"))
import rig  # pylint: disable=wrong-import-position

SECONDS = "0.2"
FIGURES = (  # what, arguments, key, better when it is smaller
    ("8 B write, p50, us", ["-s", "8", "write_lat"], "p50", True),
    ("8 B write, p99, us", ["-s", "8", "write_lat"], "p99", True),
    ("8 B read, p50, us", ["-s", "8", "read_lat"], "p50", True),
    ("8 B writes/s", ["-s", "8", "write"], "messages_per_second", False),
    ("64 KiB write, MiB/s", ["-s", "65536", "-t", "16", "write"], "bytes_per_second", False),
    ("64 KiB read, MiB/s", ["-s", "65536", "-t", "16", "read"], "bytes_per_second", False))
PORT = """[daemon]
hugepages = no
[port link]
device = {device}
ip = 10.66.1.2/24
"""
SECOND = """[port second]
device = net_memif1,role=server,socket=/run/it/second.memif,socket-abstract=no
ip = 10.66.1.1/24
"""


def run(where, arguments):
    result = subprocess.run(
        ["chrt", "-r", "2", "taskset", "-c", str(rig.cpu(1)), rig.program("oriel-perf"), "--json",
         "-D", SECONDS, *where, *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{where} {arguments}: {result.stderr}")
    return json.loads(result.stdout)["results"][0]


def value(result, key):
    if key.startswith("p"):
        return result["latency_us"][key]
    return result[key] / (1 << 20) if key == "bytes_per_second" else result[key]


def measure(ways, rounds):
    found = {}
    for _ in range(rounds):
        for arguments in dict.fromkeys(tuple(figure[1]) for figure in FIGURES):
            for way, where in ways.items():
                found.setdefault((arguments, way), []).append(run(where, list(arguments)))
    for name, arguments, key, smaller in FIGURES:
        medians = [statistics.median(value(result, key) for result in found[tuple(arguments), way])
                   for way in ways]
        ratio = medians[1] / medians[0] if smaller else medians[0] / medians[1]
        print(f"| {name} | {medians[0]:.1f} | {medians[1]:.1f} | {ratio:.1f} |", flush=True)


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    rig.enter_world()
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    server = rig.Daemon("a", rig.memif("m", "server"), "10.66.0.1/24", port=SECOND)
    rig.Target("target", server, "[export a]\nlisten = 10.66.0.1:7471, 10.66.1.1:7471\nsize = 8M\n"
               "access = read,write\n")
    client = rig.Daemon("b", rig.memif("m", "client"), "10.66.0.2/24", number=1)
    rig.until(lambda: client.port()["link"] == "up", "the link comes up")
    own = rig.write_file("own.conf", PORT.format(
        device="net_memif0,role=client,socket=/run/it/second.memif,socket-abstract=no"))
    print("| | in-process | through a daemon | times as good |\n| --- | ---: | ---: | ---: |")
    try:
        measure({"in-process": ["--poll", "--in-process", own, "--export", "10.66.1.1:7471"],
                 "daemon": ["-d", client.socket, "--export", "10.66.0.1:7471"]}, rounds)
    finally:
        for process in reversed(list(rig.Process.running)):
            process.kill()


if __name__ == "__main__":
    main()
