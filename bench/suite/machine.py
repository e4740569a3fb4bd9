# SPDX-License-Identifier: BSD-3-Clause
"""What machine this is, and how quiet it was."""
import os
import platform
import re
import statistics
import subprocess
import time

from . import world


def describe(build, cores):
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        text = file.read()
    model = re.search(r"^model name\s*: (.*)$", text, re.M)
    return {
        "processor": model.group(1) if model else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in text.split(),
        "kernel": platform.release(),
        "dpdk": version(["pkg-config", "--modversion", "libdpdk"]),
        "compiler": version(["gcc", "-dumpfullversion"]),
        "hugepages_total": world.huge_pages("Total"),
        "hugepages_free": world.huge_pages(),
        "oriel": version([f"{build}/app/orield", "--version"]),
        "cores": cores._asdict(),
    }


def version(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return (done.stdout or done.stderr).strip().splitlines()[0] if done.stdout else "unknown"


class Noise:
    """A loop that takes as long every time on an idle core; what it takes more is others' doing."""

    def __init__(self, core):
        self.core = core
        self.seconds = []
        self.stolen = stolen_ticks()
        self.load_before = os.getloadavg()[0]

    def listen(self):
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.core})
        for _ in range(30):
            start = time.perf_counter()
            for _ in range(40000):
                pass
            self.seconds.append(time.perf_counter() - start)
        os.sched_setaffinity(0, allowed)

    def summary(self):
        ordered = sorted(self.seconds)
        if not ordered:
            return {}
        median = statistics.median(ordered)
        at = lambda share: ordered[min(len(ordered) - 1, int(len(ordered) * share))]  # noqa: E731
        return {
            "loop_ms_median": median * 1e3,
            "loop_spread_p5_p95": (at(0.95) - at(0.05)) / median,
            "loop_worst": ordered[-1] / median,
            "loops": len(ordered),
            "load_before": self.load_before,
            "load_after": os.getloadavg()[0],
            "stolen_ticks": stolen_ticks() - self.stolen,
        }


def stolen_ticks():
    """Of all processors, by the hypervisor."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8])
