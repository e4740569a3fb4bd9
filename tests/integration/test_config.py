# SPDX-License-Identifier: BSD-3-Clause
"""Configuration files of orield and oriel-target: every mistake is refused, by file and line."""
import os
import subprocess

import rig
from rig import expect, expect_equal, test

DAEMON = """[daemon]
workers = {cpu}
control-core = {cpu}
socket = /run/it/a.sock
idle = adaptive
migrate = yes
hugepages = no
telemetry = yes
bad-token-budget = 64
max-queue-pairs = 1024
max-windows = 4096
[congestion]
enabled = yes
line-rate = auto
minimum-rate = 100M
gain = 256
recovery-stages = 5
additive-rate = 40M
hyper-rate = 400M
alpha-period = 55
increase-period = 55
increase-bytes = 10000000
reduce-period = 50
cnp-interval = 50
cnp-dscp = 48
[port wan0]
device = net_memif0,role=server,socket=/run/it/m,socket-abstract=no
ip = 10.0.0.1/24, fd00::1/64
vlan = 0
mtu = 1500
gateway = 10.0.0.254
dscp = peer
"""

TARGET = """[target]
socket = /run/it/a.sock
probe = 10
[export scratch]
listen = 10.0.0.1:7471
size = 64K
backing = memfd
access = read,write
window = connection
allow = 10.0.0.0/24
"""

NUMBERS = ["", "-1", "1e3", "0x10", "4294967296", "18446744073709551617", "1500abc", "1 2", "+1"]


def daemon_text():
    return DAEMON.format(cpu=rig.cpu(0))


def check(name, text):
    """--check of a file with this text: exit status, lines on stderr, path."""
    path = rig.write_file("check.conf", text)
    result = subprocess.run([rig.program(name), "--config", path, "--check"], capture_output=True,
                            timeout=rig.PATIENCE, check=False)
    return result.returncode, result.stderr.decode("utf-8", "replace").splitlines(), path


def must_pass(name, text, why):
    status, lines, _ = check(name, text)
    expect(status == 0, f"{why}: {name} refuses it: {lines}")


def must_refuse(name, text, line, *mentions):
    """One line, with the file and the line in it, and whatever else it must mention."""
    status, lines, path = check(name, text)
    what = f"{name}: line {line} {mentions}"
    expect(status > 0, f"{what}: exit status {status}, expected a refusal; said {lines}")
    expect_equal(len(lines), 1, f"{what}: lines of the complaint {lines}")
    expect(lines[0].startswith(f"{path}:{line}:"), f"{what}: no file and line in '{lines[0]}'")
    for mention in mentions:
        expect(mention in lines[0], f"{what}: '{mention}' is not in '{lines[0]}'")


def changed(text, key, value):
    """The text with another value of a key, and the number of its line."""
    lines = text.splitlines()
    number = next(i for i, line in enumerate(lines) if line.startswith(f"{key} ="))
    lines[number] = f"{key} = {value}"
    return "\n".join(lines) + "\n", number + 1


def refuse_value(name, text, key, value):
    changed_text, line = changed(text, key, value)
    must_refuse(name, changed_text, line, key)


def appended(text, extra):
    return text + extra + "\n", len(text.splitlines()) + 1


@test("B116: what is right is taken, by orield and oriel-target")
def good_files():
    must_pass("orield", daemon_text(), "the plain file")
    must_pass("oriel-target", TARGET, "the plain file")


@test("B116: numeric keys of orield refuse what is not a plain number in range")
def daemon_numbers():
    for key in ("control-core", "bad-token-budget", "max-queue-pairs", "max-windows", "vlan",
                "mtu", "dscp", "gain", "recovery-stages", "alpha-period", "increase-period",
                "reduce-period", "cnp-interval", "cnp-dscp"):
        for value in NUMBERS:
            refuse_value("orield", daemon_text(), key, value)
    for value in NUMBERS + ["1-", "2-1", "-", "0,0", ",", "99999"]:
        refuse_value("orield", daemon_text(), "workers", value)


@test("B116: limits of orield's numbers hold at both ends")
def daemon_ranges():
    for key, good, bad in (("vlan", (1, 4094), (4095,)), ("mtu", (576, 9600), (575, 9601)),
                           ("bad-token-budget", (0, 1000000), (1000001,)),
                           ("max-queue-pairs", (16, 131072), (8, 100, 262144)),
                           ("max-windows", (256, 4194304), (128, 1000, 8388608)),
                           ("dscp", (0, 63), (64, )), ("cnp-dscp", (0, 63), (64, )),
                           ("gain", (2, 32768), (1, 100, 65536)),
                           ("recovery-stages", (1, 100), (0, 101)),
                           ("cnp-interval", (1, 10000000), (0, 10000001))):
        for value in good:
            must_pass("orield", changed(daemon_text(), key, value)[0], f"{key} = {value}")
        for value in bad:
            refuse_value("orield", daemon_text(), key, value)


@test("B116: other keys of orield refuse what they do not know")
def daemon_words():
    for key, values in (("idle", ("", "BUSY", "sleepy")), ("migrate", ("", "Yes", "auto")),
                        ("hugepages", ("", "maybe", "1")),
                        ("telemetry", ("", "auto", "true")), ("socket", ("", "a.sock")),
                        ("gateway", ("10.0.0.256", "10.0.0.254/24", "224.0.0.1")),
                        ("enabled", ("", "on", "auto")), ("dscp", ("", "Peer", "af11")),
                        ("line-rate", ("", "0", "25", "25g", "-1G", "1.5G", "10001G", "25 G",
                                       "99999999999999999999", "25GB")),
                        ("minimum-rate", ("auto", "", "999999")),
                        ("increase-bytes", ("0", "", "-1", "auto"))):
        for value in values:
            refuse_value("orield", daemon_text(), key, value)
    refuse_value("orield", daemon_text(), "socket", "/" + "x" * 107)
    for value in ("1M", "1000000", "25G", "10000G"):
        must_pass("orield", changed(changed(daemon_text(), "minimum-rate", "1M")[0], "line-rate",
                                    value)[0], f"line-rate = {value}")
    text, line = changed(daemon_text(), "line-rate", "10M")
    line = max(line, changed(text, "minimum-rate", "100M")[1])
    must_refuse("orield", text, line, "[congestion]", "minimum-rate")
    must_refuse("orield", daemon_text().replace("[daemon]\n", "[daemon]\nsocket-group = no-such\n"),
                daemon_text().splitlines().index("[daemon]") + 2, "socket-group", "no-such")


@test("B82: addresses of a port: unicast with a length, once; a mapped address is refused")
def daemon_addresses():
    for value in ("", "10.0.0.1", "10.0.0.1/", "10.0.0.1/33", "10.0.0.1/-1", "10.0.0.1/24x",
                  "10.0.0/24", "::ffff:10.0.0.1/120", "fd00::1/129", "224.0.0.1/24", "0.0.0.0/0",
                  "127.0.0.1/8", "ff02::1/64", "::/64", "10.0.0.1/24, 10.0.0.1/24", "localhost/8"):
        refuse_value("orield", daemon_text(), "ip", value)
    plain = changed(daemon_text(), "gateway", "fd00::fe")[0]
    must_pass("orield", changed(plain, "ip", "fd00::1/64")[0], "IPv6 alone")
    must_pass("orield", changed(daemon_text(), "ip", "10.0.0.1/24")[0], "IPv4 alone")
    text, line = changed(changed(daemon_text(), "ip", "10.0.0.1/24")[0], "gateway", "fd00::fe")
    must_refuse("orield", text, line, "[port wan0]", "gateway")


@test("B116: duplicate keys, unknown keys and unknown sections are errors, not ignored")
def daemon_structure():
    for extra, *mentions in (("mtu = 1500", "mtu", "once"), ("mut = 1500", "mut"),
                             ("MTU = 1500", "MTU"), ("[daemons]\nx = 1", ),
                             ("[port]\nmtu = 1500", ), ("[port ]\nmtu = 1500", ),
                             ("no equals sign", )):
        text, line = appended(daemon_text(), extra)
        must_refuse("orield", text, line + extra.count("\n"), *mentions)
    text = daemon_text().replace("idle = adaptive", "idle = adaptive\nidle = busy")
    must_refuse("orield", text, 6, "idle", "once")
    # The same key after its section was left and entered again.
    text, line = appended(daemon_text(), "[daemon]\nidle = busy")
    must_refuse("orield", text, line + 1, "idle", "once")


@test("B116: tabs, CRLF and a missing last newline change nothing")
def line_forms():
    for name, text in (("orield", daemon_text()), ("oriel-target", TARGET)):
        must_pass(name, text.replace(" = ", "\t=\t"), "tabs")
        must_pass(name, text.replace("\n", "\r\n"), "CRLF")
        must_pass(name, text.rstrip("\n"), "no newline at the end")
        must_pass(name, text.replace("\n", " ; a comment\n"), "comments")
        must_pass(name, "; first\n\n# second\n" + text, "comment lines")
    text, line = changed(daemon_text(), "mtu", "1e3\t")
    must_refuse("orield", text.replace("\n", "\r\n"), line, "mtu = 1e3: expected")
    text, line = changed(TARGET, "allow", "10.0.0.0/99")
    must_refuse("oriel-target", text.rstrip("\n"), line, "allow")


@test("B116: over-long lines and bytes that are no text are refused, not cut")
def odd_bytes():
    text, line = changed(daemon_text(), "gateway", "10.0.0.1," * 200)
    status, lines, path = check("orield", text)
    expect(status > 0 and lines[0].startswith(f"{path}:{line}:"), f"long line: {status} {lines}")
    for junk in (b"\0\0\0\0", b"\xff\xfe[\0d\0", bytes(range(256)) * 20, b"[", b"[daemon", b"="):
        for name in ("orield", "oriel-target"):
            status, lines, _ = check(name, junk)
            expect(status > 0 and lines, f"{name} takes {junk[:16]!r}: {status} {lines}")


@test("B123: workers and the control core must be processors that may be used, each once")
def processors():
    absent = max(os.sched_getaffinity(0)) + 1
    for key, value in (("workers", absent), ("control-core", absent),
                       ("workers", f"{rig.cpu(0)},{absent}"), ("workers", f"0-{absent}"),
                       ("workers", f"{rig.cpu(0)},{rig.cpu(0)}")):
        refuse_value("orield", daemon_text(), key, value)
    mine = os.sched_getaffinity(0)
    if len(mine) > 1:
        outside = max(mine)
        path = rig.write_file("check.conf", changed(daemon_text(), "workers", outside)[0])
        result = subprocess.run([rig.program("orield"), "--config", path, "--check"],
                                capture_output=True, text=True, timeout=rig.PATIENCE, check=False,
                                preexec_fn=lambda: os.sched_setaffinity(0, mine - {outside}))
        expect(result.returncode > 0 and str(outside) in result.stderr,
               f"a worker outside the cpuset: {result.returncode} {result.stderr}")


@test("B123, B112: devices that are not there are named, with their line")
def devices():
    for value, mention in (("0000:ff:1f.7", "0000:ff:1f.7"), ("ff:1f.7", "ff:1f.7"),
                           ("net_af_packet0,iface=absent0", "absent0"),
                           ("net_af_packet0", "iface"), ("eth0", "eth0"), ("", "device"),
                           ("net_af_xdp0,iface=absent0", "absent0")):
        text, line = changed(daemon_text(), "device", value)
        must_refuse("orield", text, line, "[port wan0]", mention)
    two = daemon_text() + ("[port wan1]\ndevice = net_memif0,role=server,socket=/run/it/m,"
                           "socket-abstract=no\nip = 10.0.1.1/24\n")
    must_refuse("orield", two, len(two.splitlines()) - 1, "wan0")


@test("B116: what is missing is said")
def missing():
    for name, text, mention in (("orield", "[daemon]\n", "port"), ("orield", "", "port"),
                                ("oriel-target", "", "export")):
        status, lines, path = check(name, text)
        expect(status > 0 and len(lines) == 1 and lines[0].startswith(path) and
               mention in lines[0], f"{name} {text!r}: {status} {lines}")
    for name, text, *mentions in (("orield", "[port a]\nip = 10.0.0.1/24\n", "[port a]", "device"),
                                  ("oriel-target", "[export a]\nsize = 1M\n", "[export a]",
                                   "listen"),
                                  ("oriel-target", "[export a]\nlisten = 10.0.0.1:1\n",
                                   "[export a]", "size")):
        must_refuse(name, text, 2, *mentions)
    for name in ("orield", "oriel-target"):
        result = subprocess.run([rig.program(name), "--config", "/run/it/absent.conf", "--check"],
                                capture_output=True, text=True, timeout=rig.PATIENCE, check=False)
        expect(result.returncode > 0 and "/run/it/absent.conf" in result.stderr,
               f"{name} without a file: {result.returncode} {result.stderr}")


@test("B116: sizes of an export refuse what is not a size")
def target_sizes():
    for value in ("", "-1", "1e3", "0x10", "0", "0M", "64MB", "64 M", "M", "99999999999999999999",
                  "18446744073709551615", "9999999999T", "1.5G"):
        refuse_value("oriel-target", TARGET, "size", value)
    for value in ("1", "4096", "64K", "64k", "1M", "2g"):
        must_pass("oriel-target", changed(TARGET, "size", value)[0], f"size = {value}")


@test("B116: the pause between two probes of a connection is a plain number in range")
def target_numbers():
    for value in NUMBERS + ["86401"]:
        refuse_value("oriel-target", TARGET, "probe", value)
    for value in (0, 1, 86400):
        must_pass("oriel-target", changed(TARGET, "probe", value)[0], f"probe = {value}")


@test("B78, B116: other keys of an export refuse what they do not know, by line")
def target_words():
    for key, values in (("listen", ("", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536",
                                    "10.0.0.1:7471x", "fd00::1:7471", "[fd00::1]", "host:7471",
                                    "::ffff:10.0.0.1:7471", ":7471")),
                        ("backing", ("", "disk", "file:", "file:relative", "hugepages")),
                        ("access", ("", "reads", "read write", "READ")),
                        ("window", ("", "both")),
                        ("allow", ("", "10.0.0.0/33", "fd00::/129", "10.0.0", "all", "10.0.0.1/x")),
                        ("socket", ("", "a.sock"))):
        for value in values:
            refuse_value("oriel-target", TARGET, key, value)
    for value in ("0.0.0.0:7471", "[::]:7471", "10.0.0.1:7471, [fd00::1]:7471"):
        must_pass("oriel-target", changed(TARGET, "listen", value)[0], f"listen = {value}")


@test("B116: duplicate keys, unknown keys, unknown sections of oriel-target")
def target_structure():
    for extra, *mentions in (("size = 1M", "size", "once"), ("sise = 1M", "sise"),
                             ("[exports]\nx = 1", ), ("[export ]\nsize = 1M", ),
                             ("[target]\nsocket = /b", "once"), ("[target]\nport = 1", "port"),
                             ("[export " + "n" * 25 + "]\nsize = 1M", )):
        text, line = appended(TARGET, extra)
        must_refuse("oriel-target", text, line + extra.count("\n"), *mentions)


@test("the sample configurations are right but for the devices they name")
def samples():
    top = os.path.abspath(f"{os.path.dirname(os.path.abspath(__file__))}/../..")
    with open(f"{top}/config/oriel-target.conf", encoding="ascii") as file:
        must_pass("oriel-target", file.read(), "config/oriel-target.conf")
    with open(f"{top}/config/orield.conf", encoding="ascii") as file:
        text = file.read()
    if len(os.sched_getaffinity(0)) < 2:
        raise rig.Skip("the sample names processor 1")
    status, lines, _ = check("orield", text)
    expect(status == 0 or (len(lines) == 1 and "no interface eth1" in lines[0]),
           f"config/orield.conf: {status} {lines}")


if __name__ == "__main__":
    rig.main()
