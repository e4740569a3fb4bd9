# SPDX-License-Identifier: BSD-3-Clause
"""The example programs, each against itself over two daemons, and what they say of mistakes."""
import os
import subprocess

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write
"""


class Pair:
    a = b = None


def setup():
    Pair.a = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24, fd66::1/64")
    Pair.b = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24, fd66::2/64", number=1)


def run(daemon, name, *arguments, given=None):
    return subprocess.run([rig.program(name), *arguments], input=given, capture_output=True,
                          timeout=120, check=False,
                          env={**os.environ, "ORIEL_SOCKET": daemon.socket})


def both(name, server_arguments, client_arguments):
    """One run of both sides; everything is gone afterwards."""
    before = [daemon.counts() for daemon in (Pair.a, Pair.b)]
    server = Process(name, [rig.program(name), *server_arguments],
                     {"ORIEL_SOCKET": Pair.a.socket})
    server.wait_log("listening")
    client = run(Pair.b, name, *client_arguments)
    expect_equal(client.returncode, 0, f"{name}: {client.stderr.decode()}")
    expect_equal(server.wait(), 0, f"{name}, the server:\n{server.log()}")
    for daemon, baseline in zip((Pair.a, Pair.b), before):
        daemon.expect_counts(baseline)
    return client.stdout.decode() + server.log()


@test("oriel-rping: every round comes back unchanged, at all sizes, over both families")
def rping():
    for address in ("10.66.0.1", "fd66::1"):
        for size in (64, 1000, 4097, 65536):
            said = both("oriel-rping", ["-s", "-a", address, "-S", str(size)],
                        ["-c", "-a", address, "-C", "50", "-S", str(size), "-V"])
            expect("50 rounds" in said, said)


@test("oriel-cmatose: many connections, messages both ways, the server disconnects")
def cmatose():
    for address in ("10.66.0.1", "fd66::1"):
        both("oriel-cmatose", ["-b", address, "-c", "60", "-C", "16"],
             ["-s", address, "-c", "60", "-C", "16"])
    both("oriel-cmatose", ["-b", "10.66.0.1", "-C", "0"], ["-s", "10.66.0.1", "-C", "0"])


@test("oriel-udaddy: queue pairs found by their service, datagrams both ways")
def udaddy():
    for address in ("10.66.0.1", "fd66::1"):
        both("oriel-udaddy", ["-b", address, "-c", "10", "-C", "16"],
             ["-s", address, "-c", "10", "-C", "16"])


@test("oriel-window: what was put is what is got; refusals are explained")
def window():
    target = Target("target", Pair.a, EXPORT)
    data = os.urandom(300000)
    put = run(Pair.b, "oriel-window", "-a", "10.66.0.1", "-o", "100", "put", given=data)
    expect_equal(put.returncode, 0, put.stderr.decode())
    got = run(Pair.b, "oriel-window", "-a", "10.66.0.1", "-o", "100", "-n", "300000", "get")
    expect_equal(got.returncode, 0, got.stderr.decode())
    expect(got.stdout == data, "other bytes came back")
    refused = run(Pair.b, "oriel-window", "-a", "10.66.0.1", "-e", "nothing", "get")
    expect(refused.returncode == 1 and b"no such export" in refused.stderr, refused.stderr)
    long = run(Pair.b, "oriel-window", "-a", "10.66.0.1", "-o", "1048000", "put", given=data)
    expect(long.returncode == 1 and b"longer than the window" in long.stderr, long.stderr)
    target.stop()


@test("a server that is not there, a daemon that is not there, and bad arguments say so")
def mistakes():
    for name, arguments in (("oriel-rping", ("-c", "-a", "10.66.0.1", "-p", "7999")),
                            ("oriel-cmatose", ("-s", "10.66.0.1", "-p", "7999")),
                            ("oriel-udaddy", ("-s", "10.66.0.1", "-p", "7999")),
                            ("oriel-window", ("-a", "10.66.0.1", "-p", "7999", "get"))):
        result = run(Pair.b, name, *arguments)
        expect(result.returncode == 1 and b"REFUSED" in result.stderr, f"{name}: {result.stderr}")
        result = subprocess.run([rig.program(name), *arguments], capture_output=True, timeout=120,
                                check=False, env={**os.environ, "ORIEL_SOCKET": "/run/nobody"})
        expect(result.returncode == 1 and b"/run/nobody" in result.stderr,
               f"{name}: {result.stderr}")
        result = run(Pair.b, name, "-Z")
        expect(result.returncode == 2 and b"Usage" in result.stderr, f"{name}: {result.stderr}")


rig.main(setup)
