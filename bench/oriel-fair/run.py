#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Short READs beside long ones: two daemons on a memif, a target, the table of doc/performance.md.

Usage: run.py BUILD-DIRECTORY [SECONDS]   (root: it makes namespaces of its own)

The generator sleeps between two answers and is scheduled before the daemons' polling workers, as if
it had a processor of its own; what is measured is the daemons' part.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../tests/integration"))
import rig  # pylint: disable=wrong-import-position

ROWS = (  # readers, bytes of a READ, READs under way
    (0, 64 << 20, 4), (1, 64 << 20, 4), (4, 64 << 20, 4), (16, 64 << 20, 4), (1, 1 << 30, 1))


def measure(client, seconds):
    for number, (readers, size, depth) in enumerate(ROWS):
        arguments = ["chrt", "-f", "1", f"{rig.build_root()}/bench/oriel-fair",
                     "--export", "10.66.0.1:7471", "--readers", str(readers), "--size", str(size),
                     "--tx-depth", str(depth), "--duration", str(seconds)] + ["--head"] * (number == 0)
        subprocess.run(arguments, env={**os.environ, "ORIEL_SOCKET": client.socket}, check=True)


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    rig.enter_world()
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    server = rig.Daemon("a", rig.memif("m", "server"), "10.66.0.1/24")
    rig.Target("target", server, "[export a]\nlisten = 10.66.0.1:7471\nsize = 1G\n")
    client = rig.Daemon("b", rig.memif("m", "client"), "10.66.0.2/24", number=1)
    rig.until(lambda: client.port()["link"] == "up", "the link comes up")
    try:
        measure(client, seconds)
    finally:
        for process in reversed(list(rig.Process.running)):
            process.kill()


if __name__ == "__main__":
    main()
