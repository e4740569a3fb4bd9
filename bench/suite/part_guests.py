# SPDX-License-Identifier: BSD-3-Clause
"""P8: two like guests, one served by rdma_rxe, one by orield; a native generator.

Their virtio device leads to a vhost-user socket that the generator serves: no kernel, no bridge and no
thread of QEMU handles a frame, so the link is the limit of neither.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess

from .link import PAGES_EACH, checked, rate
from .samples import Measure, Part
from .world import WORK, Failed, huge_pages, run, run_json

HERE = os.path.dirname(os.path.abspath(__file__))
HARNESS = f"{HERE}/../../tests/interop/rxe-guest"
STATE = os.environ.get("ORIEL_GUEST_DIR", "/var/tmp/oriel-bench")
OTHERS = "/var/tmp/oriel-interop"  # the interop suite's, which may have the kernel already
REASON = "ORIEL_BENCH_NO_GUESTS"
DRIVERS = "/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0"
LOADED = ["librte_net_virtio.so.23", "librte_mempool_ring.so.23"]  # and what these need
ADDRESS = {"rxe": "10.77.0.2", "oriel": "10.77.0.13", "client": "10.77.0.4"}
GUESTS = {"rxe": "10.77.0.2", "oriel": "10.77.0.3", "client": "10.77.0.4"}  # of their kernels
GENERATOR = "10.77.0.1"

CONFIG = """[daemon]
workers = 0
control-core = 0
socket = /tmp/ndk.sock
idle = busy
hugepages = yes
telemetry = no
max-queue-pairs = 256
max-windows = 1024
[port link]
device = %s
ip = 10.77.0.13/24
"""
# The virtio device changes from the kernel to DPDK.
FREE_DEVICE = (
    "mkdir -p /var/run; P=$(readlink -f /sys/class/net/eth0/device); P=${P%/virtio*}; P=${P##*/}; "
    "rdma link delete rxe0; ip link set eth0 down; "
    "echo $P >/sys/bus/pci/drivers/virtio-pci/unbind; "
    "echo uio_pci_generic >/sys/bus/pci/devices/$P/driver_override; "
    "echo $P >/sys/bus/pci/drivers_probe; echo 160 >/proc/sys/vm/nr_hugepages")
TARGET = """[target]
socket = /tmp/ndk.sock
[export bench]
listen = 10.77.0.13:7471
size = 64M
access = read,write,atomic
"""


def build_image(build, patience):
    """Outside of the namespaces, since it may need the network. The reason when it failed."""
    added = f"{STATE}/added"
    programs = [f"{build}/app/orield", f"{build}/app/oriel-target", f"{build}/bench/stock-export",
                f"{build}/tests/interop/export-client"]
    try:
        os.makedirs(added, exist_ok=True)
        if not os.path.exists(f"{STATE}/kernel") and os.path.exists(f"{OTHERS}/kernel"):
            shutil.copytree(f"{OTHERS}/kernel", f"{STATE}/kernel", symlinks=True)
        libraries = [f"{DRIVERS}/{library}" for library in LOADED]
        for library in [*libraries, f"{build}/lib/libndk.so.0"]:  # the harness takes programs only
            copy = f"{added}/{os.path.basename(library)}"
            shutil.copy(os.path.realpath(library), copy)
            os.chmod(copy, 0o755)
            programs.append(copy)
        missing = [program for program in programs if not os.path.exists(program)]
        if missing:
            return (f"no image for guests: {missing[0]} is missing: it takes "
                    "`tools/install-packages build test interop`, and then a build with tests")
        words = [word for program in programs for word in ("--add", program)]
        done = subprocess.run(
            [HARNESS, "image", *words], capture_output=True, text=True, check=False, timeout=patience,
            env={**os.environ, "ORIEL_GUEST_DIR": STATE})
    except (OSError, subprocess.TimeoutExpired) as error:
        return (f"no image for guests: {error}"
                "; `tools/install-packages interop` brings what they take")
    return f"no image for guests: {done.stderr[-300:]}" if done.returncode else ""


class GuestsPart(Part):
    name = "guests"
    keys = {"P8"}
    running = ()

    def prepare(self, world, wanted):
        self.world = world
        self.running = []
        if os.environ.get(REASON):
            raise Failed(os.environ[REASON])
        for name in ["rxe", "oriel"] + ([] if world.quick else ["client"]):
            with self.wire(name):
                self.boot(name)
                self.serve(name)
            os.kill(self.pid(name), signal.SIGSTOP)

    def measures(self):
        every = [Measure(f"guest_{name}", self.keys, lambda name=name: self.flood(name))
                 for name in ("rxe", "oriel")]
        if "client" in self.running:
            every += [Measure(f"guest_client_{name}", self.keys,
                              lambda name=name: self.client(name)) for name in ("rxe", "oriel")]
        return every

    def flood(self, name):
        """Messages a second of 64 bytes, bytes a second of 16 KiB."""
        with self.awake(name):
            small = checked(run_json(self.command(name, "-s", "64", "-q", "4", "-t", "16", "-a",
                                                  "8")))
            large = checked(run_json(self.command(name, "-s", "16384", "-q", "2", "-t", "4", "-a",
                                                  "1")))
        return {"messages": rate(small), "bytes": rate(large) * 16384,
                "resent": small["counters"]["resent"] + large["counters"]["resent"]}

    def command(self, name, *more):
        world = self.world
        return [world.program("oriel-flood"), "-d", vhost(0, name), "--ip", f"{GENERATOR}/24",
                "--target", ADDRESS[name], "--cpu", str(world.cores.generator), "-W", "0.3", "-D",
                str(max(1.0, world.seconds)), "--json", *more]

    def client(self, name):
        """MiB a second of a stock client in a third guest."""
        with self.wire(name, "client"), self.awake(name, "client"):
            said = self.guest("client", f"export-client -a {ADDRESS[name]} -p 7471 stream 4", 60)
        found = re.search(r"WRITE ([\d.]+).*READ ([\d.]+)", said)
        if not found:
            raise Failed(f"export-client: {said[-200:]}")
        return {"write": float(found.group(1)), "read": float(found.group(2))}

    # --- guests ---

    def boot(self, name):
        core = self.world.cores.generator if name == "client" else self.world.cores.worker
        self.running.append(name)  # if it fails on the way, or its time is over, it is ended too
        run([HARNESS, "start", name, "--net", f"vhost:{socket_of(name)}", "--ip",
             f"{GUESTS[name]}/24", "--mem", "900", "--boot-timeout", "240"], core=core,
            timeout=270, environment={"ORIEL_GUEST_DIR": STATE})

    def serve(self, name):
        """What the generator finds in it."""
        if name == "rxe":
            self.guest(name, "(stock-export 7471 >/tmp/log 2>&1 </dev/null &) ; "
                       f"{said('serving')}")
        elif name == "oriel":
            loaded = " ".join(f"-d /usr/bin/{library}" for library in LOADED)
            self.guest(name, f"{FREE_DEVICE}; printf '{escaped(CONFIG)}' $P >/tmp/d.conf; "
                       f"printf '{escaped(TARGET)}' >/tmp/t.conf; "
                       f"(orield --config /tmp/d.conf -- {loaded} >/tmp/log 2>&1 </dev/null &) ; "
                       f"{said('ready')}")
            self.guest(name, "(LD_LIBRARY_PATH=/usr/bin oriel-target --config /tmp/t.conf "
                       f">>/tmp/log 2>&1 </dev/null &) ; {said('serving')}")

    def guest(self, name, line, timeout=60):
        return run([HARNESS, "exec", "--timeout", str(timeout), name, line], timeout=timeout + 20,
                   environment={"ORIEL_GUEST_DIR": STATE})

    @contextlib.contextmanager
    def wire(self, *names):
        """Serves the sockets of guests, and takes frames from one to the other."""
        world = self.world
        memory = ["--in-memory", "-m", "64"] if huge_pages() >= PAGES_EACH else ["--no-huge", "-m",
                                                                                "128"]
        devices = [f"--vdev={vhost(i, name)}" for i, name in enumerate(names)]
        server = world.serve(
            f"wire-{'-'.join(names)}",
            ["dpdk-testpmd", "--lcores", f"0@{world.cores.control},1@{world.cores.generator}",
             "--file-prefix", "wire", "--no-pci", *memory, *devices, "--",
             "--total-num-mbufs=8192", "--no-mlockall", "--stats-period=1", "--auto-start",
             f"--forward-mode={'io' if len(names) > 1 else 'rxonly'}"], None,
            "start packet forwarding")
        try:
            yield
        finally:
            world.stop(server)
            for name in names:  # it had no time to
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(socket_of(name))

    def pid(self, name):
        with open(f"{STATE}/guest-{name}.pid", encoding="ascii") as file:
            return int(file.read().split()[0])

    @contextlib.contextmanager
    def awake(self, *names):
        try:
            for name in names:
                os.kill(self.pid(name), signal.SIGCONT)
            yield
        finally:
            for name in names:
                os.kill(self.pid(name), signal.SIGSTOP)

    def end(self):
        for name in self.running:
            with contextlib.suppress(OSError, ValueError):
                os.kill(self.pid(name), signal.SIGKILL)
            subprocess.run([HARNESS, "stop", name], capture_output=True, check=False,
                           env={**os.environ, "ORIEL_GUEST_DIR": STATE})


def said(text):
    """Shell: waits until the log has it, and shows the log when it never does."""
    return (f"for i in $(seq 80); do grep -q {text} /tmp/log && exit 0; sleep 0.5; done; "
            "cat /tmp/log; exit 1")


def escaped(text):
    return text.replace("\n", "\\n")


def socket_of(name):
    return f"{WORK}/{name}.vhost"


def vhost(number, name):
    return f"net_vhost{number},iface={socket_of(name)}"


__all__ = ["GuestsPart", "REASON", "build_image"]
