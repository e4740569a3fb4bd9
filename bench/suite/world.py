# SPDX-License-Identifier: BSD-3-Clause
"""The private world of a run: namespaces, cores, servers that stand still while not measured."""
import collections
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

INSIDE = "ORIEL_BENCH_INSIDE"
WORK = "/run/bench"
LOCK = "/run/oriel-bench.lock"
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 30  # seconds until something that must happen counts as not happening

Cores = collections.namedtuple("Cores", "control worker generator")


class Failed(Exception):
    """A measurement that did not come about; the text says why, for the report."""


class OutOfTime(Exception):
    """The part of a run that is measured has had its time."""


class World:
    """What all parts share: where the programs are, which cores are whose, how long to measure."""

    def __init__(self, build, quick, begin=None):
        self.build = build
        self.quick = quick
        self.seconds = 0.4 if quick else 0.7
        self.deadline = (begin or time.monotonic()) + 165  # of a quick run
        self.cores = choose_cores()
        self.servers = []
        self.deaths = []  # servers that ended by themselves

    def program(self, name):
        places = {"orield": "app", "orielctl": "app", "oriel-target": "app"}
        path = f"{self.build}/{places.get(name, 'bench')}/{name}"
        if not os.access(path, os.X_OK):
            raise Failed(f"{path} is missing: build it first")
        return path

    def serve(self, name, arguments, core, ready, environment=None):
        """Starts a server on a core, waits until it says `ready`, and lets it stand still."""
        server = Server(name, arguments, core, environment)
        self.servers.append(server)
        server.wait_for(ready)
        return server

    def stop(self, server):
        if server.popen.poll() is not None:
            self.deaths.append(f"{server.name} ended with {server.popen.returncode}")
        server.end()
        self.servers.remove(server)

    def end(self):
        for server in reversed(list(self.servers)):
            self.stop(server)


def settle_in():
    """In namespaces that are fresh: what every program finds there."""
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.mkdir(WORK)
    for number in ENDS:  # who started us hears them, and ends us
        signal.signal(number, signal.SIG_IGN)
    with open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w", encoding="ascii") as file:
        file.write("1")


def only_one():
    """A file that is locked until the last of this run has ended: two would measure each other."""
    lock = open(LOCK, "a+", encoding="ascii")  # pylint: disable=consider-using-with
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        sys.exit(f"bench/run: another one is under way (process {lock.read().strip()}), and two "
                 "would measure each other: wait for its end")
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def supervise(arguments, lock):
    """
    Starts this program over in fresh namespaces and waits. Whatever ends us ends it, and with it all
    that runs in there; unshare would wait in spite of a signal.
    """
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork",
               "--kill-child", "--mount-proc", sys.executable, "-B",
               os.path.abspath(arguments[0]), *arguments[1:]]
    ended_by = []
    with subprocess.Popen(command, env={**os.environ, INSIDE: "1"},
                          pass_fds=[lock.fileno()]) as child:
        def end(number, _):
            ended_by.append(number)
            child.kill()
        for number in ENDS:
            signal.signal(number, end)
        status = child.wait()
    if ended_by:
        print("\nbench/run: stopped; no results were written", file=sys.stderr)
        return 128 + ended_by[0]
    return status if status >= 0 else 128 - status


def choose_cores():
    """The last two are the worker's and the generator's; the control core shares when it must."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise Failed("a worker and a generator need two processors")
    return Cores(control=allowed[0], worker=allowed[-1], generator=allowed[-2])


def huge_pages(field="Free"):
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"HugePages_{field}:"):
                return int(line.split()[1])
    return 0


def write_file(name, text):
    path = f"{WORK}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


# --- processes --------------------------------------------------------------------------------


class Server:
    """A program that serves while it is awake; its output goes to a log."""

    started = 0

    def __init__(self, name, arguments, core, environment=None):
        Server.started += 1
        if not shutil.which(arguments[0]):
            raise Failed(f"{arguments[0]} is not installed (tools/install-packages bench)")
        self.name = name
        self.path = f"{WORK}/{Server.started}.{name}.log"
        command = arguments if core is None else ["taskset", "-c", str(core), *arguments]
        with open(self.path, "wb") as log:
            self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=log, env={**os.environ, **(environment or {})})

    def log(self):
        """Without what would steer a terminal."""
        with open(self.path, "rb") as file:
            text = file.read().decode("utf-8", "replace")
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[^\n\t\x20-\x7e]", "", text)

    def wait_for(self, text):
        def said():
            if self.popen.poll() is not None:
                raise Failed(f"{self.name} ended with {self.popen.returncode}: {self.log()[-600:]}")
            return text in self.log()
        until(said, lambda: f"{self.name} does not say '{text}': {self.log()[-600:]}")

    def pause(self):
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self):
        if self.popen.poll() is not None:
            raise Failed(f"{self.name} ended with {self.popen.returncode}: {self.log()[-600:]}")
        self.popen.send_signal(signal.SIGCONT)

    def cpu_seconds(self):
        with open(f"/proc/{self.popen.pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        """All of this is thrown away, so nothing has to be put in order."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()


@contextlib.contextmanager
def awake(*servers):
    """Only these run."""
    try:
        for server in servers:
            server.resume()
        yield
    finally:
        for server in servers:
            if server.popen.poll() is None:
                server.pause()


def until(condition, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            missing = what() if callable(what) else what
            raise Failed(f"did not happen within {patience} s: {missing}")
        time.sleep(0.01)


def run(arguments, core=None, timeout=60, environment=None):
    """What a program prints; Failed when it does not succeed."""
    command = arguments if core is None else ["taskset", "-c", str(core), *arguments]
    name = os.path.basename(arguments[0])
    if not shutil.which(arguments[0]):
        raise Failed(f"{name} is not installed (tools/install-packages bench)")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=timeout, check=False,
                              env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired:
        raise Failed(f"{name} did not end within {timeout} s") from None
    if done.returncode:
        raise Failed(f"{name} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    return done.stdout


def run_json(arguments, **options):
    said = run(arguments, **options)
    try:
        return json.loads(said)
    except ValueError:
        raise Failed(f"{os.path.basename(arguments[0])} said no JSON: {said[-200:]}") from None
