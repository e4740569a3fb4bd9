# SPDX-License-Identifier: BSD-3-Clause
"""bench/run without measuring: its arguments, and what it writes of figures that were recorded."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import rig
from rig import expect, expect_equal, test

BENCH = f"{os.path.dirname(os.path.abspath(__file__))}/../../bench"
sys.path.insert(0, BENCH)
from suite import charts, report, samples  # noqa: E402
from suite.ratios import RATIOS  # noqa: E402
from suite.world import Failed, OutOfTime  # noqa: E402

KEYS = [f"P{n}" for n in range(1, 11)]
MACHINE = {"processor": "A processor", "processors": 2, "virtual": True, "kernel": "6.1", "dpdk":
           "22.11", "compiler": "12", "hugepages_total": 0, "hugepages_free": 0, "oriel": "orield",
           "cores": {"control": 0, "worker": 1, "generator": 0}}
NOISE = {"loop_ms_median": 1.0, "loop_spread_p5_p95": 0.01, "loop_worst": 1.2, "loops": 30,
         "load_before": 0.1, "load_after": 1.0, "stolen_ticks": 0}


def bench_run(*arguments):
    return subprocess.run([f"{BENCH}/run", *arguments], capture_output=True, text=True,
                          timeout=120, check=False)


def recorded():
    """Two rounds of P1 and P2; P2's second failed on one side."""
    taken = samples.Samples()
    for number, (write, rxonly) in enumerate(((4e6, 8e6), (5e6, 10e6))):
        taken.add("write64", number, {"": write, "sent": 1000, "acknowledged": 990, "resent": 10})
        taken.add("rxonly", number, rxonly)
    taken.add("read64", 0, 3e6)
    taken.add("macswap", 0, 4e6)
    taken.add("read64", 1, 1e6)
    taken.reasons["churn"] = "the sink ended | early\nwith 1"
    taken.extra["turn"] = {"orield": [[1.0, 90], [2.0, 9], [50.0, 1]]}
    for size in (64, 1024):
        taken.add(f"size{size}", 0, {"write": 4e6, "read": 2e6, "macswap": 8e6})
    taken.add("stage", 0, {"parse": 10.5, "icrc-64": 8})
    taken.add("count_qps1", 0, 4e6)
    taken.add("count_qps1000", 0, 3e6)
    return taken


def collected(keys=None):
    args = argparse.Namespace(quick=True, keys=set(keys or KEYS))
    return report.collect(args, MACHINE, NOISE, recorded(), 12.3)


@test("arguments that mean nothing are refused with what there is; --list names P1 to P10")
def arguments():
    listed = bench_run("--list")
    expect_equal(listed.returncode, 0, "exit status of --list")
    for key in KEYS:
        expect(re.search(rf"^{key} ", listed.stdout, re.M), f"--list has no {key}")
    for words, said in ((("--only", "P11"), "P11: there is P1, P2"),
                        (("--rounds", "0"), "at least 1"),
                        (("/nowhere",), "/nowhere has no bench/oriel-flood: build it first")):
        done = bench_run(*words)
        expect(done.returncode not in (0, None), f"{words} are taken")
        expect(said in done.stderr, f"{words}: {done.stderr}")


@test("a ratio is the median of those of the rounds; what was not measured is null and says why")
def ratios():
    results = collected()
    expect_equal(results["P1"]["value"], 0.5, "P1")
    expect_equal(results["P1"]["met"], {"ratio": True, "generator": True}, "goals of P1")
    expect_equal(results["P1"]["also"]["messages neither acknowledged nor counted as lost"], 0,
                 "messages unaccounted for")
    expect_equal(results["P2"]["value"], 0.75, "P2, of the round that has both")
    expect_equal(results["P6"]["value"], None, "P6")
    expect("the sink ended" in results["P6"]["reason"], f"reason: {results['P6']['reason']}")
    for key in KEYS[2:]:
        expect(results[key]["value"] is None and results[key]["reason"], f"{key} has no reason")
    expect_equal(results["P1"]["figures"]["rxonly"]["samples"], [8e6, 10e6], "samples of rxonly")
    expect("not asked for" in collected(["P1"])["P2"]["reason"], "P2 was not asked for")


@test("a measurement that fails, in whatever way, leaves the others alone")
def failures():
    def fails(error):
        raise error
    taken = samples.Samples()
    samples.take_rounds(taken, [samples.Measure("a", {"P1"}, lambda: fails(Failed("no link"))),
                                samples.Measure("b", {"P1"}, lambda: fails(KeyError("x"))),
                                samples.Measure("c", {"P1"}, lambda: 7.0)], 2)
    expect_equal(taken.good("c"), [7.0, 7.0], "rounds of the good one")
    expect_equal(taken.why("a.p50"), "no link", "reason")
    expect("KeyError" in taken.why("b"), f"reason: {taken.why('b')}")


@test("a part whose time is over ends there, and keeps what it has; a ratio by zero is none")
def out_of_time():
    def over():
        raise OutOfTime()
    taken = samples.Samples()
    try:
        samples.take_rounds(taken, [samples.Measure("a", {"P1"}, lambda: 7.0),
                                    samples.Measure("b", {"P1"}, over),
                                    samples.Measure("c", {"P1"}, lambda: 8.0)], 2)
        expect(False, "the rounds went on")
    except OutOfTime:
        pass
    expect_equal((taken.good("a"), taken.good("c")), ([7.0], []), "what was measured before")
    expect("time" in taken.why("b"), f"reason: {taken.why('b')}")
    taken.add("write64", 0, 5.0)
    taken.add("rxonly", 0, 0.0)
    result = next(ratio for ratio in RATIOS if ratio.key == "P1").result(taken)
    expect(result["value"] is None and "no ratio" in result["reason"], f"P1: {result}")


@test("instructions that are not those of the run before are named, whatever stands there")
def compared():
    with tempfile.TemporaryDirectory() as folder:
        first = collected()
        report.compare(first, folder)
        expect("compared_with" not in first, "there is nothing to compare with")
        for stage, count in (("parse", 200.0), ("ring", 50.0)):
            first["figures"][f"instructions_{stage}"] = samples.summary([count])
        report.write(first, folder)
        second = collected()
        for stage, count in (("parse", 203.5), ("ring", 50.0)):
            second["figures"][f"instructions_{stage}"] = samples.summary([count])
        report.compare(second, folder)
        expect_equal(second["instructions_changed"],
                     {"instructions_parse": {"before": 200.0, "now": 203.5}}, "changes")
        expect("parse: 200.0 before, 203.5 now" in report.markdown(second), "in the Markdown")
        for text in ("", "[]", "{}", '{"figures": 3}'):
            with open(f"{folder}/latest.json", "w", encoding="utf-8") as file:
                file.write(text)
            third = collected()
            report.compare(third, folder)
            expect("compared_with" not in third, f"compared with {text!r}")


@test("latest.json, latest.md and the charts are written, whole")
def written():
    with tempfile.TemporaryDirectory() as folder:
        results = collected()
        charts.draw(results, folder)
        report.write(results, folder)
        with open(f"{folder}/latest.json", encoding="utf-8") as file:
            read = json.load(file)
        expect(all(key in read for key in KEYS), "all keys are in latest.json")
        with open(f"{folder}/latest.md", encoding="utf-8") as file:
            text = file.read()
        widths = {line.count("|") for line in text.splitlines() if line.startswith("| P")}
        expect_equal(widths, {6}, "columns of the table")
        for name in results["charts"]:
            with open(f"{folder}/{name}.svg", encoding="utf-8") as file:
                expect("</svg>" in file.read(), f"{name}.svg is whole")
        expect_equal(sorted(os.listdir(folder)), sorted(
            ["latest.json", "latest.md", *[f"{name}.svg" for name in results["charts"]]]), "files")


if __name__ == "__main__":
    rig.main()
