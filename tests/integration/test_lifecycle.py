# SPDX-License-Identifier: BSD-3-Clause
"""Start, stop, crash and restart of orield; strangers at its socket; what it costs at rest."""
import contextlib
import glob
import os
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test, until

RESIDENT_LIMIT = 200 * 1024  # KiB, of a daemon at rest

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write,atomic
"""

HELLO = struct.Struct("<IIIHH32s")
WELCOME = struct.Struct("<IIIiHHIIIQ128s")
MAGIC = 0x4F52484C
with open(f"{os.path.dirname(os.path.abspath(__file__))}/../../lib/shm/layout.h",
          encoding="ascii") as header:
    LAYOUT = int(re.search(r"#define SHM_LAYOUT_VERSION (\d+)u", header.read()).group(1))


def daemon(name="a", **options):
    return Daemon(name, rig.memif("link", "server"), "10.66.0.1/24", **options)


def pair():
    """Two daemons with a link between, a target at the first."""
    server = daemon()
    client = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", number=1)
    return server, client, Target("target", server, EXPORT)


def steady(peer, *arguments):
    return Process("steady", [rig.program("steady"), "10.66.0.1", "7471", "10.66.0.2", *arguments],
                   {"ORIEL_SOCKET": peer.socket})


def strange_socket(server):
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stranger.connect(server.socket)
    stranger.settimeout(rig.PATIENCE)
    return stranger


@test("SIGTERM and SIGINT end the daemon with status 0; socket and telemetry link are gone")
def stop():
    for number in (signal.SIGTERM, signal.SIGINT):
        server = daemon()
        link = f"{server.socket}.telemetry"
        expect(os.path.islink(link) and os.path.exists(server.socket), "socket and link are there")
        started = time.monotonic()
        server.popen.send_signal(number)
        expect_equal(server.wait(), 0, f"exit status after signal {number}")
        rig.note(f"ended {time.monotonic() - started:.2f} s after signal {number}")
        expect(not os.path.lexists(link), "the telemetry link is still there")
        expect(not os.path.lexists(server.socket), "the socket is still there")


@test("a daemon with sessions, connections and traffic ends as cleanly")
def stop_busy():
    server, client, target = pair()
    traffic = steady(client, "loop")
    traffic.wait_log("round")
    expect_equal(server.stop(), 0, "exit status of the server's daemon")
    expect(traffic.wait() > 0, "the traffic must fail")
    expect_equal(client.stop(), 0, "exit status of the client's daemon")
    expect_equal(target.stop(), 0, "exit status of the target")


@test("B96: after kill -9 the same socket serves again")
def crash():
    for _ in range(3):
        server = daemon()
        server.kill()
        expect(os.path.exists(server.socket), "a killed daemon leaves its socket")
    server = daemon()
    target = Target("target", server, EXPORT)
    expect_equal(server.status()["listeners"], 1, "listeners after the restart")
    expect_equal(target.stop(), 0, "the target's exit status")
    expect_equal(server.stop(), 0, "exit status")


@test("B96: a second daemon on a living one's socket is refused and says who holds it")
def second():
    server = daemon()
    other = Daemon("a", rig.memif("other", "server"), "10.66.1.1/24", wait=False)
    expect(other.wait() > 0, "the second daemon must fail")
    expect(str(server.pid) in other.log(), f"pid {server.pid} is not named in: {other.log()}")
    expect(os.path.exists(server.socket), "the living daemon's socket is gone")
    expect_equal(server.status()["pid"], server.pid, "who answers at the socket")
    expect_equal(server.stop(), 0, "exit status")


@test("B114: daemons side by side, started at the same time", slow=True)
def side_by_side():
    for _ in range(1 if rig.QUICK else 4):
        some = [Daemon(f"s{n}", rig.memif(f"s{n}", "server"), f"10.66.{n}.1/24", number=n,
                       wait=False) for n in range(4)]
        for server in some:
            server.wait_log("orield: ready")
        expect_equal([server.status()["pid"] for server in some], [server.pid for server in some],
                     "each answers for itself")
        for server in some:
            expect_equal(server.stop(), 0, "exit status")


@test("B114: a daemon that may not have the address space ends with a reason")
def address_space():
    config = daemon("probe")
    config.stop()
    result = subprocess.run(["bash", "-c", f"ulimit -v 200000; exec {rig.program('orield')} "
                             f"--config {config.config}"], capture_output=True, text=True,
                            timeout=rig.PATIENCE, check=False)
    if "AddressSanitizer" in result.stderr:
        raise rig.Skip("the sanitizer needs more address space itself")
    expect(result.returncode > 0 and result.stderr.startswith("orield:"),
           f"status {result.returncode}: {result.stderr}")


@test("B96: thousands of connects without a hello, or with half of one, cost no descriptor")
def strangers():
    server = daemon()
    before = server.descriptors()
    for number in range(400 if rig.QUICK else 2000):
        stranger = strange_socket(server)
        if number % 2:
            stranger.send(b"x" * random.randrange(1, 300))
        stranger.close()
    until(lambda: server.descriptors() <= before,
          lambda: f"{before} descriptors again, there are {server.descriptors()}")
    expect_equal(server.status()["sessions"], 0, "sessions")
    server.stop()


@test("a crowd that connects and says nothing keeps nobody else out for long", slow=True)
def silent_crowd():
    if rig.QUICK:
        raise rig.Skip("takes as long as the daemon's patience with the silent")
    server = daemon()
    before = server.descriptors()
    crowd = [strange_socket(server) for _ in range(60)]
    target = Target("target", server, EXPORT)
    for stranger in crowd:
        stranger.close()
    expect_equal(target.stop(), 0, "the target's exit status")
    until(lambda: server.descriptors() <= before,
          lambda: f"{before} descriptors again, there are {server.descriptors()}")
    server.stop()


@test("B105: a hello that is wrong is answered by a welcome that says why")
def wrong_hello():
    server = daemon()
    good = (1, MAGIC, LAYOUT, 1, 2, b"test")
    for change, mention in (((1, 0x12345678), "hello"), ((0, 2), "hello"), ((2, 99), "99"),
                            ((2, 0), "layout"), ((3, 9), "9.2"), ((4, 9), "1.9")):
        fields = list(good)
        fields[change[0]] = change[1]
        stranger = strange_socket(server)
        stranger.send(HELLO.pack(*fields))
        answer = stranger.recv(4096)
        expect_equal(len(answer), WELCOME.size, f"size of the answer to {fields}")
        welcome = WELCOME.unpack(answer)
        expect(welcome[3] < 0 and mention in welcome[10].decode(),
               f"{fields}: status {welcome[3]:#x}, '{welcome[10].decode()}' lacks '{mention}'")
        expect_equal(stranger.recv(4096), b"", "the connection after a refusal")
    until(lambda: server.status()["sessions_refused"] == 6, "six refusals are counted")
    server.stop()


@test("a client's name cannot write lines of its own into the log")
def name():
    server = daemon()
    client = strange_socket(server)
    client.send(HELLO.pack(1, MAGIC, LAYOUT, 1, 2, b"a\norield: all is lost"))
    expect_equal(WELCOME.unpack(client.recv(4096))[3], 0, "status of the welcome")
    client.close()
    server.wait_log("ended")
    expect("(a?orield: all is lost, pid" in server.log(), "the name in the log")
    server.stop()


@test("a client whose hello carries descriptors is refused and they are closed")
def hello_with_descriptors():
    server = daemon()
    before = server.descriptors()
    for count in (1, 17, 100):
        stranger = strange_socket(server)
        devnull = os.open("/dev/null", os.O_RDONLY)
        socket.send_fds(stranger, [HELLO.pack(1, MAGIC, LAYOUT, 1, 2, b"test")], [devnull] * count)
        os.close(devnull)
        # Closed before it was read, by a daemon whose patience was over, it is refused as well.
        with contextlib.suppress(ConnectionResetError):
            stranger.recv(4096)
        stranger.close()
    until(lambda: server.descriptors() <= before and server.status()["sessions"] == 0,
          lambda: f"{before} descriptors again, there are {server.descriptors()}")
    server.stop()


@test("SIGTERM of a daemon tells its peers: a client elsewhere gets its disconnect event")
def tells_peers():
    server, client, target = pair()
    baseline = client.counts()
    watcher = steady(client, "watch")
    watcher.wait_log("connected")
    expect_equal(server.stop(), 0, "exit status")
    watcher.wait_log("disconnected")
    expect_equal(watcher.wait(), 0, "the watcher's exit status")
    client.expect_counts(baseline)
    target.stop()
    client.stop()


@test("a local client learns that its daemon stops")
def tells_clients():
    server, client, target = pair()
    watcher = steady(client, "watch")
    watcher.wait_log("connected")
    expect_equal(client.stop(), 0, "exit status")
    expect_equal(watcher.wait(), 0, "the waiting client's exit status")
    expect("removed" in watcher.log() or "disconnected" in watcher.log(), watcher.log())
    until(lambda: server.counts()["connections"] == 0, "the peer's side forgets the connection")
    target.stop()
    server.stop()


@test("B97: killed daemon: its clients learn it, the other side is served anew after a restart")
def killed_under_clients():
    server, client, target = pair()
    watcher = steady(client, "watch")
    watcher.wait_log("connected")
    client.kill()
    expect_equal(watcher.wait(), 0, "the waiting client's exit status")
    expect("removed" in watcher.log() or "disconnected" in watcher.log(), watcher.log())
    client = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", number=1)
    again = steady(client, "fill", "5")
    expect_equal(again.wait(), 0, f"a new client's exit status: {again.log()}")
    for process in (target, client, server):
        expect_equal(process.stop(), 0, f"exit status of {process.name}")


@test("at rest a daemon takes less than 200 MB")
def rest():
    # With this malloc fills tables that are mapped and not used yet, of all objects there can be.
    os.environ.pop("MALLOC_PERTURB_", None)
    server = daemon()
    target = Target("target", server, EXPORT)
    before = server.cpu_seconds()
    started = time.monotonic()
    time.sleep(1 if rig.QUICK else 4)
    share = (server.cpu_seconds() - before) / (time.monotonic() - started)
    rig.note(f"at rest: {server.resident_kib() // 1024} MiB resident, "
             f"{share * 100:.1f} % of a processor")
    resident = server.resident_kib()
    if resident >= RESIDENT_LIMIT:
        raise rig.Failure(f"{resident} KiB resident:\n{server.largest_mappings()}")
    target.stop()
    server.stop()


@test("B121: paths that cannot be are refused at start, by name")
def paths():
    for device, mention in ((f"net_memif0,role=server,socket={rig.WORK}/absent/m,"
                             "socket-abstract=no", "net_memif0"),
                            ("net_absent0", "net_absent0"),
                            ("net_memif0,role=neither", "net_memif0")):
        server = Daemon("c", device, "10.66.0.1/24", wait=False)
        expect(server.wait() > 0, f"{device}: exit status 0")
        expect(mention in server.log(), f"{device}: not named in: {server.log()}")
        expect(not os.path.lexists(server.socket), f"{device}: the socket is left behind")
    server = Daemon("c", rig.memif("c", "server"), "10.66.0.1/24", wait=False,
                    more="socket-group = no-such-group\n")
    expect(server.wait() > 0 and "no-such-group" in server.log(), server.log())


def ask_until_it_ends(server, command, answers):
    """With hardly a pause: the other threads of this program need one."""
    with contextlib.suppress(OSError), \
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(rig.PATIENCE)
        connection.connect(f"{server.socket}.telemetry")
        connection.recv(1024)
        while True:
            connection.send(command)
            if not connection.recv(65536):
                break
            answers[command] = answers.get(command, 0) + 1
            time.sleep(0.001)


@test("a daemon that is asked for its state while it stops ends with status 0")
def asked_at_the_end():
    for _ in range(2):
        server, answers = daemon(), {}
        commands = (b"/oriel/status", b"/oriel/ports", b"/oriel/workers", b"/oriel/qps")
        threads = [threading.Thread(target=ask_until_it_ends, args=(server, command, answers))
                   for command in commands]
        for thread in threads:
            thread.start()
        until(lambda: answers, "somebody is being answered")
        expect_equal(server.stop(), 0, "exit status")
        for thread in threads:
            thread.join()


@test("socket-group: members may come in, others may not")
def group():
    server = Daemon("g", rig.memif("g", "server"), "10.66.0.1/24", more="socket-group = daemon\n")
    status = os.stat(server.socket)
    expect_equal(status.st_mode & 0o777, 0o660, "mode of the socket")
    server.stop()
    server = daemon()
    expect_equal(os.stat(server.socket).st_mode & 0o777, 0o600, "mode without a group")
    server.stop()


@test("the programs say what is wrong with their arguments, and their version")
def arguments():
    def run(name, *arguments):
        return subprocess.run([rig.program(name), *arguments], capture_output=True, text=True,
                              timeout=rig.PATIENCE, check=False)
    for name in ("orield", "oriel-target", "orielctl", "oriel-perf"):
        result = run(name, "--version")
        expect_equal((result.returncode, result.stdout.split()[0]), (0, name), "--version")
        result = run(name, "--help")
        expect(result.returncode == 0 and result.stdout.startswith("Usage:"), f"{name} --help")
        # oriel-perf alone waits for a client, as perftest's programs do.
        for bad in [["--absent"], ["a", "b", "c"]] + [[]] * (name != "oriel-perf"):
            result = run(name, *bad)
            expect(result.returncode == 2 and "Usage:" in result.stderr, f"{name} {bad}: {result}")
    result = run("orielctl", "--socket", f"{rig.WORK}/absent.sock", "status")
    expect(result.returncode == 1 and "is orield running" in result.stderr, f"no daemon: {result}")
    expect_equal(run("orielctl", "--socket", f"{rig.WORK}/absent.sock", "dance").returncode, 2,
                 "status of an unknown command")


@test("every program has --help on its standard output, and of a word that it does not know says so")
def help_of_all():
    found = [path for folder in ("app", "bench")
             for path in sorted(glob.glob(f"{rig.build_root()}/{folder}/*"))
             if os.path.isfile(path) and os.access(path, os.X_OK) and ".so" not in path]
    expect(len(found) >= 12, f"programs: {found}")
    for path in found:
        def run(word, path=path):
            done = subprocess.run([path, word], capture_output=True, text=True,
                                  timeout=rig.PATIENCE, check=False)
            return done.returncode, done.stdout, done.stderr
        for word in ("--help", "-h"):
            status, said, complaint = run(word)
            expect((status, complaint) == (0, "") and said.startswith("Usage: "),
                   f"{path} {word}: {status} {said!r} {complaint!r}")
        status, said, complaint = run("--absent")
        expect((status, said) == (2, "") and "--absent" in complaint
               and ("Usage: " in complaint or "--help" in complaint),
               f"{path} --absent: {status} {said!r} {complaint!r}")


@test("orielctl shows status, queue pairs and counters to people as well")
def tool():
    server, client, target = pair()
    watcher = steady(client, "watch")
    watcher.wait_log("connected")
    for command, mention in (("status", "port link"), ("status", "oriel-target"),
                             ("list", "RTS"), ("stats", "rx_packets")):
        result = subprocess.run([rig.program("orielctl"), "--socket", server.socket, command],
                                capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
        expect(result.returncode == 0 and mention in result.stdout, f"{command}: {result}")
    expect_equal(len(server.ask("list")["qps"]), 1, "queue pairs in the list")
    watcher.stop()
    for process in (target, client, server):
        process.stop()


if __name__ == "__main__":
    rig.main()
