# SPDX-License-Identifier: BSD-3-Clause
"""What the integration tests share: a private world, the programs under test, TAP.

A test file registers functions with @test(rule) and ends with rig.main(). Everything runs in
network, process and mount namespaces of its own with a /run of its own, so nothing that a test
starts, creates or leaves behind outlives it, however it ends.
"""
import collections
import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback

QUICK = os.environ.get("ORIEL_TEST_QUICK") == "true"
INSIDE = "ORIEL_TEST_INSIDE"
WORK = "/run/it"
# Seconds until something that must happen counts as not happening: on a machine that is busy
# everything does, later.
PATIENCE = 60

TESTS = []


class Failure(Exception):
    """A demand that was not met; the text says what was expected and what came."""


class Skip(Exception):
    """The machine lacks what the test needs."""


def test(rule, slow=False):
    """Registers a test; `rule` says what it holds and becomes its name. The quick form of the
    test suite leaves out what is slow: takes five seconds or more, mostly of waiting."""
    def register(function):
        TESTS.append((rule, left_out if slow and QUICK else function))
        return function
    return register


def left_out():
    raise Skip("slow")


# --- the private world ------------------------------------------------------------------------


def build_root():
    return os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")


def program(name):
    places = {
        "oriel-connect": "bench",
        "oriel-perf": "bench",
        "oriel-flood": "bench",
        "oriel-sink": "bench",
        "guide-client": "tests/integration",
        "guide-store": "tests/integration",
        "hostile": "tests/integration",
        "steady": "tests/integration",
        "play": "tests/integration",
    }
    path = f"{build_root()}/{places.get(name, 'app')}/{name}"
    if not os.access(path, os.X_OK):
        raise Failure(f"{path} is missing: build it first")
    return path


def enter_world():
    """Starts this file over in fresh namespaces; returns only in there."""
    if os.environ.get(INSIDE):
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        os.mkdir(WORK)
        os.chdir(WORK)
        # Interfaces that come up say nothing by themselves, so every frame is a test's.
        for knob, value in (("disable_ipv6", 1), ("accept_ra", 0)):
            with open(f"/proc/sys/net/ipv6/conf/default/{knob}", "w", encoding="ascii") as file:
                file.write(str(value))
        return
    os.environ[INSIDE] = "1"
    arguments = [os.path.abspath(sys.argv[0]), build_root()] + sys.argv[2:]
    os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                          "--mount-proc", sys.executable, "-B"] + arguments)


# --- TAP --------------------------------------------------------------------------------------


def note(text):
    """A line for the reader of the output."""
    for line in str(text).splitlines():
        print(f"# {line}", flush=True)


def sanitizers():
    """What a sanitizer has to say about any program, where the build has one."""
    for process in Process.running + Process.ended:
        found = re.search(r".*(runtime error:|ERROR: \w+Sanitizer).*", process.log())
        if found:
            return f"{process.name}: {found.group(0)}"
    return None


def tell_circumstances():
    """What a failure may have come of: how busy the machine is, what the daemons have counted."""
    with open("/proc/loadavg", encoding="ascii") as file:
        note(f"--- load and running processes: {file.read().strip()}")
    for daemon in Process.running:
        if not isinstance(daemon, Daemon) or not daemon.alive():
            continue
        for command in ("status", "stats"):
            result = subprocess.run(["timeout", "5", program("orielctl"), "--socket",
                                     daemon.socket, command], capture_output=True, text=True,
                                    check=False)
            note(f"--- orielctl {command} of {daemon.name}, pid {daemon.pid}")
            note(result.stdout + result.stderr)


def run_one(number, rule, function):
    started = time.monotonic()
    try:
        function()
        problem = None
    except Skip as skip:
        print(f"ok {number} - {rule} # SKIP {skip}", flush=True)
        return True
    except Failure as failure:
        problem = str(failure)
    except Exception:  # pylint: disable=broad-except
        problem = traceback.format_exc()
    problem = problem or sanitizers()
    seconds = time.monotonic() - started
    print(f"{'not ok' if problem else 'ok'} {number} - {rule} ({seconds:.1f} s)", flush=True)
    if problem:
        note(problem)
        tell_circumstances()
        for process in Process.running + Process.ended:
            note(f"--- end of the log of {process.name}, pid {process.pid}")
            note("\n".join(process.log().splitlines()[-15:]))
        for process in reversed(Process.running[Process.shared:]):
            process.kill()
    Process.ended.clear()
    return not problem


def main(setup=None):
    """Runs the registered tests, or those whose rule matches the second argument."""
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root, for network namespaces and raw sockets")
        sys.exit(0)
    enter_world()
    wanted = [entry for entry in TESTS if re.search(sys.argv[2] if sys.argv[2:] else "", entry[0])]
    print(f"1..{len(wanted)}", flush=True)
    if setup:
        setup()
    Process.shared = len(Process.running)
    good = [run_one(n, *entry) for n, entry in enumerate(wanted, 1)]
    for process in reversed(list(Process.running)):
        process.kill()
    sys.exit(0 if all(good) else 1)


# --- demands ----------------------------------------------------------------------------------


def expect(condition, text):
    if not condition:
        raise Failure(text)


def expect_equal(got, wanted, what):
    if got != wanted:
        raise Failure(f"{what}: expected {wanted!r}, got {got!r}")


def until(condition, what, patience=PATIENCE):
    """Waits until condition() is true and returns its value."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            missing = what() if callable(what) else what
            raise Failure(f"did not happen within {patience} s: {missing}")
        time.sleep(0.02)


# --- processes --------------------------------------------------------------------------------


class Process:
    """A program under test; its output goes to a log."""

    running = []
    ended = []  # since the test began
    shared = 0  # how many of those running belong to all tests
    started = 0

    def __init__(self, name, arguments, environment=None):
        Process.started += 1
        self.name = name
        self.path = f"{WORK}/{Process.started}.{name}.log"
        with open(self.path, "wb") as log:
            self.popen = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=log, env={**os.environ, **(environment or {})})
        Process.running.append(self)

    @property
    def pid(self):
        return self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def log(self):
        """What it has said."""
        with open(self.path, "rb") as log:
            return log.read().decode("utf-8", "replace")

    def wait_log(self, text, count=1):
        def said():
            if self.log().count(text) >= count:
                return True
            expect(self.alive(), f"{self.name} ended with {self.popen.returncode}:\n{self.log()}")
            return False
        until(said, lambda: f"{self.name} says '{text}'; it said:\n{self.log()}")

    def gone(self):
        if self in Process.running:
            Process.running.remove(self)
            Process.ended.append(self)

    def wait(self, patience=PATIENCE):
        """Its exit status, negative for a signal."""
        try:
            status = self.popen.wait(patience)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} is still there after {patience} s") from None
        self.gone()
        return status

    def stop(self):
        """SIGTERM; returns the exit status."""
        if self.alive():
            self.popen.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()
        self.gone()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_kib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

    def largest_mappings(self):
        """What most of it is: text for a failure."""
        mappings, name = [], ""
        with open(f"/proc/{self.pid}/smaps", encoding="ascii", errors="replace") as file:
            for line in file:
                if re.match("[0-9a-f]+-", line):
                    name = line.strip()
                elif line.startswith("Rss:"):
                    mappings.append((int(line.split()[1]), name))
        return "\n".join(f"{kib} KiB {name}" for kib, name in sorted(mappings)[-8:])

    def anonymous_kib(self):
        """Heap and stacks: what a leak would make grow."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
            return int(re.search(r"RssAnon:\s+(\d+)", file.read()).group(1))

    @contextlib.contextmanager
    def stopped(self):
        """None of its threads runs within the block."""
        def still():
            for task in os.listdir(f"/proc/{self.pid}/task"):
                with open(f"/proc/{self.pid}/task/{task}/stat", encoding="ascii",
                          errors="replace") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] != "T":
                        return False
            return True
        os.kill(self.pid, signal.SIGSTOP)
        try:
            until(still, f"{self.name} stands still")
            yield
        finally:
            if self.alive():
                os.kill(self.pid, signal.SIGCONT)

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu(number):
    """A processor for the n-th daemon: they share when there are not enough."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[number % len(allowed)]


def write_file(name, text):
    path = f"{WORK}/{name}"
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


DAEMON = """[daemon]
workers = {workers}
control-core = {cpu}
socket = {socket}
idle = adaptive
hugepages = no
{more}
[port link]
device = {device}
ip = {ip}
{port}
"""


class Daemon(Process):
    """orield on one port."""

    def __init__(self, name, device, ip, *, number=0, workers=None, more="", port="",
                 wait=True):
        self.socket = f"{WORK}/{name}.sock"
        self.config = write_file(f"{name}.conf", DAEMON.format(
            cpu=cpu(number), workers=workers or cpu(number), socket=self.socket, device=device,
            ip=ip, more=more, port=port))
        super().__init__(name, [program("orield"), "--config", self.config])
        if wait:
            self.wait_log("orield: ready")

    def ask(self, command="status"):
        """What orielctl --json says."""
        result = subprocess.run([program("orielctl"), "--socket", self.socket, "--json", command],
                                capture_output=True, text=True, timeout=PATIENCE, check=False)
        expect(result.returncode == 0, f"orielctl {command}: {result.stderr}")
        return json.loads(result.stdout)

    def command(self, text):
        """What the telemetry socket answers."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(f"{self.socket}.telemetry")
            connection.recv(1024)
            connection.send(text.encode())
            return json.loads(connection.recv(65536))[text.split(",")[0]]

    def status(self):
        return self.ask()["status"]

    def port(self):
        return self.ask()["ports"]["0"]

    def verdicts(self):
        return collections.Counter(self.ask()["verdicts"])

    def counts(self):
        """How much of everything exists; timewait is not an object."""
        status = self.status()
        return {key: status[key] for key in (
            "sessions", "pds", "cqs", "mrs", "mws", "qps", "connectors", "listeners", "srqs",
            "addresses", "connections", "connections_pending", "tokens_valid", "memory_bytes")}

    def expect_counts(self, baseline):
        """Waits until everything is as it was."""
        def difference():
            now = self.counts()
            return {key: (baseline[key], now[key]) for key in now if now[key] != baseline[key]}
        until(lambda: not difference(),
              lambda: f"{self.name}: objects back at the start, not (before, now) {difference()}")


def refusals(verdicts):
    """Those that a good peer never causes: on a busy machine a link's ring runs over, and an answer
    comes too late for who waits for it, so that some of what it sends comes with a gap or again."""
    return {name: count for name, count in verdicts.items()
            if name not in ("duplicate", "psn_ahead", "psn_ahead_silent")}


class Target(Process):
    """oriel-target with exports given as the text of their sections. It asks nobody whether he is
    still there, since the ends of some tests do not answer."""

    def __init__(self, name, daemon, exports, *, probe=0, wait=True):
        self.config = write_file(f"{name}.conf", f"[target]\nsocket = {daemon.socket}\n"
                                 f"probe = {probe}\n{exports}")
        super().__init__(name, [program("oriel-target"), "--config", self.config])
        if wait:
            self.wait_log("oriel-target: serving")


def memif(name, role):
    return f"net_memif0,role={role},socket={WORK}/{name}.memif,socket-abstract=no"


INDEXES = itertools.count(0x400, 0x400)


def veth(left, right, mtu=1500):
    """A wire between two interfaces that carry no address of the kernel's.

    net_af_packet asks the kernel for a group of sockets by a number that it makes by XOR of the
    process's number and the interface's, and that no other interface's group may have: with
    numbers of interfaces that lie far apart two daemons never come by the same."""
    # One that a failed test has left.
    subprocess.run(["ip", "link", "del", left], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["ip", "link", "add", left, "index", str(next(INDEXES)), "type", "veth", "peer",
                    "name", right, "index", str(next(INDEXES))], check=True)
    for name in (left, right):
        subprocess.run(["ip", "link", "set", name, "mtu", str(mtu), "arp", "off", "up"],
                       check=True)
