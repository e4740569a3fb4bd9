# SPDX-License-Identifier: BSD-3-Clause
"""oriel-flood against orield: what it says was served is what the daemon says it served."""
import json
import os
import re
import shutil
import signal
import subprocess

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test, until

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write,atomic
"""

# What flood calls a bad frame, and under which verdict the daemon counts it.
REFUSED_AS = {"icrc": "icrc", "opcode": "opcode", "runt": "ip_length"}


class Stage:
    daemon = None


def setup():
    Stage.daemon = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24")
    Target("target", Stage.daemon, EXPORT)


def arguments_of(link):
    return ("-d", rig.memif(link, "client"), "--ip", "10.66.0.2/24", "--target", "10.66.0.1",
            "--cpu", str(rig.cpu(1)), "--json", "-W", "0")


def flood(*arguments):
    """Its JSON."""
    command = [rig.program("oriel-flood"), *arguments_of("link"), "-D", "0.3", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    expect(result.returncode == 0, f"oriel-flood {' '.join(arguments)}: {result.stderr}")
    return json.loads(result.stdout)


def refused(*arguments):
    """What it says when it does not run."""
    command = [rig.program("oriel-flood"), *arguments_of("link"), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    expect(result.returncode in (1, 2), f"{arguments}: exit status {result.returncode}")
    return result.stderr


def served(report, what):
    """Everything sent was acknowledged, first or at another try, and nothing was wrong."""
    counters = report["counters"]
    expect(counters["messages"] > 0, f"{what}: nothing was sent")
    expect_equal(counters["acknowledged"] + counters["resent"], counters["messages"], what)
    expect_equal(counters["fatal"], 0, f"{what}: fatal NAKs")
    expect_equal(counters["answers_wrong"], 0, f"{what}: answers with a wrong ICRC")
    return counters["acknowledged"]


def worker_counters():
    workers = Stage.daemon.ask("stats")["workers"]
    total = {}
    for worker in workers.values():
        for key, value in worker.items():
            if isinstance(value, int):
                total[key] = total.get(key, 0) + value
    return total


@test("writes, reads and atomics of every shape: the daemon counts what the generator counts")
def operations():
    for operation, counter, sizes in (("write", "rx_write", (0, 1, 64, 1024, 5000)),
                                      ("read", "rx_read", (1, 64, 5000)),
                                      ("atomic", "rx_atomic", (8,))):
        for size in sizes:
            before = worker_counters()
            report = flood("-o", operation, "-s", str(size), "-q", "3", "--check")
            count = served(report, f"{operation} of {size}")
            moved = worker_counters()[counter] - before[counter]
            expect(moved >= count, f"{operation} of {size}: {count} served, {moved} counted")


@test("frames that must be refused are, each under its own name, and cost no connection")
def bad_frames():
    for kind, verdict in REFUSED_AS.items():
        before = Stage.daemon.verdicts()
        report = flood("--bad", "0.1", "--bad-kinds", kind)
        served(report, kind)
        sent = report["counters"]["bad"][kind]

        moved = lambda before=before: Stage.daemon.verdicts() - before  # noqa: E731
        until(lambda: moved()[verdict] == sent, lambda: f"{kind}: {sent} counted, not {moved()}")
    report = flood("--bad", "0.2")
    served(report, "all kinds")
    expect_equal(sorted(report["counters"]["bad"]),
                 ["duplicate", "icrc", "opcode", "peer", "qpn", "runt"], "kinds sent")


@test("queue pairs and windows of an oriel-sink, each message at one chosen by chance")
def sink():
    baseline = Stage.daemon.counts()
    table = f"{rig.WORK}/table"
    sink_process = Process("sink", [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--table",
                                    table, "-q", "200", "-w", "1000", "--receive", "64"],
                           {"ORIEL_SOCKET": Stage.daemon.socket})
    report = flood("--table", table, "-q", "200", "--random")
    expect_equal((report["qps"], report["windows"]), (200, 1000), "queue pairs and windows")
    served(report, "random writes")
    expect_equal(sink_process.stop(), 0, "exit status of the sink")
    Stage.daemon.expect_counts(baseline)


def mappings(process):
    with open(f"/proc/{process.pid}/maps", encoding="ascii") as file:
        return len(file.readlines())


@test("queue pairs that send too seldom for an AckReq ask for it: what is not lost is not sent again")
def seldom():
    table = f"{rig.WORK}/table-seldom"
    sink_process = Process("sink", [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--table",
                                    table, "-q", "500"], {"ORIEL_SOCKET": Stage.daemon.socket})
    def few_again():  # the daemon itself may have been late in some run, on a busy machine
        report = flood("--table", table, "-q", "500", "-r", "1000", "-D", "0.6", "-a", "1000")
        served(report, "two messages a second on each")
        return report["counters"]["resent"] < report["counters"]["messages"] / 2
    until(few_again, "most are acknowledged when asked for")
    expect_equal(sink_process.stop(), 0, "exit status of the sink")


@test("thousands of queue pairs and windows: they share mappings, of which a process has 65,530")
def thousands():
    baseline, before = Stage.daemon.counts(), mappings(Stage.daemon)
    table = f"{rig.WORK}/table-thousands"
    sink_process = Process("sink", [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--table",
                                    table, "-q", "5000", "-w", "8000"],
                           {"ORIEL_SOCKET": Stage.daemon.socket})
    report = flood("--table", table, "-q", "5000", "--windows", "8000", "--random")
    expect_equal((report["qps"], report["windows"]), (5000, 8000), "queue pairs and windows")
    served(report, "random writes")
    expect(mappings(Stage.daemon) - before < 100, f"{mappings(Stage.daemon)} of the daemon")
    expect(mappings(sink_process) < 200, f"{mappings(sink_process)} of the client")
    expect_equal(sink_process.stop(), 0, "exit status of the sink")
    Stage.daemon.expect_counts(baseline)


@test("the manual's own commands: daemon, sink and generator as they stand in doc/performance.md")
def manual():
    with open(f"{os.path.dirname(os.path.abspath(__file__))}/../../doc/performance.md",
              encoding="utf-8") as file:
        chapter = file.read().split("## By hand: oriel-flood and oriel-sink")[1].split("\n## ")[0]
    config, commands = (block.strip("\n") for block in chapter.split("```")[1:4:2])
    with open("flood.conf", "w", encoding="ascii") as file:
        file.write(re.sub(r"(workers|control-core) = \d", rf"\1 = {rig.cpu(0)}", config))
    lines = [line.strip(" &").replace("build/", f"{rig.build_root()}/")
             for line in commands.splitlines()]
    started = []
    for line, said in zip(lines, ("orield: ready", "oriel-sink: ", "seconds ")):
        if "oriel-flood" in line:
            line += f" -D 0.2 --cpu {rig.cpu(1)}"
        started.append(Process("manual", ["bash", "-c", f"exec env {line}"]))
        started[-1].wait_log(said)
    daemon, sink_process, generator = started
    expect_equal(generator.wait(), 0, f"exit status of oriel-flood: {generator.log()}")
    expect("1000 queue pairs, 10000 windows" in generator.log(), generator.log())
    expect_equal(sink_process.stop(), 0, f"exit status of oriel-sink: {sink_process.log()}")
    expect_equal(daemon.stop(), 0, "exit status of the daemon")


@test("a table says where each queue pair stands, so that a second run goes on, with part of it")
def table_goes_on():
    table = f"{rig.WORK}/table-again"
    sink_process = Process("sink", [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--table",
                                    table, "-q", "20", "-w", "50"],
                           {"ORIEL_SOCKET": Stage.daemon.socket})
    before = worker_counters()["rx_write"]
    count = 0
    for qps, windows in ((20, 50), (3, 7), (20, 50)):
        report = flood("--table", table, "-q", str(qps), "--windows", str(windows), "--random")
        expect_equal((report["qps"], report["windows"]), (qps, windows), "queue pairs and windows")
        count += served(report, "one of several runs")
    expect(worker_counters()["rx_write"] - before >= count, "the daemon has counted all runs")
    more = refused("--table", table, "-q", "21")
    expect("the table has fewer queue pairs than --qps" in more, more)
    expect_equal(sink_process.stop(), 0, "exit status of the sink")
    expect(not os.path.exists(table), "the table of a sink that is gone is still there")


@test("who waits for a table says so, and ends when told; where none can be, nobody waits")
def table_waits():
    arguments = [rig.program("oriel-flood"), *arguments_of("link"), "--table"]
    waiting = Process("flood", [*arguments, f"{rig.WORK}/nobody-writes-it"])
    waiting.wait_log("/nobody-writes-it: oriel-sink --table writes it")
    waiting.popen.send_signal(signal.SIGINT)
    expect_equal(waiting.wait(), 1, "exit status")
    expect("stopped" in waiting.log(), waiting.log())
    said = refused("--table", "/nowhere/table")
    expect("/nowhere/table: No such file" in said, said)
    sink_process = Process("sink", [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--table",
                                    "/nowhere/table"], {"ORIEL_SOCKET": Stage.daemon.socket})
    expect_equal(sink_process.wait(), 1, "exit status of the sink")
    expect("/nowhere/table.part: No such file" in sink_process.log(), sink_process.log())
    many = Process("sink", [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--table",
                            f"{rig.WORK}/table-many", "-q", "17000"],
                   {"ORIEL_SOCKET": Stage.daemon.socket})
    expect_equal(many.wait(), 1, "exit status with more queue pairs than there are")
    expect("max-queue-pairs in orield's configuration" in many.log(), many.log())
    expect(not os.path.exists(f"{rig.WORK}/table-many.part"), "half a table was left")


@test("a sink whose generator is not there says what it waits for; without its daemon it ends")
def sink_waits():
    daemon = Daemon("brief", rig.memif("brief", "server"), "10.66.0.1/24")
    arguments = [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--churn", "--table"]
    for kill in (False, True):
        sink_process = Process("sink", [*arguments, f"{rig.WORK}/table-brief"],
                               {"ORIEL_SOCKET": daemon.socket})
        sink_process.wait_log("start oriel-flood with the same --table")
        if kill:
            daemon.kill()
            expect_equal(sink_process.wait(), 1, "exit status without a daemon")
            expect("STATUS_DEVICE_REMOVED" in sink_process.log(), sink_process.log())
        else:
            expect_equal(sink_process.stop(), 1, "exit status when told to end")
            expect("stopped before it was ready" in sink_process.log(), sink_process.log())
            expect("STATUS_" not in sink_process.log(), sink_process.log())


@test("a sink that serves ends when its daemon is killed, also while it binds all the time")
def sink_without_daemon():
    daemon = Daemon("lost", rig.memif("lost", "server"), "10.66.0.1/24")
    table = f"{rig.WORK}/table-lost"
    sinks = [Process("sink", [rig.program("oriel-sink"), "--peer", "10.66.0.2", "--table",
                              f"{table}{number}", *more], {"ORIEL_SOCKET": daemon.socket})
             for number, more in enumerate(((), ("--churn",)))]
    for number in range(len(sinks)):
        served(flood("-d", rig.memif("lost", "client"), "--table", f"{table}{number}"), "a run")
    daemon.kill()
    for sink_process in sinks:
        expect_equal(sink_process.wait(), 1, "exit status")
        expect("STATUS_DEVICE_REMOVED" in sink_process.log(), sink_process.log())


@test("the other end of the link may come later; who waits for it says so")
def late_server():
    process = Process("flood", [rig.program("oriel-flood"), *arguments_of("late"), "-D", "0.1"])
    process.wait_log("nobody listens on /run/it/late.memif yet")
    daemon = Daemon("late", rig.memif("late", "server"), "10.66.0.1/24")
    target = Target("target-late", daemon, EXPORT)
    status = process.wait()  # 0, or too early for the target: then the reason is not the link
    expect(status == 0 or "nobody exports" in process.log() or "refuses" in process.log(),
           process.log())
    expect("does not start" not in process.log(), process.log())
    for other in (target, daemon):
        other.kill()


@test("a rate is not exceeded; the search says what it has found")
def rates():
    report = flood("-r", "3000", "-q", "2")
    served(report, "3000 a second")
    most = 3000 * report["seconds"] + 32
    expect(report["counters"]["messages"] <= most,
           f"{report['counters']['messages']} messages, at most {most:.0f} were asked for")
    report = flood("--search", "-D", "0.05", "--loss", "0.5")
    served(report, "the last step of the search")
    expect(report["highest_rate"] >= 0, "the search has a result")
    expect(report["limit"] in (None, "messages were lost", "the rate was not reached"),
           f"why it is not higher: {report['limit']}")
    if report["highest_rate"]:
        expect(report["sent_per_second"] <= 1.001 * report["highest_rate"] + 32 / report["seconds"],
               f"what is reported is of that rate: {report}")


@test("queue pairs spread over the queues of a port, as the daemon has workers")
def queues():
    if rig.cpu(0) == rig.cpu(1):
        raise rig.Skip("two workers need two processors")
    daemon = Daemon("two", rig.memif("two", "server"), "10.66.0.1/24",
                    workers=f"{rig.cpu(0)},{rig.cpu(1)}")
    target = Target("target-two", daemon, EXPORT)
    served(flood("-d", rig.memif("two", "client"), "-q", "5", "--queues", "2"), "two queues")
    workers = daemon.ask("stats")["workers"]
    expect(all(worker["rx_write"] for worker in workers.values()), f"both have work: {workers}")
    for process in (target, daemon):
        process.kill()


@test("a daemon that is killed in a run has not lost messages, it is gone: the run has failed")
def killed():
    daemon = Daemon("mortal", rig.memif("mortal", "server"), "10.66.0.1/24")
    target = Target("target-mortal", daemon, EXPORT)
    process = Process("flood", [rig.program("oriel-flood"), *arguments_of("mortal"), "-D", "600"])
    until(lambda: any(worker["rx_write"] for worker in daemon.ask("stats")["workers"].values()),
          "the run is under way")
    daemon.kill()
    process.popen.send_signal(signal.SIGINT)
    expect_equal(process.wait(), 1, "exit status of oriel-flood")
    expect("does not answer any more" in process.log(), process.log())
    target.kill()


@test("testpmd as the other end: all it takes counts, and what comes back is whose it was")
def testpmd():
    if not shutil.which("dpdk-testpmd"):
        raise rig.Skip("no dpdk-testpmd")
    for number, (mode, arguments) in enumerate((
            ("rxonly", ()), ("macswap", ("-o", "read", "-q", "7")),
            ("macswap", ("-s", "5000", "--latency")), ("icmpecho", ("-q", "3")))):
        other = Process("testpmd", [
            "dpdk-testpmd", "--lcores", f"0@{rig.cpu(0)},1@{rig.cpu(0)}", "--file-prefix", "it",
            "--no-pci", "--no-huge", "-m", "128", "--vdev",
            rig.memif(f"testpmd{number}", "server"), "--", "--total-num-mbufs=8192", "--no-mlockall",
            f"--forward-mode={mode}", "--auto-start", "--stats-period=1000"])
        other.wait_log("start packet forwarding")
        report = flood("-d", rig.memif(f"testpmd{number}", "client"), "--testpmd", mode, "--histogram",
                       *arguments)
        served(report, mode)
        expect_equal(report["peer"], mode, "peer")
        if mode == "macswap" and "--latency" in arguments:
            expect_equal(sum(count for _, count in report["histogram"]),
                         report["latency"]["samples"], "samples of the histogram")
        other.kill()


@test("an unknown export, a silent target and bad arguments are refused with a reason")
def refusals():
    for arguments, reason in ((("--name", "nothing"), "no such export"),
                              (("-p", "7472"), "refuses the connection"),
                              (("-s", "2000000"), "fewer than --size"),
                              (("-m", "4096"), "at most 1024"),
                              (("--windows", "5"), "belongs to --table"),
                              (("--table", "x", "-p", "7"), "leave them away with --table"),
                              (("--testpmd", "rxonly", "--bad", "1"), "refuses nothing"),
                              (("-o", "send"), "oriel-sink --receive"),
                              (("-o", "atomic", "-s", "16"), "atomics have 8 bytes"),
                              (("--latency", "-t", "4"), "one message at a time"),
                              (("--search", "-r", "5"), "leave --rate away"),
                              (("--loss", "0.1"), "belongs to --search"),
                              (("--bad-kinds", "icrc"), "belongs to --bad"),
                              (("--histogram",), "for --json"),
                              (("--cpu", "1023"), "--cpu 1023: this process may not"),
                              (("-o", "copy"), "expected write, read, send or atomic"),
                              (("--testpmd", "io"), "expected rxonly, macswap or icmpecho")):
        command = [rig.program("oriel-flood"), "-d", rig.memif("link", "client"), "--ip",
                   "10.66.0.2/24", "--target", "10.66.0.1", "--cpu", str(rig.cpu(1)), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        expect(result.returncode not in (0, None) and result.returncode > 0,
               f"{arguments}: exit status {result.returncode}")
        expect(reason in result.stderr, f"{arguments}: {result.stderr}")


if __name__ == "__main__":
    rig.main(setup)
