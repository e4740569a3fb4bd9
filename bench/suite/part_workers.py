# SPDX-License-Identifier: BSD-3-Clause
"""Two workers on two processors beside one on one: the second shares with the generator."""
from .link import Orield, rate
from .samples import Measure, Part


class WorkersPart(Part):
    name = "workers"
    keys = {"workers"}

    def prepare(self, world, wanted):
        """With two processors the generator shares one with the second worker."""
        cores = world.cores
        self.one = Orield(world, "one", workers=cores.worker)
        self.one.sink("plain", "-q", "8", "-w", "1")
        self.one.pause()
        self.two = Orield(world, "two", workers=f"{cores.worker},{cores.generator}")
        self.two.sink("plain", "-q", "8", "-w", "1")
        self.two.pause()

    def measures(self):
        return [Measure("workers_one", self.keys,
                        lambda: rate(self.one.flood("plain", "-q", "8"))),
                Measure("workers_two", self.keys,
                        lambda: rate(self.two.flood("plain", "-q", "8", "--queues", "2")))]
