# SPDX-License-Identifier: BSD-3-Clause
"""perftest's exchange, over TCP and over rdma_cm: oriel-perf at both ends, a daemon each."""
import json
import os
import signal
import socket
import struct
import subprocess

import rig
from rig import Daemon, Process, expect, expect_equal, test, until

TESTS = ["write_bw", "read_bw", "send_bw", "atomic_bw", "write_lat", "read_lat", "send_lat",
         "atomic_lat"]
PORT = 18515


class Stage:
    server = client = None
    baselines = None


def setup():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Stage.server = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24, fd66::1/64")
    Stage.client = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24, fd66::2/64", number=1)
    Stage.baselines = [(daemon, daemon.counts()) for daemon in (Stage.server, Stage.client)]


def host(arguments):
    if "-R" not in arguments:
        return "localhost"
    return "fd66::1" if "--ipv6" in arguments else "10.66.0.1"


def patient(arguments):
    """perftest's own ACK timeout ends a connection whose peer stands still for half a second."""
    return [*arguments] if {"-R", "-c"} & {*arguments} else [*arguments, "-u", "18"]


def run(server_arguments, client_arguments=None):
    """Both ends to their good ends; the JSON results of server and client."""
    client_arguments = client_arguments or server_arguments
    program = [rig.program("oriel-perf"), "--json"]
    server = Process("server", [*program, *patient(server_arguments)],
                     {"ORIEL_SOCKET": Stage.server.socket})
    client = subprocess.run([*program, *patient(client_arguments), host(client_arguments)],
                            timeout=120, capture_output=True, text=True, check=False,
                            env={"ORIEL_SOCKET": Stage.client.socket})
    expect(client.returncode == 0, f"client {client_arguments}: {client.stderr}")
    expect_equal(server.wait(), 0, f"server {server_arguments}: {server.log()}")
    return [json.loads(said)["results"] for said in (server.log(), client.stdout)]


def clean():
    for daemon, baseline in Stage.baselines:
        daemon.expect_counts(baseline)


def both(name, more, messages):
    theirs, ours = run([name, "-n", "50", *more])
    expect_equal([result["messages"] for result in ours], [messages], f"{name} {more}: sent")
    return theirs, ours


def each_test(more):
    for name in TESTS:
        theirs, ours = both(name, more, 50)
        expect_equal(ours[0]["mode"], "latency" if name.endswith("lat") else "bandwidth", name)
        if name.endswith("bw"):
            moved = theirs[0]["messages"] + theirs[0]["received"]
            expect_equal(moved, 50, f"{name} {more}: what the server knows of")
        expect("-a" in more or ours[0]["bytes"] == theirs[0]["bytes"] if theirs else True, name)
    clean()


@test("each test over TCP, client and server")
def over_tcp():
    each_test([])


@test("each test over rdma_cm (-R)")
def over_rdma_cm():
    each_test(["-R"])


@test("both ways at once (-b), several queue pairs (-q)")
def both_ways():
    for more in ([], ["-R"]):
        for name in ("write_bw", "read_bw", "send_bw", "atomic_bw"):
            theirs, ours = both(name, ["-b", "-q", "3", *more], 150)
            expect_equal(theirs[0]["messages"], 150, f"{name}: sent by the server")
            expect(ours[0]["received"] > 0 and theirs[0]["received"] > 0,
                   f"{name}: the other side's share: {ours} {theirs}")


@test("all sizes (-a)")
def all_sizes():
    for name in ("write_bw", "send_bw", "write_lat", "read_lat"):
        _, ours = run([name, "-a", "-n", "2"])
        expect_equal([result["bytes"] for result in ours], [2 << i for i in range(23)], name)


@test("by time (-D): the client's end is the server's")
def by_time():
    for name in ("write_bw", "send_bw", "read_lat"):
        theirs, ours = run([name, "-D", "0.2", "-s", "4096"])
        expect(ours[0]["messages"] > 0, f"{name}: {ours} {theirs}")


@test("unreliable connections and datagrams")
def services():
    for name in ("write_bw", "write_lat"):
        both(name, ["-c", "UC", "-s", "2000", "-t", "16"], 50)
    for service in ("UC", "UD"):
        for name in ("send_bw", "send_lat"):
            both(name, ["-c", service, "-s", "1000", "-t", "16"], 50)
    for name, messages, more in (("send_bw", 50, []), ("send_lat", 50, []),
                                 ("send_bw", 100, ["-b", "-q", "2"])):
        both(name, ["-R", "-c", "UD", "-s", "1000", "-t", "16", *more], messages)
    clean()


@test("IPv6: --ipv6, or the second of the daemon's addresses (-x); both ends must agree")
def ipv6():
    both("write_bw", ["--ipv6"], 50)
    both("read_lat", ["-x", "1"], 50)
    both("write_lat", ["-R", "--ipv6"], 50)
    both("send_lat", ["-R", "--ipv6", "-c", "UD"], 50)
    server = Process("server", [rig.program("oriel-perf"), "read_bw"],
                     {"ORIEL_SOCKET": Stage.server.socket})
    client = Process("client", [rig.program("oriel-perf"), "read_bw", "--ipv6", "localhost"],
                     {"ORIEL_SOCKET": Stage.client.socket})
    for end in (server, client):
        expect_equal(end.wait(), 1, end.log())
        expect("oriel-perf: the other side" in end.log(), end.log())


@test("--verify against perftest's side: written and read back, read twice, counted")
def verified():
    for name, more, server_more in (
            ("write_bw", ["-s", "3000"], []), ("write_bw", ["-s", "100", "-q", "2"], []),
            ("write_bw", ["-s", "5000", "-R"], ["-R"]), ("read_bw", ["-s", "5000"], []),
            ("read_lat", ["-s", "64"], []), ("atomic_bw", ["-q", "3"], []),
            ("atomic_lat", [], []), ("atomic_bw", ["-A", "CMP_AND_SWAP"], ["-A", "CMP_AND_SWAP"])):
        words = [word for word in more if word not in ("-R", "-A", "CMP_AND_SWAP")]
        _, ours = run([name, "-n", "50", *words, *server_more],
                      [name, "-n", "50", *more, "--verify"])
        expect(ours[0]["verified_bytes"] > 0, f"{name} {more}: {ours}")
        expect_equal(ours[0]["messages"], 150 if "3" in more else 100 if "2" in more else 50, name)
    clean()


@test("--warm-up where the other side only serves: before the measurement, and not part of it")
def warm_up():
    for name in ("write_bw", "read_bw", "read_lat", "atomic_bw"):
        before = Stage.server.ask("stats")["workers"]["0"]
        _, ours = run([name, "-n", "50"], [name, "-n", "50", "--warm-up", "0.1"])
        after = Stage.server.ask("stats")["workers"]["0"]
        kind = {"write": "rx_write", "read": "rx_read", "atomic": "rx_atomic"}[name.split("_")[0]]
        expect_equal(ours[0]["messages"], 50, f"{name}: messages measured")
        expect(after[kind] - before[kind] > 50, f"{name}: {after[kind] - before[kind]} served")
    clean()


def messages():
    counters = Stage.server.ask("stats")["workers"]["0"]
    return counters["rx_write"] + counters["rx_send"]


@test("ends that do not run the same test, or are not alive any more, end with a reason")
def mismatched():
    def ends(server_words, client_words, said, status=1):
        server = Process("server", [rig.program("oriel-perf"), *server_words],
                         {"ORIEL_SOCKET": Stage.server.socket})
        client = subprocess.run(
            [rig.program("oriel-perf"), *client_words, "localhost"], timeout=60,
            capture_output=True, text=True, check=False,
            env={"ORIEL_SOCKET": Stage.client.socket})
        expect_equal(client.returncode, status, f"{client_words}: {client.stderr}")
        expect_equal(server.wait(), status, f"{server_words}: {server.log()}")
        expect(said in client.stderr + server.log(), f"{said}: {client.stderr} {server.log()}")
    ends(["write_bw", "-n", "9", "-q", "1"], ["write_bw", "-n", "9", "-q", "4"], "no results")
    ends(["write_bw", "-n", "9", "-s", "64"], ["write_bw", "-n", "9", "-s", "128"],
         "--size is 64 here and 128 there", 0)
    for words in (["write_lat"], ["-R", "send_lat"]):
        for dies in ("server", "client"):
            command = [rig.program("oriel-perf"), *words, "-n", "100000000"]
            server = Process("server", command, {"ORIEL_SOCKET": Stage.server.socket})
            client = Process("client", [*command, host(words)],
                             {"ORIEL_SOCKET": Stage.client.socket})
            before = messages()
            rig.until(lambda before=before: messages() > before + 20, "they exchange messages")
            victim, other = (server, client) if dies == "server" else (client, server)
            victim.kill()
            expect(other.wait(), f"{words}, {dies} killed: a good end: {other.log()}")
            expect("oriel-perf: " in other.log(), f"{words}, {dies} killed: {other.log()}")
    clean()


@test("a server that waits for its client ends at the first SIGINT")
def interrupted():
    for words in ([], ["-R"]):
        server = Process("server", [rig.program("oriel-perf"), *words, "send_bw"],
                         {"ORIEL_SOCKET": Stage.server.socket})
        baseline = Stage.baselines[0][1]
        rig.until(lambda: Stage.server.counts() != baseline and waits(server.pid), "it waits")
        os.kill(server.pid, signal.SIGINT)
        expect_equal(server.wait(), 1, f"{words}: {server.log()}")
        expect("interrupted before a client came" in server.log(), server.log())
    clean()


def waits(pid):
    """Whether its own handler would take a SIGINT."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        caught = next(line for line in file if line.startswith("SigCgt:")).split()[1]
    return int(caught, 16) & 1 << signal.SIGINT - 1


@test("what does not go together, and a server that is not there, are told")
def told():
    def fails(arguments, text):
        result = subprocess.run([rig.program("oriel-perf"), *arguments], capture_output=True,
                                text=True, timeout=120, check=False,
                                env={"ORIEL_SOCKET": Stage.client.socket})
        expect(result.returncode != 0, f"{arguments} went well")
        expect(text in result.stderr, f"{arguments}: expected '{text}', got: {result.stderr}")
    fails(["read_bw", "-c", "UC", "localhost"], "reliable")
    fails(["write_bw", "-c", "UD", "localhost"], "datagrams")
    fails(["bind", "localhost"], "--export")
    fails(["write_bw", "-c", "UC", "-R", "localhost"], "rdma_cm")
    fails(["write_bw", "-R", "-u", "14", "localhost"], "rdma_cm chooses")
    fails(["write_bw", "--name", "scratch", "localhost"], "--export ADDRESS:PORT is missing")
    fails(["write_bw", "-p", "9", "localhost"], "Connection refused")
    fails(["mixed", "localhost"], "written or read, never both")
    fails(["send_bw", "--verify", "localhost"], "does not look at what arrives")
    fails(["write_lat", "--verify", "localhost"], "overwrites our memory")
    fails(["write_bw", "-b", "--verify", "localhost"], "changes its memory")
    fails(["write_bw", "-c", "UC", "--verify", "localhost"], "--connection RC")
    fails(["send_bw", "--perform_warm_up", "localhost"], "counts every message")
    fails(["write_lat", "--warm-up", "1", "localhost"], "answers every message")
    fails(["write_bw", "--verify"], "the client's side")
    fails(["write_bw", "--per-window", "1", "localhost"], "one token")
    fails(["write_lat", "-s", "0", "localhost"], "--size 1 or more")


# --- what is no perftest ----------------------------------------------------------------------

KEY = b"0000:0010:000123:000456:00001234:0000000000001000:" + b"00:" * 10 + b"ff:ff:0a:42:00:02:" \
    b"00000000:\0"
OPENING = [b"6.10" + bytes(12), struct.pack(">I", 4096), struct.pack(">I", 64), b"3\0", KEY]


def dial():
    try:
        return socket.create_connection(("127.0.0.1", PORT), 10)
    except ConnectionRefusedError:
        return None


def play_client(messages, *arguments):
    """A server, and its TCP connection after messages, each of which it answers in kind."""
    server = Process("server", [rig.program("oriel-perf"), *arguments],
                     {"ORIEL_SOCKET": Stage.server.socket})
    client = until(dial, "the server listens")
    for message in messages:
        client.sendall(message)
        answer = client.recv(len(message), socket.MSG_WAITALL)
        expect_equal(len(answer), len(message), f"the answer to {message}: {server.log()}")
    return server, client


@test("a peer that goes, or talks nonsense, ends a server with a reason, and is not waited for")
def nonsense():
    for done in range(len(OPENING) + 1):
        server, client = play_client(OPENING[:done], "read_bw")
        client.close()
        expect_equal(server.wait(), 1, server.log())
        expect("the other side has" in server.log(), server.log())
    for done, bad in ((0, b"GET / HTTP/1.1\r\n"), (4, b"z" * 108), (7, b"z" * 108)):
        server, client = play_client((OPENING + [KEY] * 2)[:done], "read_bw")
        client.sendall(bad)
        expect_equal(server.wait(), 1, f"nonsense after {done}: {server.log()}")
        expect("is no" in server.log(), server.log())
        client.close()
    clean()


@test("figures of a peer that are no numbers are not taken for results")
def no_numbers():
    for figure in (float("nan"), float("inf"), -1.0):
        told = [struct.pack(">Q", 4096), struct.pack(">Q", 7)] + [struct.pack(">d", figure)] * 3
        server, client = play_client(OPENING + [KEY] * 3 + told, "read_bw", "--json")
        expect_equal(server.wait(), 1, server.log())
        expect("are no results" in server.log(), server.log())
        client.close()


@test("SIGINT ends a server whose client is silent")
def impatient():
    for messages in (OPENING[:2], OPENING + [KEY] * 2):
        server, client = play_client(messages, "read_bw")
        server.popen.send_signal(signal.SIGINT)
        expect_equal(server.wait(), 1, f"after {messages}: {server.log()}")
        expect("interrupted while" in server.log(), server.log())
        client.close()
    clean()


@test("messages of no bytes")
def empty():
    for name in ("write_bw", "read_bw", "send_bw", "send_lat", "read_lat"):
        both(name, ["-s", "0"], 50)


if __name__ == "__main__":
    rig.main(setup)
