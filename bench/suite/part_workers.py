# SPDX-License-Identifier: BSD-3-Clause
"""Two workers on two processors, the generator on either of them, beside one on one."""
from .link import Orield, rate
from .samples import Measure, Part


class WorkersPart(Part):
    name = "workers"
    keys = {"workers"}

    def prepare(self, world, wanted):
        """
        The generator takes its time from the worker it shares with, in each case: one worker shares
        its only processor, two have one of their own between them.
        """
        cores = world.cores
        self.one = Orield(world, "one", workers=cores.generator)
        self.one.sink("plain", "-q", "8", "-w", "1")
        self.one.pause()
        self.two = Orield(world, "two", workers=f"{cores.worker},{cores.generator}")
        self.two.sink("plain", "-q", "8", "-w", "1")
        self.two.pause()

    def measures(self):
        return [Measure("workers_one", self.keys,
                        lambda: rate(self.one.flood("plain", "-q", "8", "-a", "16"))),
                Measure("workers_two", self.keys,
                        lambda: rate(self.two.flood("plain", "-q", "8", "-a", "16")))]
