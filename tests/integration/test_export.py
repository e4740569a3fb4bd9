# SPDX-License-Identifier: BSD-3-Clause
"""Exports from end to end: two daemons, clients on libndk, restarts, files, refusals."""
import os
import random
import signal
import subprocess
import time

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test, until

SIZE = 1 << 20
HEAP_GROWTH_KIB = 256  # of a daemon over the second half of its targets
EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write,atomic
allow = 10.66.0.0/24
[export readonly]
listen = 10.66.0.1:7472
size = 64K
[export narrow]
listen = 10.66.0.1:7473
size = 64K
allow = 10.66.0.77
"""


def server(role="server", **options):
    return Daemon("a", rig.memif("link", role), "10.66.0.1/24", **options)


def client(role="client", **options):
    return Daemon("b", rig.memif("link", role), "10.66.0.2/24", number=1, **options)


def stop(*processes):
    for process in processes:
        expect_equal(process.stop(), 0, f"exit status of {process.name}; it said {process.log()}")


def steady(daemon, *arguments, port=7471):
    return Process("steady", [rig.program("steady"), "10.66.0.1", str(port), "10.66.0.2",
                              *arguments], {"ORIEL_SOCKET": daemon.socket})


def once(daemon, *arguments, port=7471):
    """A client that must succeed."""
    process = steady(daemon, *arguments, port=port)
    expect_equal(process.wait(120), 0, f"steady {arguments}: {process.log()}")


def perf(daemon, *arguments, port=7471):
    return subprocess.run([rig.program("oriel-perf"), "--export", f"10.66.0.1:{port}", *arguments],
                          capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "ORIEL_SOCKET": daemon.socket})


def perf_good(daemon, *arguments, port=7471):
    result = perf(daemon, *arguments, port=port)
    expect_equal(result.returncode, 0, f"oriel-perf {arguments}: {result.stderr}")
    return result.stdout


@test("writes and reads of every size around the MTU come back as they went; the counters agree")
def verify():
    a, b = server(), client()
    target = Target("target", a, EXPORT)
    baseline = [a.counts(), b.counts()]
    expect("verified" in perf_good(b, "--verify", "-n", "10"), "oriel-perf says what it verified")
    before = a.ask("stats")["workers"]["0"]
    perf_good(b, "-s", "4096", "-n", "500", "write")
    perf_good(b, "-s", "3000", "-n", "300", "read")
    after = a.ask("stats")["workers"]["0"]
    moved = {key: after[key] - before[key] for key in after}
    expect_equal([moved[key] for key in ("rx_write", "rx_write_bytes", "rx_read", "rx_read_bytes")],
                 [500, 500 * 4096, 300, 300 * 3000], "B130: messages and bytes by kind")
    for size in ("1", "1023", "1024", "1025", "65537", "1048576"):
        for operation in ("write", "read"):
            perf_good(b, "-s", size, "-n", "20", operation)
    expect_equal(rig.refusals(a.verdicts()), {}, "refusals of a good client")
    once(b, "fill", "1")
    once(b, "verify", "1")
    a.expect_counts(baseline[0])
    b.expect_counts(baseline[1])
    stop(target, b, a)


@test("B93, B68: clients that end, or are killed, again and again leave nothing; each end is quick")
def ends():
    a, b = server(), client()
    target = Target("target", a, EXPORT)
    baseline = [a.counts(), b.counts()]
    rounds = 8 if rig.QUICK else 40
    started = time.monotonic()
    for _ in range(rounds):
        perf_good(b, "-n", "5")
    rig.note(f"{rounds} connections made, used and ended in {time.monotonic() - started:.1f} s")
    for number in range(rounds):
        process = steady(b, "loop")
        if number % 2:
            process.wait_log("connected")
        time.sleep(random.random() * 0.03)
        process.kill()
    a.expect_counts(baseline[0])
    b.expect_counts(baseline[1])
    once(b, "fill", "2")
    stop(target, b, a)


@test("B93: targets that are killed one after another leave no memory behind in the daemon")
def killed_targets():
    a = server()
    baseline = a.counts()
    rounds = 5 if rig.QUICK else 15

    def some():
        for _ in range(rounds):
            Target("target", a, EXPORT).kill()
            a.expect_counts(baseline)
        return a.anonymous_kib()
    before = some()
    after = some()
    rig.note(f"{before} KiB of heap and stacks after {rounds}, {after} after {2 * rounds}")
    expect(after - before < HEAP_GROWTH_KIB, f"{before} KiB, then {after}")
    stop(a)


@test("a living peer of which nobody wants anything is asked whether it is there, and hears nothing")
def probes():
    a, b = server(), client()
    target = Target("target", a, EXPORT, probe=1)
    peer = steady(b, "watch")
    peer.wait_log("connected")

    def asked():
        """Messages to write that have come to the peer, and their bytes."""
        counted = b.ask("stats")["workers"]["0"]
        return counted["rx_write"], counted["rx_write_bytes"]
    until(lambda: asked()[0] >= 2, "a living peer is asked again and again")
    expect_equal(asked()[1], 0, "bytes that a probe writes")
    expect(peer.alive() and "disconnected" not in peer.log(), "the peer hears nothing of it")
    expect_equal(rig.refusals(b.verdicts()), {}, "refusals of probes")
    peer.kill()
    stop(target, b, a)


@test("a target that ends tells its clients; the next one serves at the same port at once")
def target_restart():
    a, b = server(), client()
    for number in range(3):
        target = Target("target", a, EXPORT)
        watcher = steady(b, "watch")
        watcher.wait_log("connected")
        if number % 2:
            target.kill()
        else:
            stop(target)
        watcher.wait_log("disconnected")
        expect_equal(watcher.wait(), 0, "the client's exit status")
        expect("nobody exports" in perf(b, "-n", "1").stderr, "a port where nobody listens")
        until(lambda: a.counts()["sessions"] == 0 and a.counts()["qps"] == 0, "all freed")
    stop(b, a)


@test("B97: kill -9 of the daemon under a target: it comes back by itself, exported data intact")
def daemon_restart():
    rig.veth("d4", "p4")

    def again():
        return Daemon("a", "net_af_packet0,iface=d4", "10.66.0.1/24")
    a = again()
    b = Daemon("b", "net_af_packet0,iface=p4", "10.66.0.2/24", number=1)
    target = Target("target", a, EXPORT)
    once(b, "fill", "77")
    rounds = 2 if rig.QUICK else 5
    for number in range(1, 1 + rounds):
        some = [steady(b, "watch") for _ in range(4)]
        for process in some:
            process.wait_log("connected")
        a.kill()
        a = again()
        target.wait_log("oriel-target: serving", number + 1)
        once(b, "verify", "77")
        for process in some:
            process.stop()
    once(b, "fill", "78")
    stop(a)
    until(lambda: "the daemon is gone" in target.log().rsplit("serving", 1)[1], "it notices")
    a = again()
    target.wait_log("oriel-target: serving", rounds + 2)
    once(b, "verify", "78")
    stop(target, b, a)


@test("B110: the memif client's daemon may restart, whichever end it is of an export", slow=True)
def link_restart():
    for exporter in ("server", "client"):
        # Who listens at the link's socket has to be there first.
        b = client("server") if exporter == "client" else None
        a = server(exporter)
        b = b or client("client")
        target = Target("target", a, EXPORT)
        once(b, "fill", "9")
        for number in range(2 if rig.QUICK else 5):
            if exporter == "server":
                b.kill()
                b = client("client")
            else:
                a.kill()
                a = server("client")
                target.wait_log("oriel-target: serving", number + 2)
            once(b, "verify", "9")
        stop(target, b, a)


@test("B110: the memif server's daemon restarts: the other end connects to it again by itself")
def link_server_restart():
    a, b = server(), client()
    target = Target("target", a, EXPORT)
    once(b, "fill", "9")
    a.kill()
    a = server()
    target.wait_log("oriel-target: serving", 2)
    expect(b.alive() and b.status()["pid"] == b.pid, "the other daemon answers")
    rig.until(lambda: b.port()["link"] == "up", "the link comes up again")
    rig.until(lambda: steady(b, "verify", "9").wait() == 0, "the export is there again")
    stop(target, b, a)


@test("a target that starts before its daemon waits for it")
def early_target():
    class Nobody:
        """A daemon that is not there yet."""
        socket = f"{rig.WORK}/a.sock"
    target = Target("target", Nobody, EXPORT, wait=False)
    target.wait_log("trying again")
    a, b = server(), client()
    target.wait_log("oriel-target: serving")
    once(b, "fill", "3")
    stop(target, b, a)


@test("a file is loaded at start, written back by SIGHUP and SIGTERM; its owner and mode stay")
def files():
    a, b = server(), client()
    path = f"{rig.WORK}/export.bin"
    content = os.urandom(SIZE)
    rig.write_file("export.bin", content)
    os.chmod(path, 0o640)
    os.chown(path, 1, 2)
    export = (f"[export file]\nlisten = 10.66.0.1:7471\nbacking = file:{path}\n"
              "access = read,write\n")
    target = Target("target", a, export)
    expect("verified" not in perf_good(b, "-s", "4096", "-n", "256", "read"), "reads only")
    with open(path, "rb") as file:
        expect_equal(file.read() == content, True, "the file before anything was written")
    once(b, "fill", "11")
    os.kill(target.pid, signal.SIGHUP)

    def written():
        with open(path, "rb") as file:
            return file.read() != content
    until(written, "SIGHUP writes the file back")
    with open(path, "rb") as file:
        flushed = file.read()
    expect_equal(len(flushed), SIZE, "size of the file")
    once(b, "fill", "12")
    stop(target)
    with open(path, "rb") as file:
        expect(file.read() not in (content, flushed), "SIGTERM writes the file back")
    status = os.stat(path)
    expect_equal((status.st_mode & 0o777, status.st_uid, status.st_gid), (0o640, 1, 2),
                 "mode and owner of the file")
    expect_equal(sorted(name for name in os.listdir(rig.WORK) if name.startswith("export.bin")),
                 ["export.bin"], "files left behind")
    target = Target("target", a, export)
    once(b, "verify", "12")
    target.kill()
    target = Target("target", a, export + "size = 2M\n")
    expect_equal(os.stat(path).st_size, SIZE, "size of the file while a larger export runs")
    stop(target)
    expect_equal(os.stat(path).st_size, 2 * SIZE, "size of the file behind it")
    stop(b, a)


@test("files that cannot be: refused at start by name and line; nothing is created or changed")
def bad_files():
    rig.write_file("small.bin", b"x" * 100)
    for backing, size, mention in (("/run/it/absent/export.bin", "1M", "absent"),
                                   ("/run/it/small.bin", "50", "longer than size"),
                                   ("/run/it", "1M", "/run/it")):
        path = rig.write_file("bad.conf", "[export a]\nlisten = 10.66.0.1:7471\n"
                              f"backing = file:{backing}\nsize = {size}\n")
        result = subprocess.run([rig.program("oriel-target"), "--config", path],
                                capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
        expect(result.returncode > 0 and mention in result.stderr and
               result.stderr.startswith(f"{path}:"),
               f"{backing}: {result.returncode} {result.stderr}")
    with open("/run/it/small.bin", "rb") as file:
        expect_equal(file.read(), b"x" * 100, "the file that was too long")


@test("refusals have a name for the client's user")
def refusals():
    a, b = server(), client()
    target = Target("target", a, EXPORT)
    for arguments, port, text in ((["--name", "absent"], 7471, "no such export"),
                                  (["--name", "readonly"], 7471, "no such export"),
                                  ([], 7473, "peer is not allowed"), ([], 7479, "nobody exports")):
        result = perf(b, *arguments, "-n", "1", port=port)
        expect(result.returncode > 0 and text in result.stderr,
               f"{arguments} at {port}: {result.returncode} {result.stderr}")
    result = perf(b, "-n", "1", "write", port=7472)
    expect(result.returncode > 0 and "grants no write" in result.stderr,
           f"a write to what may be read only: {result.stderr}")
    process = steady(b, "fill", "1", port=7472)
    expect(process.wait() > 0 and "ACCESS_VIOLATION" in process.log(),
           f"a write to what may be read only, tried all the same: {process.log()}")
    perf_good(b, "-s", "1024", "-n", "1", "read", port=7472)
    perf_good(b, "--name", "scratch", "-n", "1")
    stop(target, b, a)


@test("B78: a foreign address or a port that is taken is told with the line; a wildcard is all")
def listening():
    a, b = server(), client()
    foreign = Target("foreign", a, "[export x]\nlisten = 10.66.9.9:7471\nsize = 4K\n", wait=False)
    foreign.wait_log(f"{foreign.config}:5: ")
    foreign.wait_log("not an address of the daemon's ports")
    stop(foreign)
    target = Target("target", a, "[export x]\nlisten = 0.0.0.0:7471\nsize = 1M\n"
                    "access = read,write\n")
    once(b, "fill", "4")
    taken = Target("taken", a, EXPORT, wait=False)
    taken.wait_log("another program listens there")
    stop(target)
    taken.wait_log("oriel-target: serving")
    once(b, "fill", "5")
    stop(taken, b, a)


@test("B69, B34: link down under load: programs end, and with the link up all works again",
      slow=True)
def link_down():
    rig.veth("d3", "p3")
    a = Daemon("a", "net_af_packet0,iface=d3", "10.66.0.1/24")
    b = Daemon("b", "net_af_packet0,iface=p3", "10.66.0.2/24", number=1)
    target = Target("target", a, EXPORT)
    some = [Process("load", [rig.program("oriel-perf"), "--export", "10.66.0.1:7471", "-D", "60"],
                    {"ORIEL_SOCKET": b.socket}) for _ in range(3)]
    until(lambda: a.ask("stats")["workers"]["0"]["rx_write"] > 100, "load on the link")
    subprocess.run(["ip", "link", "set", "d3", "down"], check=True)
    some[0].kill()
    stop(target)
    for process in some[1:]:
        expect(process.wait(120) > 0, "a client whose link is gone")
    until(lambda: a.counts()["qps"] == 0 and b.counts()["qps"] == 0, "all freed", patience=60)
    subprocess.run(["ip", "link", "set", "d3", "up"], check=True)
    target = Target("target", a, EXPORT)
    until(lambda: perf(b, "-n", "1").returncode == 0, "service after the link came back")
    once(b, "fill", "6")
    stop(target, b, a)


@test("many clients at once are all served")
def many():
    a, b = server(), client()
    target = Target("target", a, EXPORT)
    baseline = a.counts()
    some = [steady(b, "watch") for _ in range(12 if rig.QUICK else 40)]
    for process in some:
        process.wait_log("connected")
    expect_equal(a.counts()["connections"], len(some), "connections at the target's daemon")
    once(b, "fill", "8")
    for process in some:
        process.popen.send_signal(signal.SIGTERM)
    for process in some:
        expect_equal(process.wait(), 0, "exit status of a client")
    a.expect_counts(baseline)
    stop(target, b, a)


if __name__ == "__main__":
    rig.main()
