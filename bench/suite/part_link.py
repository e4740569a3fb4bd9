# SPDX-License-Identifier: BSD-3-Clause
"""P1 to P4, P6, P9: one worker behind a memif, beside testpmd behind another."""
import time

from .link import InProcess, Orield, memory_speeds, rate, testpmd
from .samples import Measure, Part
from .world import Failed, awake

WRITE_FRAME = 138  # Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16, 64 bytes, ICRC 4
WRITES = ["-q", "8", "-s", "64"]
READS = ["-q", "32", "-o", "read", "-s", "64"]
LARGE = ["-q", "4", "-s", "65536", "-t", "8", "-a", "4"]
SIZES = (8, 64, 256, 1024, 4096, 16384, 65536)
QUICK_SIZES = (64, 1024, 16384)


class LinkPart(Part):
    name = "link"
    keys = {"P1", "P2", "P3", "P4", "P6", "P9", "idle", "sizes"}

    def prepare(self, world, wanted):
        self.world = world
        self.wanted = wanted
        self.curves = {}
        self.orield = Orield(world, "busy")
        self.orield.sink("plain", "-q", "64", "-w", "1", "-s", "65536", "-m", "1024")
        if wanted & {"P6", "P9"}:
            self.orield.sink("churn", "-q", "8", "-w", "1", "--churn")
        self.orield.pause()
        if wanted & {"P3", "sizes"}:
            self.jumbo = Orield(world, "jumbo", mtu=4300)
            self.jumbo.sink("plain", "-q", "64", "-w", "1", "-s", "65536", "-m", "4096")
            self.jumbo.pause()
            self.jumbo_rxonly = testpmd(world, "rxonly", jumbo=True)
        if wanted & {"P4", "idle"}:
            self.adaptive = Orield(world, "adaptive", idle="adaptive")
            self.adaptive.sink("plain", "-q", "1", "-w", "1")
            self.adaptive.pause()
        if wanted & {"P1", "P2", "P4", "sizes"}:
            self.testpmd = {mode: testpmd(world, mode)
                            for mode in ("rxonly", "macswap", "icmpecho")}

    def measures(self):
        every = [
            Measure("write64", {"P1", "P6"}, self.writes),
            Measure("rxonly", {"P1"}, lambda: rate(self.testpmd["rxonly"].flood(*WRITES))),
            Measure("rxonly_txonly", {"P1"},
                    lambda: self.testpmd["rxonly"].filled_by_testpmd(WRITE_FRAME)),
            Measure("write64_ack1", {"P1"},
                    lambda: rate(self.orield.flood("plain", *WRITES, "-a", "1"))),
            Measure("icmpecho", {"P1"}, lambda: rate(self.testpmd["icmpecho"].flood(*WRITES))),
            Measure("read64", {"P2"}, lambda: rate(self.orield.flood("plain", *READS))),
            Measure("macswap", {"P2"}, lambda: rate(self.testpmd["macswap"].flood(*READS))),
            Measure("large", {"P3"}, self.large),
            Measure("large_link", {"P3"}, self.large_link),
            Measure("micro", {"P3"}, self.speeds),
            Measure("turn", {"P4"}, self.turn),
            Measure("turn_macswap", {"P4"}, self.turn_macswap),
            Measure("turn_adaptive", {"P4", "idle"}, self.turn_adaptive),
            Measure("churn", {"P6"}, self.churn),
            Measure("churn_in_process", {"P6"},
                    lambda: InProcess(self.world).churn(*WRITES)),
            Measure("binds", {"P9"},
                    lambda: self.orield.binds_per_second("churn", 2 * self.world.seconds)),
            Measure("idle_busy", {"idle"}, lambda: self.idle(self.orield)),
            Measure("idle_adaptive", {"idle"}, lambda: self.idle(self.adaptive)),
        ]
        every += [Measure(f"size{size}", {"sizes"}, lambda size=size: self.size(size), 1)
                  for size in (QUICK_SIZES if self.world.quick else SIZES)]
        return [measure for measure in every if measure.keys & self.wanted]

    def writes(self):
        report = self.orield.flood("plain", *WRITES)
        counters = report["counters"]
        return {"": rate(report), "sent": counters["messages"],
                "acknowledged": counters["acknowledged"], "resent": counters["resent"]}

    def large(self):
        return rate(self.jumbo.flood("plain", *LARGE, "-m", "4096")) * 65536

    def large_link(self):
        return rate(self.jumbo_rxonly.flood(*LARGE, "-m", "4096")) * 65536

    def speeds(self):
        """Bytes a second of one pass over 4 KiB."""
        ns = memory_speeds(self.world, "memcpy-4096", "icrc-4096")
        return {"memcpy": 4096 / ns["memcpy-4096"] * 1e9, "crc": 4096 / ns["icrc-4096"] * 1e9}

    def turn(self):
        return self.latency("orield, idle = busy", self.orield.flood(
            "plain", "-s", "64", "--latency", "--histogram"))

    def turn_macswap(self):
        return self.latency("testpmd macswap", self.testpmd["macswap"].flood(
            "-s", "64", "--latency", "--histogram"))

    def turn_adaptive(self):
        return self.latency("orield, idle = adaptive", self.adaptive.flood(
            "plain", "-s", "64", "--latency", "--histogram"))

    def latency(self, name, report):
        latency = report["latency"]
        if not latency["p50_us"]:
            raise Failed(f"{name}: no answer came in the time of the run")
        self.curves[name] = report["histogram"]
        return {"p50": latency["p50_us"], "p99": latency["p99_us"], "p999": latency["p99_9_us"],
                "p9999": latency["p99_99_us"]}

    def churn(self):
        """Messages and, beside them, binds a second; generator and sink share a core."""
        churner = self.orield.sinks["churn"][0]
        with awake(self.orield.server, churner):
            before = self.orield.counters()
            start = time.monotonic()
            report = self.orield.flood("plain", *WRITES, beside=[churner])
            self.orield.server.resume()
            after = self.orield.counters()
            seconds = time.monotonic() - start
        return {"messages": rate(report), "binds": (after["binds"] - before["binds"]) / seconds}

    def idle(self, orield):
        """Share of a processor that a daemon takes while nothing comes."""
        with awake(orield.server):
            time.sleep(0.3)
            before, start = orield.server.cpu_seconds(), time.monotonic()
            time.sleep(self.world.seconds)
            return (orield.server.cpu_seconds() - before) / (time.monotonic() - start)

    def size(self, size):
        """A point of the chart."""
        outstanding = ["-q", "8", "-t", str(max(2, min(128, 1 << 19 >> size.bit_length())))]
        if size <= 1024:
            return {"write": rate(self.orield.flood("plain", "-s", str(size), *outstanding)),
                    "read": rate(self.orield.flood("plain", "-s", str(size), "-q", "32", "-o",
                                                   "read")),
                    "macswap": rate(self.testpmd["macswap"].flood("-s", str(size), *outstanding))}
        return {"write": rate(self.jumbo.flood("plain", "-s", str(size), "-m", "4096",
                                               *outstanding, "-a", "4")),
                "read": rate(self.jumbo.flood("plain", "-s", str(size), "-m", "4096", "-q", "4",
                                              "-o", "read", "-t", "4"))}

    def extras(self):
        return {"turn": self.curves}
