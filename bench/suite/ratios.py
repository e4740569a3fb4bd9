# SPDX-License-Identifier: BSD-3-Clause
"""P1 to P10: what each is, what it must reach, and how it follows from the figures."""
from .world import Failed


class Ratio:
    def __init__(self, key, title, goals, figures, compute):
        self.key = key
        self.title = title
        self.goals = goals  # by name of a value: (">=" or "<=", number)
        self.figures = figures  # beginnings of the names of the figures behind it
        self.compute = compute

    def result(self, samples):
        """Everything about it; a value that could not be had is None, and the reason is said."""
        values, reasons = {}, []
        for name, function in self.compute.items():
            try:
                values[name] = function(samples)
            except Failed as failed:
                values[name] = None
                if name in self.goals:
                    reasons.append(f"{name}: {failed}")
            except (ArithmeticError, LookupError, ValueError) as error:
                values[name] = None
                if name in self.goals:
                    reasons.append(f"{name}: its figures make no ratio: {error!r}")
        first = next(iter(values))
        notes = {name: value for name, value in values.items()
                 if name not in self.goals and value is not None}
        met = {name: None if values[name] is None else reached(values[name], goal)
               for name, goal in self.goals.items()}
        return {"title": self.title, "value": values[first],
                "goal": {name: f"{sign} {number:g}" for name, (sign, number) in self.goals.items()},
                "values": {name: values[name] for name in self.goals}, "met": met,
                "also": notes, "reason": "; ".join(reasons) or None,
                "lost": {figure: rounds for figure, rounds in sorted(samples.lost.items())
                         if figure.startswith(tuple(self.figures))},
                "figures": samples.summaries(self.figures)}


def reached(value, goal):
    sign, number = goal
    return value >= number if sign == ">=" else value <= number


def best_rxonly(samples):
    """Whatever filled the link more: a slow generator must not flatter us."""
    rates = [samples.median(name) for name in ("rxonly", "rxonly_txonly") if samples.good(name)]
    if not rates:
        raise Failed(samples.why("rxonly"))
    return max(rates)


def unaccounted(samples):
    return sum(sent - acknowledged - resent for sent, acknowledged, resent in zip(
        samples.good("write64.sent"), samples.good("write64.acknowledged"),
        samples.good("write64.resent")))


def large_bound(samples):
    return 1 / (1 / samples.median("micro.memcpy") + 1 / samples.median("micro.crc") +
                1 / samples.median("large_link"))


def bound_each(samples, figure):
    """So many messages a second had a window of their own bound and invalidated."""
    pairs = zip(samples.values[f"{figure}.messages"], samples.values[f"{figure}.binds"],
                samples.values["write64"])
    ratios = sorted(min(m, b) / w for m, b, w in pairs if None not in (m, b, w))
    if not ratios:
        raise Failed(samples.why(figure))
    return ratios[len(ratios) // 2]


def bound_each_best(samples):
    """By a client in the worker's process, or by one that shares the generator's processor."""
    found = []
    for figure in ("churn_in_process", "churn"):
        if samples.good(f"{figure}.binds"):
            found.append(bound_each(samples, figure))
    if not found:
        raise Failed(samples.why("churn"))
    return max(found)


def million_windows(samples):
    if samples.good("scale_windows100000"):
        raise Failed("a quick run binds 100,000 only")
    return samples.ratio("scale_windows1000000", "scale_one")


def ratio(above, below):
    return lambda samples: samples.ratio(above, below)


def median(figure):
    return lambda samples: samples.median(figure)


RATIOS = [
    Ratio("P1", "64 B WRITEs/s, one worker, ACK every 16 / testpmd rxonly packets/s",
          {"ratio": (">=", 0.40), "generator": (">=", 1.3)}, ["write64", "rxonly", "icmpecho"], {
              "ratio": lambda s: s.median("write64") / best_rxonly(s),
              "generator": lambda s: s.median("rxonly") / s.median("write64"),
              "ack every 1": lambda s: s.median("write64_ack1") / best_rxonly(s),
              "of icmpecho": ratio("write64", "icmpecho"),
              "messages neither acknowledged nor counted as lost": unaccounted}),
    Ratio("P2", "64 B READs/s / testpmd macswap packets/s", {"ratio": (">=", 0.35)},
          ["read64", "macswap"], {"ratio": ratio("read64", "macswap")}),
    Ratio("P3", "WRITE bytes/s at MTU 4096 / 1/(1/memcpy + 1/crc + 1/link)",
          {"ratio": (">=", 0.80)}, ["large", "micro"], {
              "ratio": lambda s: s.median("large") / large_bound(s),
              "bound, GB/s": lambda s: large_bound(s) / 1e9}),
    Ratio("P4", "unloaded WRITE to ACK / testpmd macswap",
          {"ratio": ("<=", 1.3), "p99.9 / p50": ("<=", 3)}, ["turn"], {
              "ratio": ratio("turn.p50", "turn_macswap.p50"),
              "p99.9 / p50": ratio("turn.p999", "turn.p50"),
              "p99.9 / p50 of macswap": ratio("turn_macswap.p999", "turn_macswap.p50")}),
    Ratio("P5", "messages/s at 10,000 queue pairs / 1, and at 1,000,000 windows / 1, at random",
          {"queue pairs": (">=", 0.70), "windows": (">=", 0.70)}, ["scale"], {
              "queue pairs": ratio("scale_qps10000", "scale_one"),
              "windows": million_windows,
              "100,000 windows (--quick)": ratio("scale_windows100000", "scale_one"),
              "both at once": ratio("scale_both", "scale_one")}),
    Ratio("P6", "P1 with a window bound and invalidated for each message / P1",
          {"ratio": (">=", 0.20)}, ["churn", "write64"], {
              "ratio": bound_each_best,
              "client in the worker's process": lambda s: bound_each(s, "churn_in_process"),
              "client on the generator's processor": lambda s: bound_each(s, "churn")}),
    Ratio("P7", "oriel-perf / ucx_perftest over TCP loopback",
          {"8 B writes": (">=", 20), "64 KiB writes": (">=", 3), "64 KiB reads": (">=", 3),
           "latency": ("<=", 0.2)}, ["perf", "ucx", "fabric"], {
              "8 B writes": ratio("perf_write8", "ucx_put8"),
              "64 KiB writes": ratio("perf_write64k", "ucx_put64k"),
              "64 KiB reads": ratio("perf_read64k", "ucx_get64k"),
              "latency": ratio("perf_latency", "ucx_latency"),
              "latency, half a turn of each":
                  lambda s: s.ratio("perf_latency", "ucx_latency") / 2,
              "64 KiB writes / libfabric tcp": ratio("perf_write64k", "fabric_64k")}),
    Ratio("P8", "a guest that runs orield / a like guest with rdma_rxe, served to oriel-flood",
          {"messages": (">=", 10), "bandwidth": (">=", 4)}, ["guest"], {
              "messages": ratio("guest_oriel.messages", "guest_rxe.messages"),
              "bandwidth": ratio("guest_oriel.bytes", "guest_rxe.bytes"),
              "stock client, writes": ratio("guest_client_oriel.write", "guest_client_rxe.write"),
              "stock client, reads": ratio("guest_client_oriel.read", "guest_client_rxe.read")}),
    Ratio("P9", "bind + invalidate a second on one worker; grace period at p99, two busy workers",
          {"binds": (">=", 2e6), "grace, us": ("<=", 10)}, ["binds", "grace", "stage_bind"], {
              "binds": median("binds"),
              "grace, us": median("grace.p99"),
              "in the engine alone": lambda s: 1e9 / s.median("stage_bind-and-invalidate")}),
    Ratio("P10", "instructions of a packet with statistics / without", {"ratio": ("<=", 1.02)},
          ["instructions"], {
              "ratio": ratio("instructions_packet-write-64", "instructions_plain_packet-write-64"),
              "READ": ratio("instructions_read-64", "instructions_plain_read-64")}),
]
