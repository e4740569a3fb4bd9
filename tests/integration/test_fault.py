# SPDX-License-Identifier: BSD-3-Clause
"""Faults that a port makes by itself: what the operator sees, and that data survives them."""
import subprocess

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test, until

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write
"""
KINDS = ("lost", "duplicated", "reordered", "corrupted", "delayed")


def control(daemon, *words):
    return subprocess.run([rig.program("orielctl"), "--socket", daemon.socket, *words],
                          capture_output=True, text=True, timeout=rig.PATIENCE, check=False)


def pair(more=""):
    server = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24", port=more)
    client = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", number=1)
    return server, client, Target("target", server, EXPORT)


def steady(peer, *arguments):
    return Process("steady", [rig.program("steady"), "10.66.0.1", "7471", "10.66.0.2", *arguments],
                   {"ORIEL_SOCKET": peer.socket})


def counts(daemon, direction):
    port = daemon.port()
    return {kind: port[f"fault_{direction}_{kind}"] for kind in KINDS}


@test("orielctl fault sets what it is told, one direction or both, and refuses the rest")
def commands():
    server = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24")
    result = control(server, "fault", "link", "loss=1%", "duplicate=0.1%", "seed=7")
    expect_equal((result.returncode, result.stderr), (0, ""), "orielctl fault")
    result = control(server, "fault", "link", "transmit", "delay=100%", "delay-us=20")
    expect_equal((result.returncode, result.stderr), (0, ""), "orielctl fault transmit")
    seen = server.ask("fault")["0"]
    expect_equal([seen[f"receive_{key}"] for key in ("loss", "duplicate", "seed", "delay_us")],
                 [10000, 1000, 7, 1000], "the receive direction")
    expect_equal([seen[f"transmit_{key}"] for key in ("loss", "delay", "seed", "delay_us")],
                 [0, 1000000, 1, 20], "the transmit direction")
    expect("loss 1.0000%" in control(server, "fault").stdout, "it is shown to people")
    for words, named in ((("wan9", "off"), "wan9"), (("link", "loss=101%"), "loss=101%"),
                         (("link", "loss=60%", "delay=41%"), "100%"), (("link",), "off"),
                         (("link", "receive"), "off"), (("link", "jitter=1%"), "jitter=1%"),
                         (("link", "off", "loss=1%"), "loss=1%"), (("link", "loss"), "loss")):
        result = control(server, "fault", *words)
        expect(result.returncode == 1 and named in result.stderr and
               result.stderr.count("\n") == 1, f"{words}: {result.returncode} {result.stderr}")
    expect_equal(server.ask("fault")["0"]["receive_loss"], 10000, "refusals change nothing")
    expect_equal(control(server, "fault", "link", "off").returncode, 0, "off")
    seen = server.ask("fault")["0"]
    expect_equal([seen["receive_loss"], seen["transmit_delay"]], [0, 0], "after off")
    expect_equal(server.stop(), 0, "exit status")


@test("data is right under loss, duplicates, reordering, damage and delay in both directions",
      slow=True)
def survive():
    shares = "\n".join(f"{direction}-{kind} = 0.5%" for direction in ("receive", "transmit")
                       for kind in ("loss", "duplicate", "reorder", "corrupt", "delay"))
    server, client, target = pair(f"[fault link]\n{shares}\nseed = 11")
    traffic = steady(client, "loop")
    traffic.wait_log("round 64" if rig.QUICK else "round 256")
    expect_equal(traffic.stop(), 0, "the traffic's status")
    for direction in ("rx", "tx"):
        seen = counts(server, direction)
        rig.note(f"{direction}: {seen}")
        expect(all(seen.values()), f"each kind happened to {direction}: {seen}")
    expect_equal(control(server, "fault", "link", "off").returncode, 0, "off")
    before = counts(server, "rx"), counts(server, "tx")
    traffic = steady(client, "fill", "5")
    expect_equal(traffic.wait(), 0, "the status of traffic without faults")
    expect_equal((counts(server, "rx"), counts(server, "tx")), before, "counters when off")
    expect_equal(target.stop(), 0, "the target's status")
    expect_equal(server.stop(), 0, "the server's status")
    expect_equal(client.stop(), 0, "the client's status")


@test("a port that loses everything ends its connections, and serves again when it does not",
      slow=True)
def dead():
    server, client, target = pair()
    watcher = steady(client, "loop")
    watcher.wait_log("round")
    expect_equal(control(server, "fault", "link", "loss=100%").returncode, 0, "loss=100%")
    expect(watcher.wait(120) > 0, "traffic over a dead link must fail")
    expect(counts(server, "rx")["lost"] > 0, "frames were lost")
    expect_equal(control(server, "fault", "link", "off").returncode, 0, "off")
    traffic = steady(client, "fill", "5")
    expect_equal(traffic.wait(), 0, "the traffic's status afterwards")
    until(lambda: server.counts()["qps"] == 0, "the queue pairs are gone")
    for process in (target, client, server):
        expect_equal(process.stop(), 0, "exit status")


if __name__ == "__main__":
    rig.main()
