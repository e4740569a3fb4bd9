# SPDX-License-Identifier: BSD-3-Clause
"""One link with the daemon, the target and the guest on it; what reports say."""
import json
import os
import re
import socket
import subprocess
import threading
import time

import guest_health

HERE = os.path.dirname(os.path.abspath(__file__))
HARNESS = f"{HERE}/rxe-guest"
STATE = os.environ.get("ORIEL_GUEST_DIR", "/var/tmp/oriel-interop")
RUN = f"{STATE}/run"
GUEST = "peer"
TAP = "orl-tap0"
HOST_TAP = "orl-tap1"
HOST_ADDRESS, GUEST_HOST_ADDRESS = "10.79.0.1", "10.79.0.2"    # plain TCP/IP between kernels
MAX_MTU = 9000
PROGRAMS = {"orield": "app/orield", "oriel-target": "app/oriel-target",
            "orielctl": "app/orielctl", "connect-out": "tests/interop/connect-out",
            "oriel-connect": "bench/oriel-connect", "oriel-perf": "bench/oriel-perf",
            **{f"oriel-{name}": f"app/oriel-{name}" for name in ("rping", "cmatose", "udaddy")}}
GUEST_PROGRAMS = ["tests/interop/export-client", "tests/interop/stock-server"]
PORT, READ_ONLY_PORT = 7471, 7472
STOCK_PORT = 7480
PATIENCE = 60   # seconds until something that must happen counts as not happening
BOOT_PATIENCE = 300
MAX_RENEWALS = 3

DAEMON_CONFIG = """[daemon]
workers = 1
control-core = 0
socket = {socket}
idle = adaptive
hugepages = no
; the refusals below are more bad tokens than a peer is normally allowed
bad-token-budget = 0

[port wan0]
device = {device}
ip = {ipv4}/24, {ipv6}/64
mtu = {mtu}
vlan = {vlan}
"""

TARGET_CONFIG = """[target]
socket = {socket}
probe = {probe}

[export scratch]
listen = {ipv4}:7471, [{ipv6}]:7471
size = 64M
access = read,write,atomic
window = connection

[export ro]
listen = {ipv4}:7472, [{ipv6}]:7472
size = 1M
access = read
window = connection
"""

# What orielctl counts and no client may leave behind it.
OBJECTS = "sessions pds cqs mrs mws qps connectors listeners connections tokens_valid".split()


class Failure(Exception):
    """A test that did not go as it must; the text says what came."""


class Report:
    def __init__(self, only, times):
        self.only = re.compile(only)
        self.times = times
        self.rig = None     # whom to ask when a test has failed
        self.passed = self.failed = 0

    def test(self, name, function, *args, **options):
        if not self.only.search(name):
            return
        begin = time.monotonic()
        wrong = attempt(function, *args, **options)
        if wrong and self.rig:
            wrong = self.second_opinion(name, wrong, function, *args, **options)
        self.result(name, wrong)
        if self.times:
            print(f"#   {time.monotonic() - begin:.1f} s", flush=True)

    def second_opinion(self, name, wrong, function, *args, **options):
        """A guest that does not work even by itself says nothing about Oriel: then the test runs
        once more with a new one. It is said, and a second failure counts in any case."""
        try:
            broken = self.rig.what_is_broken()
            if not broken or self.rig.renewed == MAX_RENEWALS:
                return f"{wrong}\n{self.rig.evidence()}"
            print(f"# {name}: the guest is broken, {broken}: once more with a new one",
                  *[f"#   {line}" for line in wrong.splitlines()], sep="\n", flush=True)
            self.rig.renew()
        except Failure as failure:
            return f"{wrong}\n{failure}"
        return attempt(function, *args, **options)

    def result(self, name, wrong=None):
        if wrong is None:
            self.passed += 1
            print(f"ok {name}", flush=True)
            return
        self.failed += 1
        first, *others = wrong.rstrip().splitlines()
        print("\n".join([f"FAIL {name}: {first}", *[f"#   {line}" for line in others]]),
              flush=True)


def attempt(function, *args, **options):
    """None, or what went wrong."""
    try:
        function(*args, **options)
    except Failure as failure:
        return str(failure) or "it failed"
    return None


def command(*words, timeout=60):
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failure(f"'{' '.join(words)}' did not end within {timeout} s") from None
    if done.returncode:
        raise Failure(f"'{' '.join(words)}' ended with {done.returncode}\n{done.stdout}")
    return done.stdout


# ---- one link with the daemon, the target and the guest on it ----

class Rig:
    def __init__(self, args, link):
        self.link = link
        self.dir = f"{RUN}/{link}"
        self.socket = f"{self.dir}/ndk.sock"
        self.vhost = f"{self.dir}/vhost.sock"
        self.pcap = f"{self.dir}/guest.pcap" if link == "tap" else None
        self.programs = {name: f"{args.build}/{path}" for name, path in PROGRAMS.items()}
        self.running = {}
        self.device = None
        self.daemon_address = address(0, 1)
        self.guest_address = address(0, 2)
        self.untagged = address(0, 2)   # of the guest, whatever else it has
        self.lasting = {}
        self.renewed = 0
        self.recorded = 0, 0    # which guest's recording has been looked at, and how far

    def bring_up(self, report):
        if self.link == "vhost":
            self.device = f"net_vhost0,iface={self.vhost},client=0"
        else:
            self.device = f"net_af_packet0,iface={TAP}"
            make_tap()
        make_host_tap()
        self.configure()
        self.start_both()
        self.start_guest()
        report.rig = self
        report.result(f"{self.link} set-up")

    def start_guest(self):
        net = f"vhost:{self.vhost}" if self.link == "vhost" else f"tap:{TAP}"
        pcap = ["--pcap", self.pcap] if self.pcap else []
        command(HARNESS, "start", GUEST, "--net", net, "--ip", f"{self.untagged[4]}/24",
                "--ip6", f"{self.untagged[6]}/64", "--max-mtu", str(MAX_MTU), *pcap,
                "--second", f"tap:{HOST_TAP}", "--second-ip", f"{GUEST_HOST_ADDRESS}/24",
                "--boot-timeout", str(BOOT_PATIENCE), timeout=BOOT_PATIENCE + 30)
        for function, args in self.lasting.values():
            function(*args)
        self.client(4, "wait 60")

    def renew(self):
        """Another guest, and a daemon that remembers nothing of the old one."""
        self.renewed += 1
        self.end_both()
        command(HARNESS, "stop", GUEST)
        self.start_both()
        self.start_guest()

    def last(self, name, function, *args):
        """Do what is to be done again with another guest."""
        function(*args)
        self.lasting[name] = (function, args)

    def what_is_broken(self):
        """Of the guest itself, whoever is at the other end."""
        return guest_health.what_is_broken(self, None if self.link == "vhost" else TAP)

    def evidence(self):
        said = self.guest("dmesg | tail -n 5; /usr/bin/ip -s link show eth0; uptime; true")
        return f"the guest:\n{said}"

    def configure(self, mtu=1500, vlan=0, probe=0):
        """What the daemon is like from its next start on."""
        self.daemon_address = address(vlan, 1)
        self.guest_address = address(vlan, 2)
        of_ports = {f"ipv{version}": text for version, text in self.daemon_address.items()}
        self.write("orield", DAEMON_CONFIG.format(socket=self.socket, device=self.device,
                                                  mtu=mtu, vlan=vlan, **of_ports))
        self.write("oriel-target", TARGET_CONFIG.format(socket=self.socket, probe=probe,
                                                        **of_ports))

    def start_both(self):
        if os.path.exists(self.vhost):
            os.unlink(self.vhost)   # DPDK's vhost server does not replace a file that it finds
        self.start("orield")
        self.wait_for_daemon()
        self.start("oriel-target")

    def end_both(self):
        """In order; what a failed test has left dead does not count again."""
        for name in ("oriel-target", "orield"):
            if self.running[name].poll() is None:
                self.end(name)

    def write(self, name, text):
        with open(f"{self.dir}/{name}.ini", "w") as file:
            file.write(text)

    def must_have(self, before):
        """Waits until the daemon holds what it held then: nothing of any client's is left."""
        deadline = time.monotonic() + PATIENCE
        while (now := self.objects()) != before:
            if time.monotonic() > deadline:
                raise Failure(f"objects of the daemon, before and after:\n{before}\n{now}")
            time.sleep(0.5)

    def objects(self):
        said = command(self.programs["orielctl"], "--socket", self.socket, "--json", "status")
        status = json.loads(said)["status"]
        return {name: status[name] for name in OBJECTS}

    def count(self, name):
        """A counter of the daemon's workers."""
        said = command(self.programs["orielctl"], "--socket", self.socket, "--json", "stats")
        return sum(worker[name] for worker in json.loads(said)["workers"].values())

    def start(self, name):
        with open(f"{self.dir}/{name}.log", "a") as log:
            self.running[name] = subprocess.Popen(
                [self.programs[name], "--config", f"{self.dir}/{name}.ini"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def example(self, name, *words):
        with open(f"{self.dir}/{name}.log", "w") as log:
            return subprocess.Popen([self.programs[name], *words], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log,
                                    env=self.environment())

    def ask_server(self, name, words, patience):
        """Runs a program of ours that asks a server in the guest, which says nothing when it
        begins to listen: who was refused asks again. Returns the exit status, or says what
        became of the program instead."""
        deadline = time.monotonic() + PATIENCE
        while True:
            client = self.example(name, *words)
            try:
                status = client.wait(patience)
            except subprocess.TimeoutExpired:
                client.kill()
                client.wait()
                return f"not at all within {patience} s"
            if (not status or time.monotonic() > deadline
                    or "refused" not in self.log(name).lower()):
                return status
            time.sleep(0.5)

    def wait_for_daemon(self, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.must_run("orield")
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                if probe.connect_ex(self.socket) == 0:
                    return
            time.sleep(0.1)
        raise Failure(f"orield did not open {self.socket} within {seconds} s\n{self.log('orield')}")

    def must_run(self, name):
        status = self.running[name].poll()
        if status is not None:
            raise Failure(f"{name} ended with {status}\n{self.log(name)}")

    def kill(self, name):
        self.running[name].kill()
        self.running[name].wait()

    def end(self, name, seconds=PATIENCE):
        """SIGTERM must end a program in order."""
        self.must_run(name)
        self.running[name].terminate()
        try:
            status = self.running[name].wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill(name)
            raise Failure(f"{name} did not end within {seconds} s of SIGTERM") from None
        if status:
            raise Failure(f"{name} ended with {status} after SIGTERM\n{self.log(name)}")

    def log(self, name, lines=25):
        with open(f"{self.dir}/{name}.log", errors="replace") as file:
            return f"the end of {name}.log:\n" + "".join(file.readlines()[-lines:])

    def guest(self, line, timeout=60):
        return command(HARNESS, "exec", "--timeout", str(timeout), GUEST, line,
                       timeout=timeout + 30)

    def client(self, version, words, timeout=180):
        """Run the client in the guest; in the report, only what went wrong."""
        return self.must_succeed(
            f"export-client {words}",
            [HARNESS, "exec", "--timeout", str(timeout), GUEST,
             f"export-client -a {self.daemon_address[version]} -p {PORT} -r {READ_ONLY_PORT} "
             f"{words}"],
            timeout + 30)

    def connect_out(self, version, words, port=STOCK_PORT, mtu=1024, timeout=180):
        """Run our client against a stock server in the guest."""
        return self.must_succeed(f"connect-out {words}",
                                 self.connect_out_words(version, words, port, mtu), timeout)

    def environment(self):
        return {**os.environ, "ORIEL_SOCKET": self.socket}

    def connect_out_words(self, version, words, port=STOCK_PORT, mtu=1024):
        return [self.programs["connect-out"], "-a", self.guest_address[version], "-p", str(port),
                "-m", str(mtu), *words.split()]

    def connect_out_until(self, line, between, version, words, port=STOCK_PORT, timeout=120):
        """Run our client until it says `line`, do something else, let it go on to its end."""
        process = subprocess.Popen(self.connect_out_words(version, words, port), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT,
                                   env=self.environment())
        late = threading.Timer(timeout, process.kill)
        late.start()
        try:
            said = process.stdout.readline()
            if said == line + "\n":
                between()
                said += process.communicate("go on\n")[0]
        finally:
            late.cancel()
            process.kill()
            process.wait()
        if process.returncode or "ok " not in said:
            raise Failure(f"connect-out {words} ended with {process.returncode}\n{said}")

    def must_succeed(self, name, words, timeout):
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=timeout,
                                  env=self.environment())
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")
            raise Failure(f"{name} did not end within {timeout} s\n{said}") from None
        if done.returncode == 0 and "ok " in done.stdout:
            return done.stdout
        wrong = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
        raise Failure("\n".join([f"{name} ended with {done.returncode}", *wrong]))

    def tear_down(self, report):
        subprocess.run([HARNESS, "stop", GUEST])
        for name, process in self.running.items():
            if process.poll() is None:
                process.kill()
                process.wait()
            if report.failed:
                print("".join(f"# {line}\n" for line in self.log(name).splitlines()), end="")
        for tap in (TAP, HOST_TAP) if self.link != "vhost" else (HOST_TAP,):
            subprocess.run(["ip", "link", "del", tap], stderr=subprocess.DEVNULL)


def make_tap():
    """A tap that the host's kernel leaves alone: its frames are orield's and the guest's."""
    command("ip", "tuntap", "add", TAP, "mode", "tap")
    with open(f"/proc/sys/net/ipv6/conf/{TAP}/disable_ipv6", "w") as file:
        file.write("1")
    command("ip", "link", "set", TAP, "mtu", str(MAX_MTU), "up")


def make_host_tap():
    """A link between the guest's kernel and ours, for what does not go over RDMA."""
    command("ip", "tuntap", "add", HOST_TAP, "mode", "tap")
    command("ip", "addr", "add", f"{HOST_ADDRESS}/24", "dev", HOST_TAP)
    command("ip", "link", "set", HOST_TAP, "up")


def address(vlan, host):
    """By IP version; a VLAN has networks of its own."""
    net = 78 if vlan else 77
    return {4: f"10.{net}.0.{host}", 6: f"fd{net}::{host}"}


