# SPDX-License-Identifier: BSD-3-Clause
"""oriel-perf: every operation, mode and output against an export, over two daemons on a memif."""
import csv
import io
import json
import os
import pty
import re
import signal
import subprocess

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test, until

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write,atomic
allow = 10.66.0.0/24
[export readonly]
listen = 10.66.0.1:7472
size = 64K
"""
WORLD = {}


def setup():
    WORLD["a"] = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24")
    WORLD["b"] = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", number=1)
    WORLD["target"] = Target("target", WORLD["a"], EXPORT)
    WORLD["rest"] = [(WORLD[end], WORLD[end].counts()) for end in ("a", "b")]


def at_rest():
    """Waits until both daemons have forgotten all clients but the target."""
    for daemon, counts in WORLD["rest"]:
        daemon.expect_counts(counts)


def command(*arguments, port=7471):
    return [rig.program("oriel-perf"), "--export", f"10.66.0.1:{port}", *map(str, arguments)]


def environment():
    return {**os.environ, "ORIEL_SOCKET": WORLD["b"].socket}


def perf(*arguments, port=7471):
    return subprocess.run(command(*arguments, port=port), capture_output=True, text=True,
                          timeout=120, check=False, env=environment())


def good(*arguments, port=7471):
    result = perf(*arguments, port=port)
    expect_equal(result.returncode, 0, f"oriel-perf {arguments}: {result.stderr}{result.stdout}")
    return result.stdout


def measured(*arguments, port=7471):
    """The only result of a run, from its JSON."""
    output = json.loads(good("--json", *arguments, port=port))
    expect_equal(len(output["results"]), 1, "results")
    return output["results"][0]


def received():
    return WORLD["a"].ask("stats")["workers"]["0"]


def moved(key, *arguments):
    """How often the target's daemon saw `key` during a run, and its result."""
    before = received()[key]
    result = measured(*arguments)
    return received()[key] - before, result


# --- operations -------------------------------------------------------------------------------


@test("each operation sends as many messages as it says, of the size it says")
def operations():
    for operation, key in (("write", "rx_write"), ("read", "rx_read")):
        for arguments in (["-n", 300, "-s", 1500], ["-n", 100, "-s", 0], ["-D", 0.2, "-s", 64],
                          ["-n", 100, "-q", 3, "-t", 4, "-l", 3], ["-n", 40, "-t", 1]):
            count, result = moved(key, operation, *arguments)
            expect_equal(count, result["messages"], f"{operation} {arguments}: at the target")
            expect_equal([result["operation"], result["mode"]], [operation, "bandwidth"], "what")
            if "-n" in arguments:
                queues = 3 if "-q" in arguments else 1
                expect_equal(count, arguments[1] * queues, f"{operation} {arguments}")
    before = received()
    result = measured("mixed", "-n", 2000, "-s", 128, "--read-share", 25)
    after = received()
    expect_equal([after["rx_read"] - before["rx_read"], after["rx_write"] - before["rx_write"]],
                 [result["reads"], 2000 - result["reads"]], "reads and writes")
    expect(300 < result["reads"] < 700, f"a quarter of 2000 are reads: {result['reads']}")
    for share in (0, 100):
        expect_equal(measured("mixed", "-n", 50, "-s", 8, "--read-share", share)["reads"],
                     share // 2, "all or none are reads")


@test("atomics count, each queue pair on its own; compare-and-swaps find what the last one left")
def atomics():
    for arguments in (["-n", 500], ["-n", 100, "-q", 3], ["-n", 100, "--latency"]):
        count, result = moved("rx_atomic", "atomic", *arguments, *(
            [] if "--latency" in arguments else ["--verify"]))
        expect_equal(count, result["messages"], f"atomic {arguments}: at the target")
    result = measured("atomic", "-A", "CMP_AND_SWAP", "-n", 500, "--verify")
    again = measured("cmp_swap", "-n", 500, "--latency")
    expect(result["refused"] <= 128, f"at most one queue of swaps is in vain: {result}")
    expect(again["refused"] <= 1, f"one at a time, only the first can be: {again}")


@test("windows of its own are bound and ended; an export is asked for new ones, one for a message")
def windows():
    for arguments in (["-n", 300], ["-n", 100, "--windows", 1], ["-n", 100, "-q", 2],
                      ["-n", 50, "--latency"]):
        result = measured("bind", *arguments)
        queues = 2 if "-q" in arguments else 1
        expect_equal(result["messages"], arguments[1] * queues, f"bind {arguments}")
    for arguments in (["-n", 200], ["-n", 50, "-q", 64], ["-n", 50, "--latency"]):
        result = measured("window", *arguments)
        queues = 64 if "-q" in arguments else 1
        expect_equal(result["windows"], arguments[1] * queues, f"window {arguments}")
    result = measured("write", "-n", 60, "-q", 4, "-s", 64, "--per-window", 1)
    expect_equal([result["messages"], result["windows"]], [240, 4 * 59], "one for each message")
    result = measured("read", "-n", 60, "-s", 64, "--per-window", 7)
    expect_equal(result["windows"], 60 // 7, "a window after each seven messages")


@test("connections are made and ended, one or many at once, and leave nothing")
def connections():
    for arguments in ([], ["--windows", 8]):
        result = measured("connect", "-n", 24, *arguments)
        expect_equal([result["messages"], result["latency_us"]["count"]], [24, 24], "connections")
    at_rest()


# --- modes ------------------------------------------------------------------------------------


def check_latency(result, what):
    times = result["latency_us"]
    order = [times[key] for key in ("min", "p50", "p90", "p99", "p99.9", "p99.99", "max")]
    expect_equal(order, sorted(order), f"{what}: the order of the percentiles")
    expect(times["min"] > 0 and times["min"] <= times["mean"] <= times["max"], f"{what}: {times}")
    expect_equal(sum(count for _, _, count in times["histogram"]), times["count"],
                 f"{what}: the sum of the histogram")
    expect_equal(times["count"], result["messages"], f"{what}: one time for each message")
    edges = [edge for bucket in times["histogram"] for edge in bucket[:2]]
    expect_equal(edges, sorted(edges), f"{what}: the order of the buckets")
    for start, end, _ in times["histogram"]:
        expect(end - start <= max(0.001001, start / 100), f"{what}: width of {start} to {end}")


@test("latencies: one time for each message, ordered percentiles, a histogram that adds up")
def latencies():
    for operation in ("write", "read", "atomic", "mixed", "bind", "window"):
        for arguments in (["-n", 400], ["-D", 0.1]):
            result = measured(operation, "--latency", *arguments)
            expect_equal(result["mode"], "latency", "mode")
            check_latency(result, operation)
    expect_equal(measured("write_lat", "-n", 5)["bytes"], 2, "perftest's size of latency tests")
    expect_equal(measured("ib_read_lat", "-n", 5)["mode"], "latency", "the name of the program")
    expect_equal(measured("read_bw", "-n", 5)["bytes"], 65536, "perftest's size of the others")
    text = good("read_lat", "-n", 100, "-H")
    buckets = [int(row.split()[3]) for row in text.splitlines() if re.match(r" # \d", row)]
    expect_equal(sum(buckets), 100, f"the table of the histogram:\n{text}")


@test("--times: a rate, and the time of each of its messages, from when it was due")
def times():
    for arguments in (["-n", 1000], ["-n", 300, "-q", 3, "-Q", 8], ["read", "-n", 500, "--verify"],
                      ["-n", 200, "--rate_limit", 2000, "--rate_units", "p"],
                      ["-D", 0.2, "--rate_limit", 3000, "--rate_units", "p", "-q", 2]):
        result = measured("--times", "-s", 64, *arguments)
        expect_equal(result["mode"], "bandwidth", "mode")
        check_latency(result, f"{arguments}")
    text = good("--times", "-n", 50, "-H", "-s", 64)
    expect(" # usec: least" in text and " # from[usec]" in text, text)
    # Far more than can be had: what is sent late was due long before.
    late = measured("--times", "-n", 2000, "-s", 8, "-t", 1, "--rate_limit", 1e9,
                    "--rate_units", "p")
    expect(late["latency_us"]["max"] > late["seconds"] * 1e6 / 2, f"{late['latency_us']['max']}")


@test("queue pairs, doorbell lists, moderated completions, inline data: all messages arrive")
def queues():
    for arguments in (["-q", 7, "-t", 5], ["-l", 4], ["-Q", 16], ["-Q", 16, "-t", 16],
                      ["-q", 3, "-Q", 5], ["-I", 64, "-s", 64],
                      ["-I", 256, "-s", 256, "-Q", 4],
                      ["-t", 1], ["--poll"], ["-F", "-e"], ["-S", 0, "-i", 1], ["-x", 0],
                      ["--local", "10.66.0.2"],
                      ["-d", WORLD["b"].socket], ["--pattern", "random"], ["--skew", 1.2]):
        count, result = moved("rx_write", "-n", 203, *(arguments if "-s" in arguments else
                                                       arguments + ["-s", 100]))
        queues_used = arguments[1] if arguments[0] == "-q" else 1
        expect_equal([count, result["messages"]], [203 * queues_used] * 2, str(arguments))
    for operation in ("read", "atomic", "mixed"):
        expect_equal(measured(operation, "-n", 300, "-o", 1)["messages"], 300, f"{operation} -o 1")
    before = received()["rx_write"]
    result = measured("-q", 3, "-Q", 5, "-D", 0.2, "-s", 100)
    expect_equal(received()["rx_write"] - before, result["messages"], "by time, moderated")


@test("a rate is kept: never more messages than it allows, in each of its units")
def rates():
    for arguments, most in ((["--rate_limit", 2000, "--rate_units", "p"], 2000),
                            (["--rate_limit", 0.008], 1000),
                            (["--rate_limit", 1, "--rate_units", "M"], 1048.576),
                            (["--rate_limit", 500, "--rate_units", "p", "-q", 4, "--burst_size", 9],
                             500)):
        result = measured("-s", 1000, "-D", 0.4, *arguments)
        allowed = most * result["seconds"] + (9 if "--burst_size" in arguments else 1)
        expect(0 < result["messages"] <= allowed + 1,
               f"{arguments}: {result['messages']} of {allowed}")
    result = measured("-s", 0, "-D", 0.2, "--rate_limit", 500, "--rate_units", "p")
    expect(result["messages"] <= 500 * result["seconds"] + 2, f"of no bytes: {result}")


@test("a warm-up comes before the measurement and is not part of it")
def warm_up():
    for flag in (["--warm-up", 0.05], ["--perform_warm_up"]):
        count, result = moved("rx_write", "-n", 100, "-s", 64, *flag)
        expect_equal(result["messages"], 100, "measured")
        expect(count > 100, f"sent before: {count}")


# --- verification -----------------------------------------------------------------------------


@test("--verify compares every byte of every operation")
def verified():
    for arguments in (["write", "-D", 0.1, "-s", 5000], ["read", "-D", 0.1, "-s", 1000, "-q", 3],
                      ["mixed", "-n", 300, "-s", 4096, "--pattern", "random"],
                      ["write", "-n", 300, "-s", 4096, "--pattern", "fixed"],
                      ["write", "-n", 3, "-s", 1048576], ["mixed_lat", "-n", 100, "-s", 256],
                      ["read", "-n", 100, "-s", 1024, "--warm-up", 0.05]):
        result = measured("--verify", *arguments)
        least = result["bytes"] * (result["messages"] if arguments[0] == "read" else 1)
        expect(result["verified_bytes"] >= least, f"{arguments}: {result['verified_bytes']}")


@test("--verify of many and long READs takes no more memory than it has")
def verified_much():
    results = json.loads(good("--verify", "read", "-a", "-n", 5, "--json"))["results"]
    expect_equal(len(results), 20, "sizes")
    for result in results:
        expect(result["verified_bytes"] >= 5 * result["bytes"], f"{result}")
    result = measured("--verify", "read", "-q", 16, "-s", 300000, "-n", 5)
    expect(result["verified_bytes"] >= 16 * 5 * 300000, f"{result}")


def must_notice(operation, said, *flags):
    """A run during which the other client has had its turn fails: the longer, the surer."""
    for seconds in (0.3, 1, 3, 10):
        result = perf("--verify", operation, *flags, "-D", seconds)
        if result.returncode:
            break
    expect(result.returncode == 1 and said in result.stderr,
           f"{operation} beside another client: {result.returncode} {result.stderr}")


@test("--verify sees bytes that another client has written meanwhile, and counters that it moved")
def corrupted():
    for load, operations, said, flags in (
            ("write", ("read", "mixed", "write", "read_lat"), "differ", ["-s", 64]),
            ("atomic", ("atomic",), "counters grew", [])):
        before = received()[f"rx_{load}"]
        other = Process("other", command(load, *flags, "-D", 600), environment())
        until(lambda: other.alive() and received()[f"rx_{load}"] > before,  # pylint: disable=W0640
              "load of the other client")
        for operation in operations:
            must_notice(operation, said, *flags)
        other.kill()


# --- output -----------------------------------------------------------------------------------


@test("-a measures each power of two that fits")
def all_sizes():
    for port, largest in ((7471, 20), (7472, 16)):
        result = perf("read", "-a", "-n", 2, port=port)
        sizes = [int(row.split()[0]) for row in result.stdout.splitlines()
                 if re.match(r" \d+ +\d+ ", row)]
        expect_equal(sizes, [1 << bit for bit in range(1, largest + 1)], "sizes of the table")
        expect(f"the window has {1 << largest} bytes" in result.stderr, result.stderr)
    results = json.loads(good("write_lat", "-a", "-n", 2, "--json"))["results"]
    expect_equal([entry["bytes"] for entry in results], [1 << bit for bit in range(1, 21)], "sizes")


@test("the table, --json, --out_json_file, --csv and --report_gbits tell the same")
def outputs():
    path = f"{rig.WORK}/result.json"
    table = good("-n", 50, "-s", 1000, "--out_json_file", path)
    with open(path, encoding="ascii") as file:
        output = json.load(file)
    expect_equal([output[key] for key in ("program", "connection", "queue_pairs", "depth")],
                 ["oriel-perf", "export", 1, 128], "what was measured")
    result = output["results"][0]
    row = re.search(r"^ (1000) +(50) +([\d.]+) +([\d.]+) +([\d.]+)$", table, re.M)
    expect(row, table)
    expect("BW average[MiB/sec]" in table, table)
    expect(abs(float(row.group(4)) - result["bytes_per_second"] / 1048576) < 0.011, table)
    expect(abs(float(row.group(5)) * 1e6 - result["messages_per_second"]) < 1, table)
    expect(abs(result["bytes_per_second"] - result["messages_per_second"] * 1000) < 1, f"{result}")
    expect(abs(result["messages"] / result["seconds"] - result["messages_per_second"]) < 1,
           f"{result}")
    expect(result["peak_bytes_per_second"] >= result["bytes_per_second"], f"{result}")
    table = good("-n", 50, "-s", 1000, "--report_gbits", "--out_json_file", path)
    with open(path, encoding="ascii") as file:
        result = json.load(file)["results"][0]
    row = re.search(r"^ 1000 +50 +[\d.]+ +([\d.]+) ", table, re.M)
    expect("BW average[Gb/sec]" in table and row, table)
    expect(abs(float(row.group(1)) - result["bytes_per_second"] * 8e-9) < 0.011, table)
    for arguments in (["-n", 50], ["-n", 50, "--latency"]):
        rows = list(csv.DictReader(io.StringIO(good("--csv", "read", "-s", 512, *arguments))))
        expect_equal([len(rows), rows[0]["operation"], rows[0]["bytes"], rows[0]["messages"]],
                     [1, "read", "512", "50"], "the row")
        expect(None not in rows[0] and None not in rows[0].values(), f"columns: {rows[0]}")
        expect_equal(bool(rows[0]["p99_99_us"]), "--latency" in arguments, "percentiles")
    expect_equal(len(good("--csv", "-a", "-n", 1).splitlines()), 21, "one head, twenty rows")
    for verify in ([], ["--verify"]):
        text = good("--summary", "-n", 2, *verify)
        for row in (r"(?:write|read) +\d+ ", r"(?:write|read) latency +8 "):
            wanted = 2 if "latency" in row else 12
            expect_equal(len(re.findall("^" + row, text, re.M)), wanted, f"rows of\n{text}")
        expect_equal("# verified: " in text, bool(verify), f"verified\n{text}")


def on_terminal(*flags):
    """What a run writes there."""
    leader, follower = pty.openpty()
    result = subprocess.run(command(*flags, "-s", 64), stdout=follower, stderr=follower,
                            timeout=120, check=False, env=environment())
    os.close(follower)
    text = b""
    try:
        while True:
            text += os.read(leader, 65536)
    except OSError:
        pass
    os.close(leader)
    expect_equal(result.returncode, 0, text.decode())
    return text


@test("on a terminal a line tells how it goes, and is gone at the end; --quiet: none")
def live_line():
    # A process that stood still may be at its end before there was anything to tell.
    for seconds in (1.2, 3, 10):
        text = on_terminal("-D", seconds)
        if b" messages/s, " in text:
            break
    expect(b" messages/s, " in text, f"it tells how it goes: {text!r}")
    expect(b"\r\x1b[K" in text, f"the line is taken away: {text!r}")
    for flag in ("--quiet", "--csv"):
        text = on_terminal("-D", 0.7, flag)
        expect(b" messages/s, " not in text, f"{flag}: {text!r}")


@test("SIGINT ends a run early; what was measured is printed all the same")
def interrupt():
    for operation in ("write", "read_lat", "bind", "connect"):
        at_rest()
        before = WORLD["b"].counts()["qps"]
        process = Process("early", command(operation, "-D", 60, "--json"), environment())
        until(lambda: WORLD["b"].counts()["qps"] > before, "its queue pair")
        process.popen.send_signal(signal.SIGINT)
        expect_equal(process.wait(), 0, f"{operation}: {process.log()}")
        result = json.loads(process.log())["results"][0]
        expect(result["seconds"] < 30, f"{operation}: {result}")


# --- refusals ---------------------------------------------------------------------------------


@test("options that cannot be are refused by name, before anything is sent")
def refusals():
    at_rest()
    before = rig.refusals(WORLD["a"].verdicts())
    for arguments, text in (
            (["-s", "x"], "--size x: expected a number"), (["-s", 1 << 31], "--size 2147483648"),
            (["-q", 0], "--qp 0"), (["-t", 9000], "--tx-depth 9000"),
            (["-D", "-1"], "--duration -1"),
            (["-n", "1k"], "--iters 1k"), (["-n", 1, "-D", 1], "--iters and --duration"),
            (["--pattern", "odd"], "sequential, random, zipf or fixed"),
            (["--rate_units", "x"], "MiB/s"),
            (["--rate_limit", 0], "--rate_limit 0"), (["--skew", "-1"], "--skew -1"),
            (["-A", "ADD"], "CMP_AND_SWAP"), (["-c", "XRC"], "RC, UC or UD"),
            (["-c", "UC"], "RC only"),
            (["-S", 3], "priority"), (["-i", 2], "--local"),
            (["-o", 17], "--outs 17"), (["write", "-o", 2], "--outs has no meaning"),
            (["-m", 1024], "`mtu`"), (["-I", 257], "--inline_size 257"),
            (["-x", 9], "the daemon has 1 addresses"), (["--local", "10.66.0.77"], "no such addr"),
            (["-x", 0, "--local", "10.66.0.1"], "one of them"), (["-p", 7], "behind its address"),
            (["-u", 14], "leave --qp-timeout"), (["--tclass", 3], "leave --qp-timeout"),
            (["--skew", 1, "--pattern", "random"], "--skew is that of zipf"),
            (["--summary", "read"], "leave the operation"), (["--summary", "-s", 8], "of its own"), (["--local", "x"], "an IP address"),
            (["--export", "10.66.0.1"], "ADDRESS:PORT"), (["send"], "sends"), (["-b"], "sends"),
            (["atomic", "-s", 16], "atomics have 8 bytes"),
            (["bind", "-a"], "--all has no meaning for bind: it is for write read send"),
            (["connect", "--verify"], "--verify has no meaning for connect"),
            (["read", "--read-share", 3], "it is for mixed"), (["atomic", "--skew", 1], "--skew"),
            (["--windows", 2], "it is for bind connect"), (["-A", "CMP_AND_SWAP"], "atomic cmp"),
            (["-H"], "--latency, --times and"),
            (["connect", "-q", 2], "--qp has no meaning"), (["bind", "-Q", 2], "--cq-mod has no"),
            (["window", "-s", 8], "--size has no"), (["read", "-I", 8], "for write send mixed"),
            (["--times", "--latency"], "anyway"), (["--rate_units", "p"], "belong to --rate_limit"),
            (["-s", 0, "--rate_limit", 1], "--rate_units p"), (["-a", "-s", 8], "leave --size"),
            (["--per-window", 1, "--latency"], "--per-window"),
            (["--per-window", 1, "--verify"], "--per-window"),
            (["--json", "--csv"], "one of them"), (["-Q", 64, "-t", 32], "--cq-mod"),
            (["-q", 4000], "lower --tx-depth or --qp"),
            (["-s", 1048577], "do not fit into the window"),
            (["-d", "/nowhere"], "ORIEL_SOCKET"), (["wrong"], "wrong"), (["--nonsense"], "--help"),
            (["--out_json_file", "/nowhere/x", "-n", 1], "/nowhere/x")):
        result = perf(*arguments)
        expect(result.returncode in (1, 2) and text in result.stderr,
               f"{arguments}: {result.returncode} {result.stderr!r}")
    for operation in ("write", "mixed", "atomic"):
        result = perf(operation, "-n", 1, port=7472)
        expect(result.returncode == 1 and "the window grants no" in result.stderr, result.stderr)
    good("read", "-n", 1, "-s", 64, port=7472)
    expect_equal(rig.refusals(WORLD["a"].verdicts()), before, "what the target has seen")
    at_rest()


@test("much memory is said before it is taken, and what the machine has not is refused")
def much_memory():
    result = perf("write", "-n", 1, "-s", 140000000)
    expect(result.returncode == 1 and "take 267 MiB of memory here\n" in result.stderr
           and "do not fit into the window" in result.stderr, result.stderr)
    meminfo = f"{rig.WORK}/meminfo"
    with open(meminfo, "w", encoding="ascii") as file:
        file.write("MemTotal:       64000000 kB\nMemAvailable:    1000000 kB\n")
    subprocess.run(["mount", "--bind", meminfo, "/proc/meminfo"], check=True)
    try:
        result = perf("write", "-n", 1, "-s", 999999999)
    finally:
        subprocess.run(["umount", "/proc/meminfo"], check=True)
    expect(result.returncode == 1 and "take 1907 MiB" in result.stderr
           and "976 MiB are free: lower --size" in result.stderr, result.stderr)
    at_rest()


@test("--help names every flag that is refused or taken, and the manual has each of them")
def manual():
    def says(flag):
        return subprocess.run([rig.program("oriel-perf"), flag], capture_output=True, text=True,
                              check=True).stdout
    text = says("--help")
    names = re.findall(r"^  (?:-., |    )--([\w-]+)", text, re.M)
    expect(len(names) > 35 and len(set(names)) == len(names), f"flags: {names}")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../doc/oriel-perf.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    expect_equal([name for name in names if f"--{name}" not in page], [], "not in the manual")
    expect(re.match(r"oriel-perf \d", says("-V")), says("-V"))


if __name__ == "__main__":
    rig.main(setup)
