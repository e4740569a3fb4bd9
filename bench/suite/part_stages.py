# SPDX-License-Identifier: BSD-3-Clause
"""P9's grace period, P10, and what each stage costs in time and in instructions."""
import re

from .samples import Measure, Part
from .world import WORK, Failed, run, run_json

COUNTED = ["packet-write-64", "read-64"]  # for P10
STAGES = ["parse", "icrc-verify-write-64", "qp-find-1", "token-hit-1", "transport-write-64",
          "bind-and-invalidate", "ring", "build-64", "idle-poll"]
TIMES = 3200
METHODS = ("fold512", "fold128", "isal", "table")
SIZES = tuple(f"icrc-verify-write-{size}" for size in (64, 256, 1024, 4096))


class StagesPart(Part):
    name = "stages"
    keys = {"P9", "P10", "stages"}

    def prepare(self, world, wanted):
        self.world = world
        self.wanted = wanted

    def measures(self):
        """First what a ratio needs."""
        every = [Measure("grace", {"P9"}, self.grace)]
        for stage in COUNTED:
            every += [
                Measure(f"instructions_{stage}", {"P10"},
                        lambda stage=stage: self.instructions("oriel-micro", stage)),
                Measure(f"instructions_plain_{stage}", {"P10"},
                        lambda stage=stage: self.instructions("oriel-micro-plain", stage))]
        if "stages" not in self.wanted:
            every.append(Measure("stage_bind-and-invalidate", {"P9"}, self.bind))
        every += [Measure("stage", {"stages"}, self.stages),
                  Measure("crossing", {"stages"}, self.crossing)]
        if not self.world.quick:
            every += [Measure(f"icrc_{method}", {"stages"},
                              lambda method=method: self.icrc(method), 1) for method in METHODS]
            every += [Measure(f"instructions_{stage}", {"stages"},
                              lambda stage=stage: self.instructions("oriel-micro", stage))
                      for stage in STAGES]
        return [measure for measure in every if measure.keys & self.wanted]

    def grace(self):
        said = run_json([self.world.program("oriel-micro"), "--grace",
                         "10000" if self.world.quick else "50000", "--json"])
        return {"p50": said["p50_us"], "p99": said["p99_us"], "p999": said["p99_9_us"]}

    def crossing(self):
        """Nanoseconds of an entry's way through a ring to another processor."""
        said = run_json([self.world.program("oriel-micro"), "--crossing",
                         "1000" if self.world.quick else "10000", "--json"])
        return {"p50": said["p50_ns"], "p99": said["p99_ns"]}

    def icrc(self, method):
        """Nanoseconds of a whole packet; what this processor cannot do says so."""
        return self.micro(*SIZES, options=("--icrc", method))

    def bind(self):
        return self.micro("bind-and-invalidate")["bind-and-invalidate"]

    def micro(self, *names, options=()):
        said = run_json([self.world.program("oriel-micro"), *options, "--json", "--rounds",
                         "5" if self.world.quick else "9", *names],
                        core=self.world.cores.worker, timeout=120)
        return {name: result["median_ns"] for name, result in said.items()}

    def stages(self):
        return self.micro()

    def instructions(self, program, stage):
        """Of one time, set-up not counted: 2 N times less N times."""
        return (self.collected(program, stage, 2 * TIMES) -
                self.collected(program, stage, TIMES)) / TIMES

    def collected(self, program, stage, times):
        out = f"{WORK}/callgrind"
        run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--log-file={out}.log",
             self.world.program(program), "--once", str(times), stage], timeout=120)
        with open(f"{out}.log", encoding="utf-8", errors="replace") as file:
            found = re.search(r"Collected : (\d+)", file.read())
        if not found:
            raise Failed(f"callgrind counted nothing in {stage}")
        return int(found.group(1))
