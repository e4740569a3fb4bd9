#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Many open connections: what the busy ones reach beside idle ones, and the memory of an idle one.

Usage: run.py BUILD-DIRECTORY [SECONDS]   (root: it makes namespaces of its own)
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../tests/integration"))
import rig  # pylint: disable=wrong-import-position

MANY = 10000


def resident(process):
    """KiB of the daemon's memory: all, and of that the clients' rings (one segment per queue)."""
    total = rings = 0
    ours = False
    with open(f"/proc/{process.pid}/smaps", encoding="ascii", errors="replace") as file:
        for line in file:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                ours = "oriel-queue" in line
            elif line.startswith("Rss:"):
                size = int(line.split()[1])
                total += size
                rings += size * ours
    return total, rings


def run(daemons, qps, seconds):
    """Starts, looks at the first daemon's memory while all are idle, returns what it said."""
    process = subprocess.Popen(
        ["chrt", "-f", "1", f"{rig.build_root()}/bench/oriel-scale", "--socket", daemons[0].socket,
         "--peer-socket", daemons[1].socket, "--qps", str(qps), "--active", "64",
         "--duration", str(seconds), "--pause"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True)
    rig.expect(process.stdout.readline() == "open\n", "all connections are open")
    memory = resident(daemons[0])
    said, _ = process.communicate("go\n")
    rig.expect(process.returncode == 0, "oriel-scale succeeds")
    return memory, said.strip()


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    rig.enter_world()
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    daemons = [rig.Daemon("a", rig.memif("m", "server"), "10.66.0.1/24"),
               rig.Daemon("b", rig.memif("m", "client"), "10.66.0.2/24", number=1)]
    rig.until(lambda: daemons[1].port()["link"] == "up", "the link comes up")
    try:
        run(daemons, 64, 1)  # whatever comes with the first traffic is no connection's
        few, said = run(daemons, 64, seconds)
        print(f"- {said}")
        many, said = run(daemons, MANY, seconds)
        print(f"- {said}")
        per_qp = [(many[i] - few[i]) * 1024 / (MANY - 64) for i in range(2)]
        print(f"- memory of one more connection in the daemon: {per_qp[0] - per_qp[1]:.0f} bytes, "
              f"and {per_qp[1]:.0f} bytes of its client's rings")
    finally:
        for process in reversed(list(rig.Process.running)):
            process.kill()


if __name__ == "__main__":
    main()
