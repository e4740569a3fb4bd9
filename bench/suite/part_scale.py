# SPDX-License-Identifier: BSD-3-Clause
"""P5: one daemon with very many queue pairs and windows, of which each run uses some."""
from .link import Orield, rate
from .samples import Measure, Part

QPS, WINDOWS = 10_000, 1_000_000
COUNTS = {"qps": (10, 100, 1000), "windows": (10, 1000, 10_000, 100_000)}
QUICK_COUNTS = {"qps": (100,), "windows": (1000,)}


class ScalePart(Part):
    name = "scale"
    keys = {"P5", "counts"}

    def prepare(self, world, wanted):
        self.world = world
        self.wanted = wanted
        self.windows = WINDOWS // 10 if world.quick else WINDOWS  # making them takes its time
        self.orield = Orield(world, "scale")
        self.orield.sink("many", "-q", str(QPS), "-w", str(self.windows), "-s", "64", patience=240)
        self.orield.pause()

    def measures(self):
        every = [Measure("scale_one", {"P5", "counts"}, lambda: self.writes(1, 1)),
                 Measure(f"scale_qps{QPS}", {"P5", "counts"}, lambda: self.writes(QPS, 1)),
                 Measure(f"scale_windows{self.windows}", {"P5", "counts"},
                         lambda: self.writes(1, self.windows)),
                 Measure("scale_both", {"P5"}, lambda: self.writes(QPS, self.windows))]
        between = QUICK_COUNTS if self.world.quick else COUNTS
        every += [Measure(f"count_qps{n}", {"counts"}, lambda n=n: self.writes(n, 1), 1)
                  for n in between["qps"]]
        every += [Measure(f"count_windows{n}", {"counts"}, lambda n=n: self.writes(1, n), 1)
                  for n in between["windows"]]
        return [measure for measure in every if measure.keys & self.wanted]

    def writes(self, qps, windows):
        """The same number under way in any case, as far as it goes."""
        outstanding = max(16, 1024 // qps)
        return rate(self.orield.flood("many", "--random", "-q", str(qps), "--windows",
                                      str(windows), "-t", str(outstanding)))
