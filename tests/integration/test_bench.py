# SPDX-License-Identifier: BSD-3-Clause
"""bench/run without measuring: its arguments, and what it writes of figures that were recorded."""
import argparse
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import rig
from rig import expect, expect_equal, test

BENCH = f"{os.path.dirname(os.path.abspath(__file__))}/../../bench"
sys.path.insert(0, BENCH)
from suite import charts, link, report, samples  # noqa: E402
from suite.ratios import RATIOS  # noqa: E402
from suite.world import LOCK, Failed, OutOfTime, Server, run  # noqa: E402

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
    taken.add("scale_one", 0, 4e6)
    taken.add("scale_qps10000", 0, 2e6)
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
                        (("/nowhere",), "/nowhere has no bench/oriel-flood: build it first"),
                        ((rig.build_root(), "--results", "/run/results"), "a /run of its own"),
                        ((rig.build_root(), "--results", "/proc/results"), "/proc/results: ")):
        done = bench_run(*words)
        expect(done.returncode not in (0, None), f"{words} are taken")
        expect(said in done.stderr, f"{words}: {done.stderr}")


@test("what the documents name as a command can be started, and says what it is")
def documented():
    named = set()
    for name in ("README.md", "doc/performance.md"):
        with open(f"{BENCH}/../{name}", encoding="utf-8") as file:
            named |= set(re.findall(r"`(bench/[\w./-]+)(?: BUILD-DIRECTORY)?`", file.read()))
    named = {path for path in named if not path.startswith("bench/results/")}
    expect(len(named) >= 5, f"commands: {named}")
    for path in sorted(named):
        done = subprocess.run([f"{BENCH}/../{path}", "--help"], capture_output=True, text=True,
                              timeout=120, check=False)
        expect(done.returncode == 0 and len(done.stdout) > 100, f"{path}: {done}")


@test("a second run beside one that is under way is refused, and says whose end to wait for")
def second():
    with open(LOCK, "a+", encoding="ascii") as lock, tempfile.TemporaryDirectory() as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        done = bench_run(rig.build_root(), "--only", "P1", "--results", folder)
        expect_equal(done.returncode, 1, "exit status")
        expect("another one is under way (process 4711)" in done.stderr, done.stderr)
        lock.truncate(0)


@test("a run that is told to end takes all that it started with it, and writes no results")
def told_to_end():
    if len(os.sched_getaffinity(0)) < 2:
        raise rig.Skip("it wants two processors")
    for number in (signal.SIGINT, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as folder:
            process = rig.Process("bench-run", [f"{BENCH}/run", rig.build_root(), "--only",
                                                "P1", "--results", folder])
            process.wait_log("link: P1")
            rig.until(lambda: children("orield"), "a daemon of the run")
            process.popen.send_signal(number)
            expect_equal(process.wait(), 128 + number, "exit status")
            expect("stopped; no results were written" in process.log(), process.log())
            rig.until(lambda: not children("orield"), "its daemon is gone")
            expect_equal(os.listdir(folder), [], "what it has written")
            with open(LOCK, "a+", encoding="ascii") as lock:
                rig.until(lambda lock=lock: is_free(lock), "the next may begin")


def is_free(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def children(name):
    """Processes of that name here and in the namespaces below: nobody else's are seen."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                found += [pid] if file.read().strip() == name else []
        except OSError:
            pass
    return found


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
    expect_equal(results["P5"]["values"], {"queue pairs": 0.5, "windows": None}, "P5, half of it")
    expect("windows: scale_windows1000000" in results["P5"]["reason"], results["P5"]["reason"])
    for key in set(KEYS[2:]) - {"P5"}:
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


@test("a round that was lost is told, with the ratio and with the figure, and so is a missed goal")
def lost_rounds():
    taken = recorded()
    taken.lose("write64", "the server\n\tended")
    taken.lose("write64", "and again")
    args = argparse.Namespace(quick=True, keys={"P1", "P2", "P6"})
    results = report.collect(args, MACHINE, NOISE, taken, 1)
    expect_equal(results["P1"]["lost"], {"write64": 2}, "lost rounds of P1")
    expect_equal(results["P2"]["lost"], {}, "lost rounds of P2")
    results["P2"]["met"] = {"ratio": False}
    text = report.markdown(results)
    expect("| | lost: 2 rounds of `write64` |" in text, text)
    expect("| write64 | 2 rounds lost, the last because: and again |" in text, text)
    expect("- MISSED: P2\n- Reached: P1, P1 generator\n- No figure: P6\n\n" in text, text)
    results["noise"] = {**NOISE, "loop_spread_p5_p95": 0.45}
    expect("- NOT QUIET: the machine's own spread was 45 %" in report.markdown(results), "noise")


@test("binds are counted over exactly the time in which messages came, whatever lies between")
def binds_between():
    counts = [(1.0, 100), (1.5, 200), (3.0, 500)]
    expect_equal([link.at(counts, when) for when in (1.0, 1.25, 2.25, 3.0)],
                 [100, 150, 350, 500], "counts")
    try:
        link.at(counts, 3.1)
        expect(False, "there is no count behind the last one")
    except Failed:
        pass


@test("what a server wrote to its screen steers nobody else's")
def no_escapes():
    with tempfile.TemporaryDirectory() as folder:
        server = Server.__new__(Server)
        server.path = f"{folder}/log"
        with open(server.path, "wb") as file:
            file.write(b"\x1b[2J\x1b[1;1HPort\tup\n\x07\xff")
        expect_equal(server.log(), "Port\tup\n", "its log")


def micro(*arguments):
    return subprocess.run([f"{rig.build_root()}/bench/oriel-micro", *arguments],
                          capture_output=True, text=True, timeout=120, check=False)


@test("oriel-micro: every benchmark runs, exactly as often as told; nonsense is refused")
def micro_runs():
    names = micro("--list").stdout.split()
    expect("packet-write-64" in names and "icrc-4096" in names, f"--list: {names}")
    for name in names:
        if "1000000" not in name:
            done = micro("--once", "64", name)
            expect_equal((done.returncode, done.stdout, done.stderr), (0, "", ""), name)
    found = json.loads(micro("--json", "--rounds", "1", "ring", "parse").stdout)
    expect_equal(list(found), ["ring", "parse"], "benchmarks")
    expect(0 < found["ring"]["least_ns"] <= found["ring"]["most_ns"], f"ring: {found}")
    for words, said in ((("--rounds", "many"), "from 1 to 101"), (("--once", "5"), "one benchmark"),
                        (("--once", "0", "ring"), "from 1 to"), (("--grace", "x"), "from 1 to"),
                        (("--grace", "1", "--crossing", "1"), "one of them"),
                        (("--crossing", "1", "ring"), "run no benchmark"),
                        (("--icrc", "sum"), "not in this processor"), (("sum",), "--list names")):
        done = micro(*words)
        expect(done.returncode in (1, 2) and said in done.stderr, f"{words}: {done}")


@test("oriel-micro: grace periods, and ways to another processor, in order")
def micro_two():
    if len(os.sched_getaffinity(0)) < 2:
        raise rig.Skip("it wants two processors")
    for word, unit in (("--grace", "us"), ("--crossing", "ns")):
        found = json.loads(micro(word, "20", "--json").stdout)
        times = [found[f"{at}_{unit}"] for at in ("p50", "p99", "p99_9", "max")]
        expect(0 < times[0] and times == sorted(times), f"{word}: {found}")


@test("bench/instructions: the same program gives the same count",
      slow=True)
def instructions():
    if not shutil.which("valgrind"):
        raise rig.Skip("no valgrind")
    with open(f"{rig.build_root()}/bench/oriel-micro", "rb") as file:
        if re.search(rb"__[at]san_init", file.read()):
            raise rig.Skip("valgrind and a sanitizer do not go together")
    def counted(*words):
        return subprocess.run([f"{BENCH}/instructions", rig.build_root(), *words],
                              capture_output=True, text=True, timeout=120, check=False)
    first, again = (json.loads(counted("--json", "ring").stdout)["ring"] for _ in range(2))
    # A process whose number has a digit more starts with a few instructions more, of thousands.
    expect(first > 0 and abs(first - again) < 0.1, f"{first}, and a second time {again}")
    for word, said in (("rings", "no benchmark 'rings'"), ("--fast", "there is --json")):
        done = counted(word)
        expect(done.returncode == 1 and said in done.stderr and "==" not in done.stderr,
               f"{word}: {done}")


@test("a program that is not installed costs what it is for, by name, and nothing else")
def not_installed():
    for start in (lambda: Server("nothing", ["no-such-program"], 0),
                  lambda: run(["no-such-program"], core=0)):
        try:
            start()
            expect(False, "it was started")
        except Failed as failed:
            expect("no-such-program is not installed" in str(failed), str(failed))
    taken = samples.Samples()
    other = link.Absent("dpdk-testpmd is not installed")
    samples.take_rounds(taken, [samples.Measure("rxonly", {"P1"}, lambda: other.flood("-s", "64")),
                                samples.Measure("write64", {"P1"}, lambda: 7.0)], 1)
    expect_equal((taken.why("rxonly"), taken.good("write64")),
                 ("dpdk-testpmd is not installed", [7.0]), "what is left")


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
        if shutil.which("gnuplot"):
            expect_equal(results["charts"], ["rate-by-size", "latency", "cost-by-number", "stages"],
                         "charts of figures that are all there")
        script = charts.cost_by_number(results)
        expect("1 250.0\n1000 333.3" in script and "10000 500.0\n" in script, script)
        expect_equal(sorted(os.listdir(folder)), sorted(
            ["latest.json", "latest.md", *[f"{name}.svg" for name in results["charts"]]]), "files")


if __name__ == "__main__":
    rig.main()
