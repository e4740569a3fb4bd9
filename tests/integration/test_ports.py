# SPDX-License-Identifier: BSD-3-Clause
"""Kinds of links: what frames each carries, tagged and untagged, and what is refused at start."""
import os
import re
import socket
import struct
import subprocess
import threading

import rig
import roce
from memif import DISCONNECT, INIT, Memif
from rig import Daemon, Process, Skip, Target, expect, expect_equal, test
from roce import checksum, ipv4, mac_bytes, packed

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write
"""
PEER_MAC = "02:00:00:00:00:99"


def vhost(name):
    return (f"net_vhost0,iface={rig.WORK}/{name}.vhost",
            f"net_virtio_user0,path={rig.WORK}/{name}.vhost,mac=02:00:00:00:00:02")


def stop(*processes):
    for process in processes:
        expect_equal(process.stop(), 0, f"exit status of {process.name}")


def need(driver, log):
    if f"has no driver {driver}" in log:
        raise Skip(f"{driver} is not installed")


class Link:
    """Two daemons and a target over a link; or what the first one says when it does not start."""

    def __init__(self, devices, port, other=None):
        self.a = Daemon("a", devices[0], "10.66.0.1/24", port=port)
        self.b = Daemon("b", devices[1], "10.66.0.2/24", number=1, port=other or port)
        self.target = Target("target", self.a, EXPORT)

    def steady(self):
        return Process("steady", [rig.program("steady"), "10.66.0.1", "7471", "10.66.0.2",
                                  "fill", "5"], {"ORIEL_SOCKET": self.b.socket})

    def carries(self, path_mtu):
        """A MiB goes over and comes back right, in packets of `path_mtu`."""
        before = self.a.port()
        expect_equal(self.steady().wait(), 0, "the traffic's status")
        after = self.a.port()
        frames = after["rx_packets"] - before["rx_packets"]
        size = (after["rx_bytes"] - before["rx_bytes"]) / frames
        expect(path_mtu * 0.9 < size < path_mtu + 100,
               f"frames of {size:.0f} bytes on the average, of path MTU {path_mtu}")

    def stop(self):
        stop(self.target, self.b, self.a)


def refused(device, port, *named):
    """The daemon says in one line why, and where the last line of `port` stands, and ends."""
    daemon = Daemon("a", device, "10.66.0.1/24", port=port, wait=False)
    expect(daemon.wait() > 0, "the daemon must not start")
    need("net_af_xdp", daemon.log())
    lines = [line for line in daemon.log().splitlines() if line.startswith("orield:")]
    with open(daemon.config, encoding="ascii") as file:
        line = file.read().splitlines().index(port.splitlines()[-1]) + 1
    named += (re.escape(f"{daemon.config}:{line}: [port "), )
    expect(len(lines) == 1 and all(re.search(name, lines[0]) for name in named),
           f"one line with {named}: {daemon.log()}")


def remove(*interfaces):
    for name in interfaces:
        subprocess.run(["ip", "link", "del", name], check=True)


# --- MTU --------------------------------------------------------------------------------------


@test("path MTU 4096 over net_af_packet, with mtu 4200, 9000 and 9600", slow=True)
def af_packet():
    for mtu in (4200, 9000, 9600):
        rig.veth("d0", "d1")
        link = Link(("net_af_packet0,iface=d0", "net_af_packet0,iface=d1"), f"mtu = {mtu}")
        link.carries(4096)
        link.stop()
        remove("d0")


@test("path MTU 4096 over net_memif, with mtu 4200 and 9600")
def memif():
    for mtu in (4200, 9600):
        link = Link((rig.memif("l", "server"), rig.memif("l", "client")), f"mtu = {mtu}")
        link.carries(4096)
        link.stop()


@test("path MTU 4096 over net_vhost and net_virtio_user, with mtu 4200 and 9600")
def virtio():
    for mtu in (4200, 9600):
        link = Link(vhost(f"v{mtu}"), f"mtu = {mtu}")
        link.carries(4096)
        link.stop()


@test("net_tap carries what DPDK lets it, 1504, and more is refused with that limit")
def tap():
    link = Link(("net_tap0,iface=t0", "net_af_packet0,iface=t0"), "mtu = 1504")
    link.carries(1024)
    link.stop()
    refused("net_tap0,iface=t0", "mtu = 1505", "mtu = 1505", "net_tap", "1504")


@test("net_af_xdp carries path MTU 2048 up to its limit of a page, and more is refused")
def af_xdp():
    rig.veth("d0", "d1")
    refused("net_af_xdp0,iface=d0", "mtu = 3375", "net_af_xdp", "mtu", "3374")
    for mtu, path_mtu in ((1500, 1024), (2200, 2048), (3374, 2048)):
        link = Link(("net_af_xdp0,iface=d0", "net_af_xdp0,iface=d1"), f"mtu = {mtu}")
        link.carries(path_mtu)
        link.stop()
    remove("d0")


@test("B119: a net_af_xdp port that was away under a flood hears again; queues nobody reads are told")
def af_xdp_flood():
    rig.veth("d0", "d1")
    daemon = Daemon("a", "net_af_xdp0,iface=d0", "10.66.0.1/24", wait=False)
    try:
        daemon.wait_log("orield: ready")
    except rig.Failure:
        need("net_af_xdp", daemon.log())
        raise
    wire = Wire("d1", daemon)
    wire.served(64)
    with daemon.stopped():
        for _ in range(20000):
            wire.socket.send(mac_bytes(wire.mac) + mac_bytes(PEER_MAC) + b"\x88\xb5" + bytes(200))
    rig.until(lambda: daemon.verdicts()["not_ip"] > 500, "what was buffered is read")
    wire.worked_off()
    wire.served(64)
    stop(daemon)
    remove("d0")
    subprocess.run(["ip", "link", "add", "d0", "numrxqueues", "4", "numtxqueues", "4", "type",
                    "veth", "peer", "name", "d1"], check=True)
    daemon = Daemon("a", "net_af_xdp0,iface=d0", "10.66.0.1/24")
    expect("interface d0 has 4 receive queues" in daemon.log(), daemon.log())
    stop(daemon)
    remove("d0")


@test("an mtu that the interface below does not take is refused with the interface's name")
def below():
    rig.veth("d0", "d1")
    subprocess.run(["ip", "link", "add", "m0", "link", "d0", "type", "macvlan", "mode", "bridge"],
                   check=True)
    subprocess.run(["ip", "link", "set", "m0", "up"], check=True)
    refused("net_af_packet0,iface=m0", "mtu = 4200", "mtu = 4200", "interface m0")
    remove("d0")


@test("B89: ends of unlike MTU agree on the smaller path MTU")
def unlike():
    rig.veth("d0", "d1", 9000)
    for left, right in ((9000, 1500), (1500, 4200)):
        link = Link(("net_af_packet0,iface=d0", "net_af_packet0,iface=d1"), f"mtu = {left}",
                    f"mtu = {right}")
        link.carries(1024)
        link.stop()
    remove("d0")


# --- the other end goes away ----------------------------------------------------------------------


@test("B110: a net_memif client finds its server again after that was killed or stopped", slow=True)
def memif_server_returns():
    devices = rig.memif("l", "server"), rig.memif("l", "client")
    link = Link(devices, "")
    for end in (Process.kill, Process.stop):
        link.carries(1024)
        end(link.a)
        rig.until(lambda: link.b.port()["link"] == "down", "the client sees the link go down")
        link.a = Daemon("a", devices[0], "10.66.0.1/24")
        rig.until(lambda: link.b.port()["link"] == "up", "the link comes up again")
        rig.until(lambda: link.a.counts()["listeners"] == 1, "the target serves again")
        # Until the control core has looked at the link, nobody may be known there.
        rig.until(lambda: link.steady().wait(120) == 0, "traffic goes over the link again")
    link.carries(1024)
    log = link.b.log()
    expect("memif" not in log.lower(), f"the driver's complaints are no news: {log}")
    link.stop()


def come_and_go(path):
    """Clients that leave at each point at which a driver would rather that they stayed."""
    for _ in range(100):
        Memif(path).leave()
    for number in range(60):
        client = Memif(path)
        # Long frames keep the worker inside the driver: that is where it is found.
        client.join(60 if number % 3 else 60000)
        client.flood(0.003)
        if number % 4 == 1:
            client.send(DISCONNECT)
        if number % 4 == 2:
            client.send(99)
        client.leave()


@test("a net_memif client that leaves before it is greeted, or in the middle of a flood, harms nobody")
def memif_client_leaves():
    devices = rig.memif("l", "server"), rig.memif("l", "client")
    daemon = Daemon("a", devices[0], "10.66.0.1/24")
    try:
        come_and_go(f"{rig.WORK}/l.memif")
    except OSError as error:
        rig.until(lambda: not daemon.alive(), f"something from the daemon instead of {error}", 3)
    expect(daemon.alive(), f"the daemon ended with {daemon.popen.returncode}:\n{daemon.log()}")
    # Who comes at last is served.
    other = Daemon("b", devices[1], "10.66.0.2/24", number=1)
    rig.until(lambda: other.port()["link"] == "up", "a client that stays has a link")
    stop(other, daemon)


def is_ended(client):
    """The greeting may lie before the end."""
    client.socket.setblocking(False)
    try:
        while client.socket.recv(128):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@test("net_memif clients that come and say nothing, or half of it, keep nobody out for long")
def memif_silent():
    path = f"{rig.WORK}/l.memif"
    daemon = Daemon("a", rig.memif("l", "server"), "10.66.0.1/24")
    half = Memif(path)
    half.send(INIT, struct.pack("<HIB", 0x200, 0, 0))   # which names the port as its own
    silent = [Memif(path) for _ in range(20)]
    rig.until(lambda: sum(map(is_ended, silent)) >= 5, "what does not fit is refused")
    other = Daemon("b", rig.memif("l", "client"), "10.66.0.2/24", number=1)
    rig.until(lambda: other.port()["link"] == "up", "who speaks has a link")
    rig.until(lambda: all(map(is_ended, [half, *silent])), "the silent ones are gone")
    expect_equal(other.port()["link"], "up", "the link of the one who spoke")
    for client in [half, *silent]:
        client.leave()
    stop(other, daemon)


def visit(path, ended):
    while not ended.is_set():
        Memif(path).leave()


@test("a net_memif client finds its server again though visitors come to another port without a pause")
def memif_visitors():
    server = Daemon("b", rig.memif("m", "server"), "10.66.1.2/24", number=1)
    second = rig.memif("m", "client").replace("net_memif0", "net_memif1")
    daemon = Daemon("a", rig.memif("l", "server"), "10.66.0.1/24",
                    port=f"[port second]\ndevice = {second}\nip = 10.66.1.1/24\n")
    ended = threading.Event()
    visitor = threading.Thread(target=visit, args=(f"{rig.WORK}/l.memif", ended))
    visitor.start()
    try:
        server.kill()
        rig.until(lambda: daemon.ask()["ports"]["1"]["link"] == "down", "the link goes down")
        server = Daemon("b", rig.memif("m", "server"), "10.66.1.2/24", number=1)
        rig.until(lambda: daemon.ask()["ports"]["1"]["link"] == "up", "the link comes up again")
    finally:
        ended.set()
        visitor.join()
    stop(daemon, server)


@test("an interface that goes down, up, and away under a port: delays, and no crash", slow=True)
def interface_goes():
    rig.veth("d0", "d1")
    link = Link(("net_af_packet0,iface=d0", "net_af_packet0,iface=d1"), "")
    link.carries(1024)
    for name in ("d0", "d1"):
        subprocess.run(["ip", "link", "set", name, "down"], check=True)
        traffic = link.steady()
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        traffic.wait(120)
        link.carries(1024)
    remove("d0")
    expect(link.steady().wait(120) > 0, "traffic over a link that is gone must fail")
    expect(link.a.alive() and link.b.alive(), "the daemons live")
    link.a.ask()
    link.stop()


# --- by hand-made frames ------------------------------------------------------------------------


class Wire:
    """A station on an interface that asks the daemon to answer pings."""

    def __init__(self, interface, daemon):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(263, 8, 1)  # tags that the kernel took off come beside the frame
        self.socket.bind((interface, 0))
        self.socket.settimeout(rig.PATIENCE)
        self.mac = daemon.port()["mac"]
        self.sequence = 0

    def ask(self, size, tag=b""):
        """Sends a ping whose IP packet has `size` bytes."""
        self.sequence += 1
        body = struct.pack("!BBHHH", 8, 0, 0, 7, self.sequence) + os.urandom(size - 28)
        body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
        header = ipv4(packed("10.66.0.9"), packed("10.66.0.1"), len(body), protocol=1)
        self.socket.send(mac_bytes(self.mac) + mac_bytes(PEER_MAC) + tag + b"\x08\0" + header
                         + body)
        return body[8:]

    def worked_off(self):
        """Waits until what was sent has been looked at: a ping, again and again, is answered."""
        def answered():
            self.ask(64)
            try:
                while self.answer()[2] != self.sequence:
                    pass
            except TimeoutError:
                return False
            return True
        self.socket.settimeout(0.5)
        rig.until(answered, "a ping behind a flood is answered")
        self.socket.settimeout(rig.PATIENCE)

    def answer(self):
        """Payload, TCI (None: untagged) and sequence of the next echo reply."""
        while True:
            frame, control, _, address = self.socket.recvmsg(65536, 256)
            if address[2] == 4 or frame[12:14] != b"\x08\0" or frame[34] != 0:
                continue
            tci = None
            for _, _, data in control:
                if struct.unpack("=I", data[:4])[0] & 0x10:
                    tci, = struct.unpack("=H", data[16:18])
            return frame[42:], tci, struct.unpack("!H", frame[40:42])[0]

    def served(self, size, tag=b"", tci=None):
        body = self.ask(size, tag)
        expect_equal(self.answer(), (body, tci, self.sequence), f"answer to a ping of {size}")

    def not_served(self, size, tag, reason, daemon):
        """Dropped for this reason: the next good ping's answer is the next answer at all."""
        self.ask(size, tag)
        rig.until(lambda: daemon.verdicts()[reason], f"counted as {reason}")


@test("frames of the whole mtu come in and go out, tagged or not; longer ones are dropped",
      slow=True)
def whole():
    for kind, mtu in (("net_af_packet", 1500), ("net_af_packet", 9600), ("net_tap", 1504),
                      ("net_af_xdp", 3374)):
        for vlan, tag, tci in ((0, b"", None), (7, b"\x81\0\0\x07", 7)):
            far = "t0" if kind == "net_tap" else "d1"
            if kind != "net_tap":
                rig.veth("d0", "d1", 9700 if kind == "net_af_packet" else 1500)
            device = f"{kind}0,iface={'t0' if kind == 'net_tap' else 'd0'}"
            daemon = Daemon("a", device, "10.66.0.1/24", port=f"mtu = {mtu}\nvlan = {vlan}",
                            wait=False)
            try:
                daemon.wait_log("orield: ready")
            except rig.Failure:
                need(kind, daemon.log())
                raise
            subprocess.run(["ip", "link", "set", far, "mtu", str(max(mtu, 1500)
                           if kind != "net_af_packet" else 9700), "up"], check=True)
            wire = Wire(far, daemon)
            rig.note(f"{kind} mtu {mtu} vlan {vlan}")
            wire.served(64, tag, tci)
            wire.served(mtu, tag, tci)
            if kind == "net_af_packet":
                wire.not_served(mtu + 8, tag, "oversize", daemon)
                wire.served(64, tag, tci)
            stop(daemon)
            if kind != "net_tap":
                remove("d0")


# --- VLAN ---------------------------------------------------------------------------------------


@test("B80: ports of one VLAN talk over every kind of link; ports of two do not", slow=True)
def vlan():
    rig.veth("d0", "d1")
    for devices in (("net_af_packet0,iface=d0", "net_af_packet0,iface=d1"),
                    (rig.memif("l", "server"), rig.memif("l", "client")), vhost("v"),
                    ("net_tap0,iface=t0", "net_af_packet0,iface=t0")):
        rig.note(devices[0])
        link = Link(devices, "vlan = 100")
        link.carries(1024)
        link.stop()
    for left, right in ((100, 101), (100, 0), (0, 100)):
        link = Link(("net_af_packet0,iface=d0", "net_af_packet0,iface=d1"), f"vlan = {left}",
                    f"vlan = {right}")
        expect(link.steady().wait(120) > 0, f"VLAN {right} reached VLAN {left}")
        expect(link.a.verdicts()["wrong_vlan"] > 0, "counted as of another VLAN")
        link.stop()
    remove("d0")


@test("W21, B81: a priority tag is no VLAN; a tagged port takes its own VID at any priority, alone")
def priorities():
    rig.veth("d0", "d1")
    for port_vlan, served, tci, refusals in (
            (0, (b"", b"\x81\0\0\0", b"\x81\0\xb0\0"), None, (b"\x81\0\0\x64",)),
            (100, (b"\x81\0\0\x64", b"\x81\0\xf0\x64"), 100,
             (b"", b"\x81\0\0\x65", b"\x81\0\xe0\0"))):
        daemon = Daemon("a", "net_af_packet0,iface=d0", "10.66.0.1/24", port=f"vlan = {port_vlan}")
        wire = Wire("d1", daemon)
        for tag in served:
            wire.served(100, tag, tci)
        for number, tag in enumerate(refusals, 1):
            wire.ask(100, tag)
            rig.until(lambda n=number: daemon.verdicts()["wrong_vlan"] == n, f"{tag} is refused")
        wire.served(100, served[0], tci)
        stop(daemon)
    remove("d0")


if __name__ == "__main__":
    rig.main()
