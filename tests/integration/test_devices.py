# SPDX-License-Identifier: BSD-3-Clause
"""Ports in odd places: one family of addresses, link-local peers, MACs that move, devices that are
none, and what a daemon may not have."""
import os
import subprocess

import rig
import roce
from rig import expect, expect_equal, test, until
from roce import READ_REQUEST, WRITE_ONLY, bth, mac_bytes, reth

EXPORT = "[export a]\nlisten = {listen}\nsize = 64K\naccess = read,write,atomic\n"


def stage(name, ip, listen, *, ip4=None, ip6=None, mac=None, mtu=1500, **options):
    """Daemon, target and wire on a veth of their own; the wire has its witness."""
    rig.veth(f"d{name}", f"p{name}", mtu)
    if mac:
        subprocess.run(["ip", "link", "set", f"d{name}", "address", mac], check=True)
    daemon = rig.Daemon(name, f"net_af_packet0,iface=d{name}", ip, **options)
    target = rig.Target(f"{name}target", daemon, EXPORT.format(listen=listen))
    wire = roce.Wire(f"p{name}", daemon, ip4, ip6)
    wire.witness = roce.Connection(wire.peer(six=ip4 is None), 7471)
    return daemon, target, wire


def serves(wire, six=False, **options):
    """A new connection writes, reads, asks for a window, and ends."""
    c = roce.Connection(wire.peer(six), 7471, **options)
    data = os.urandom(3000)
    c.write(0, data[:c.mtu])
    expect_equal(c.read(0, c.mtu), data[:c.mtu], "bytes read back")
    expect_equal(c.ask(length=8).length, 8, "length of a new window")
    c.disconnect()


def stop(*processes):
    for process in processes:
        expect_equal(process.stop(), 0, f"exit status of {process.name}; it said {process.log()}")


# --- addresses ----------------------------------------------------------------------------------


@test("B79: a peer that has nothing but a link-local address is served at ours")
def link_local():
    daemon, target, wire = stage("l", "10.70.0.1/16", "[::]:7471", mac="02:00:00:00:00:01",
                                 ip6="fe80::ff:fe00:1")
    serves(wire, six=True)
    # The identifier of an interface may be anything: a MAC's, or a secret.
    for ip in ("fe80::1", "fe80::dead:beef:1234:5678", "fe80:0:0:0:a8bb:ccff:fedd:eeff"):
        c = roce.Connection(roce.Peer(wire, ip, "02:00:00:00:77:01"), 7471)
        c.write(0, b"stranger")
        expect_equal(c.read(0, 8), b"stranger", f"bytes of {ip}")
        c.disconnect()
    stop(target, daemon)


@test("B82: a port with IPv6 addresses only, and with IPv4 addresses only")
def one_family():
    daemon, target, wire = stage("s", "fd71::1/64", "[fd71::1]:7471", ip6="fd71::1")
    serves(wire, six=True)
    stop(target, daemon)
    daemon, target, wire = stage("f", "10.71.0.1/16", "10.71.0.1:7471", ip4="10.71.0.1")
    serves(wire)
    stop(target, daemon)


# --- MACs ---------------------------------------------------------------------------------------


@test("B83: a peer whose MAC changes again and again: only whole MACs that it has had are used")
def moving_mac():
    daemon, target, wire = stage("m", "10.72.0.1/16", "10.72.0.1:7471", ip4="10.72.0.1")
    peer = wire.peer()
    macs, some = set(), []
    for number in range(10 if rig.QUICK else 40):
        peer.mac = f"02:00:00:{number % 2:02x}:{os.urandom(1)[0]:02x}:{number:02x}"
        macs.add(mac_bytes(peer.mac))
        peer.announce()
        c = roce.Connection(peer, 7471)
        got = c.write(0, b"moving")
        expect_equal(got.destination_mac, mac_bytes(peer.mac), "where a new connection sends")
        expect_equal(c.rep.packet.destination_mac, mac_bytes(peer.mac), "where the REP went")
        for old in some[-5:]:
            expect(old.write(0, b"moved?").destination_mac in macs,
                   "a MAC that was never the peer's")
        some.append(c)
    for c in some:
        c.disconnect()
    stop(target, daemon)


@test("B86: a device without a MAC is refused by name; one whose MAC is changed goes on")
def own_mac():
    subprocess.run(["ip", "tuntap", "add", "mode", "tun", "name", "tun7"], check=True)
    subprocess.run(["ip", "link", "set", "tun7", "up"], check=True)
    daemon = rig.Daemon("t", "net_af_packet0,iface=tun7", "10.73.0.1/16", wait=False)
    expect(daemon.wait() > 0 and "no Ethernet address" in daemon.log(),
           f"a tun device: {daemon.log()}")
    daemon, target, wire = stage("c", "10.73.0.1/16", "10.73.0.1:7471", ip4="10.73.0.1")
    before = daemon.port()["mac"]
    subprocess.run(["ip", "link", "set", "dc", "address", "02:00:00:00:99:99"], check=True)
    serves(wire)
    expect_equal(daemon.port()["mac"], before, "the MAC of the port")
    stop(target, daemon)


# --- sizes --------------------------------------------------------------------------------------


@test("B92: frames that a link has merged, longer than the port's MTU, are dropped by their reason")
def oversize():
    daemon, target, wire = stage("o", "10.74.0.1/16", "10.74.0.1:7471", ip4="10.74.0.1", mtu=9000)
    c = roce.Connection(wire.peer(), 7471)
    before = daemon.verdicts()
    for length in (1600, 3000, 8000):
        c.peer.send(bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True)
                    + reth(c.at(0), c.window.token, length) + bytes(length), sport=c.sport)
    expect_equal(c.replies(), [], "answers to merged frames")
    expect_equal(dict(daemon.verdicts() - before), {"oversize": 3}, "reasons")
    serves(wire)
    stop(target, daemon)


# --- devices ------------------------------------------------------------------------------------


@test("B112, B113: virtual devices of every documented driver start, without a NUMA node")
def drivers():
    for number, device in enumerate(("net_tap0,iface=tap7", rig.memif("x", "server"),
                                     f"net_vhost0,iface={rig.WORK}/v.sock,client=0")):
        daemon = rig.Daemon(f"x{number}", device, "10.75.0.1/16")
        expect_equal(daemon.status()["ports"], 1, f"ports of {device}")
        stop(daemon)


@test("B115: what a daemon may not do is said in one line, and what it needs not, it does without")
def capabilities():
    rig.veth("dk", "pk")
    os.chmod(rig.WORK, 0o777)
    for words, device, lacks in (
            (["setpriv", "--bounding-set=-net_raw"], "net_af_packet0,iface=dk", "CAP_NET_RAW"),
            (["setpriv", "--bounding-set=-net_admin"], "net_tap0,iface=tap8", "CAP_NET_ADMIN"),
            (["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
             "net_af_packet0,iface=dk", "CAP_NET_RAW"),
            (["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
             rig.memif("k", "server"), None),
            (["prlimit", "--memlock=65536"], rig.memif("k2", "server"), None),
            (["setpriv", "--bounding-set=-ipc_lock,-sys_admin,-sys_nice,-sys_resource"],
             "net_af_packet0,iface=dk", None)):
        probe = rig.Daemon("k", device, "10.76.0.1/16", wait=False)
        probe.kill()
        if os.path.lexists(probe.socket):
            os.unlink(probe.socket)
        process = rig.Process("k", words + [rig.program("orield"), "--config", probe.config])
        if not lacks:
            process.wait_log("orield: ready")
            stop(process)
            continue
        expect(process.wait() > 0, f"{words} {device}: exit status 0")
        said = [line for line in process.log().splitlines() if line.startswith("orield:")]
        expect(len(said) == 1 and lacks in said[0], f"{words} {device}: {process.log()}")


@test("B119: an af_xdp port that stood still under a flood serves again by itself")
def af_xdp():
    rig.veth("da", "pa")
    daemon = rig.Daemon("a", "net_af_xdp0,iface=da", "10.78.0.1/16", wait=False)
    until(lambda: "ready" in daemon.log() or not daemon.alive(), "the daemon is ready, or not")
    if not daemon.alive():
        expect("net_af_xdp" in daemon.log(), daemon.log())
        daemon.gone()
        raise rig.Skip("no driver net_af_xdp, or no AF_XDP in this kernel")
    target = rig.Target("atarget", daemon, EXPORT.format(listen="10.78.0.1:7471"))
    wire = roce.Wire("pa", daemon, "10.78.0.1")
    wire.witness = roce.Connection(wire.peer(), 7471)
    c = roce.Connection(wire.peer(), 7471)
    frame = c.peer.frame(bth(READ_REQUEST, c.remote_qpn ^ 1, 0) + reth(0, 0, 0)).bytes()
    for _ in range(2 if rig.QUICK else 5):
        with daemon.stopped():
            for _ in range(20000):
                wire.send(frame)
        wire.worked_off()
        c.replies()
        serves(wire)
    stop(target, daemon)


# --- counters -----------------------------------------------------------------------------------


@test("B129: a daemon that stood still under a flood accounts for each frame that the driver gave")
def missed():
    daemon, target, wire = stage("n", "10.77.0.1/16", "10.77.0.1:7471", ip4="10.77.0.1")
    c = roce.Connection(wire.peer(), 7471)
    frame = c.peer.frame(bth(READ_REQUEST, c.remote_qpn ^ 1, 0) + reth(0, 0, 0)).bytes()
    before, port = daemon.verdicts(), daemon.port()
    count = 2000 if rig.QUICK else 20000
    with daemon.stopped():
        for _ in range(count):
            wire.send(frame)
    wire.worked_off()
    c.replies()
    now = daemon.port()
    counted = (daemon.verdicts() - before)["qp_unknown"]
    given = now["rx_packets"] - port["rx_packets"]
    rig.note(f"{count} sent, {given} given by the driver, {counted} dropped as unknown, "
             f"{now['rx_missed']} told as missed")
    # Beside the flood there were questions, asked until one was answered.
    expect(counted <= given <= counted + 200, f"{given} frames from the driver, {counted} counted")
    serves(wire)
    later = daemon.port()
    expect(all(later[key] >= now[key] for key in now if key.startswith(("rx_", "tx_"))),
           f"counters that went back: {now} then {later}")
    stop(target, daemon)


if __name__ == "__main__":
    rig.main()
