# SPDX-License-Identifier: BSD-3-Clause
"""Rounds: every measurement once in each, one beside the other, and what they come to."""
import collections
import statistics
import sys
import time
import traceback

from .world import Failed, OutOfTime

# `figure` names it; `keys` are what of --list needs it; `take()` gives a number, or several by
# name; it is taken in `most` rounds at the most.
Measure = collections.namedtuple("Measure", "figure keys take most", defaults=[99])


class Part:
    """Measurements that stand side by side because they share servers."""

    name = ""
    keys = frozenset()  # what of --list it is for

    def prepare(self, world, wanted):
        """Starts the servers that the wanted keys need; all stand still afterwards."""

    def measures(self):
        return []

    def extras(self):
        """What is not a number by round, for the report."""
        return {}

    def end(self):
        """Undoes what the world does not know of."""


JOINS = {"stage": "_"}  # stage_parse and so on are figures of their own


class Samples:
    """What the rounds gave: by figure a number for each round, None where it failed."""

    def __init__(self):
        self.values = collections.defaultdict(list)
        self.reasons = {}  # by figure: why it is missing
        self.lost = collections.Counter()  # by figure: rounds that gave nothing
        self.extra = {}  # what is not one number: histograms, curves
        self.missing = []  # parts that did not come about: keys, reason

    def add(self, figure, round_number, taken):
        if not isinstance(taken, dict):
            taken = {"": taken}
        for name, value in taken.items():
            values = self.values[f"{figure}{JOINS.get(figure, '.')}{name}" if name else figure]
            values.extend([None] * (round_number - len(values)))
            values.append(value)

    def lose(self, figure, reason):
        self.lost[figure] += 1
        self.reasons[figure] = reason

    def good(self, figure):
        return [value for value in self.values.get(figure, ()) if value is not None]

    def median(self, figure):
        good = self.good(figure)
        if not good:
            raise Failed(self.why(figure))
        return statistics.median(good)

    def ratio(self, above, below):
        """Median of the ratios of each round: what disturbs a round disturbs both."""
        pairs = zip(self.values.get(above, ()), self.values.get(below, ()))
        ratios = [a / b for a, b in pairs if a is not None and b]
        if not ratios:
            raise Failed(self.why(above if not self.good(above) else below))
        return statistics.median(ratios)

    def why(self, figure):
        return self.reasons.get(figure.split(".")[0], f"{figure} was not measured")

    def summaries(self, prefixes):
        """Every figure whose name begins with one of these."""
        return {figure: summary(self.good(figure)) for figure in sorted(self.values)
                if figure.startswith(tuple(prefixes)) and self.good(figure)}


def summary(values):
    median = statistics.median(values)
    return {"median": median, "least": min(values), "most": max(values),
            "spread": (max(values) - min(values)) / median if median else 0.0,
            "samples": values}


def take_rounds(samples, measures, rounds, before_round=None, deadline=None):
    """
    All measures once, then all again; one that fails says why and leaves the others alone. After
    the deadline no further round begins.
    """
    for number in range(rounds):
        if number and deadline and time.monotonic() > deadline:
            print(f"  no time for round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            return
        if before_round:
            before_round()
        for measure in measures:
            if number >= measure.most:
                continue
            try:
                samples.add(measure.figure, number, measure.take())
            except Failed as failed:
                samples.lose(measure.figure, str(failed))
                print(f"  {measure.figure}: {' '.join(str(failed).split())}", file=sys.stderr,
                      flush=True)
            except OutOfTime:
                samples.lose(measure.figure, "the time of its part was over")
                raise
            except Exception:  # pylint: disable=broad-except
                samples.lose(measure.figure, traceback.format_exc()[-600:])
                traceback.print_exc()
