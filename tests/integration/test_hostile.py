# SPDX-License-Identifier: BSD-3-Clause
"""Clients that break the contract: their session ends by a named reason, all they held is freed,
and a client beside them notices nothing."""
import random
import re
import subprocess

import rig
from rig import Daemon, Process, Target, expect, expect_equal, test, until

EXPORT = """[export scratch]
listen = 10.66.0.1:7471
size = 1M
access = read,write
"""


class Stage:
    """Two daemons, a target at the first, verified traffic from the second all the time."""

    a = b = target = steady = baseline = None


def build():
    Stage.a = Daemon("a", rig.memif("link", "server"), "10.66.0.1/24",
                     more="bad-token-budget = 0\nmax-queue-pairs = 1024\nmax-windows = 4096\n")
    Stage.b = Daemon("b", rig.memif("link", "client"), "10.66.0.2/24", number=1)
    Stage.target = Target("target", Stage.a, EXPORT)
    Stage.steady = Process("steady", [rig.program("steady"), "10.66.0.1", "7471", "10.66.0.2",
                                      "loop"], {"ORIEL_SOCKET": Stage.b.socket})
    Stage.steady.wait_log("round")
    Stage.baseline = [daemon.counts() for daemon in (Stage.a, Stage.b)]


def rounds():
    said = re.findall(r"round (\d+)", Stage.steady.log())
    return int(said[-1]) if said else 0


def hostile(case, seed=1):
    result = subprocess.run([rig.program("hostile"), Stage.a.socket, Stage.b.socket, case,
                             str(seed)], capture_output=True, text=True, timeout=300, check=False)
    expect(result.returncode == 0, f"{case}, seed {seed}: {result.returncode}: {result.stderr}")


def unharmed():
    """Daemons, target and steady client live; traffic goes on; nothing is left."""
    for process in (Stage.a, Stage.b, Stage.target, Stage.steady):
        expect(process.alive(), f"{process.name} ended with {process.popen.returncode}:\n"
               + "\n".join(process.log().splitlines()[-5:]))
    before = rounds()
    until(lambda: rounds() > before + 64, "the steady client's traffic goes on")
    for daemon, baseline in zip((Stage.a, Stage.b), Stage.baseline):
        daemon.expect_counts(baseline)


def attack(rule, case, seeds=1, quick=1):
    @test(rule)
    def run():
        descriptors = Stage.a.descriptors()
        for seed in range(1, 1 + (quick if rig.QUICK else seeds)):
            hostile(case, seed)
        unharmed()
        until(lambda: Stage.a.descriptors() <= descriptors,
              lambda: f"{descriptors} descriptors again, there are {Stage.a.descriptors()}")


attack("B102: a tail that cannot be in the request ring ends the session", "cursor")
attack("a request that does not exist ends the session", "unknown")
attack("known requests with anything in them are answered", "requests", 12, 3)
attack("a client that never reads its replies is ended, at a bound", "deaf")
attack("shared session memory that is written over harms its owner only", "scribble", 3)
attack("B109: what the daemon told a client, who then wrote over it, still holds", "limits")
attack("messages of a wrong type or size or with too many descriptors end the session", "messages")
attack("B98: unsealed, unwritable or no memory is refused at registration", "memory")
attack("B42: registrations outside of their memory, or that wrap, are refused", "ranges")
attack("B102: a tail that cannot be in a queue pair's queues ends the session", "queue-cursor")
attack("B102: a tail that cannot be in a shared receive queue ends the session", "shared-cursor")
attack("receives of any bytes in a shared queue, and its header written over", "shared-entries", 2)
attack("segments of other sessions cannot be registered", "segments")
attack("resizes of CQs that nobody takes, their memory written over", "resizes", 2)
attack("requests that wait for neighbours keep nobody else waiting", "waiting")
attack("work requests of any bytes complete with an error or are carried out", "work", 4)
attack("receives of any bytes fail the peer's SEND, nothing else", "receives", 2)
attack("headers of queues that are written over change nothing that the daemon does", "headers")
attack("doorbells of queue pairs that do not exist cost nothing but the look", "doorbells")
attack("B104: completions that nobody takes overrun their own CQ only", "overrun")
attack("B98: memory that is punched out, unmapped or cut under a peer's traffic", "punch")
attack("B59, B46: local tokens remotely, another session's tokens locally: refused", "tokens")
attack("handles of another session are invalid", "handles")
attack("one client takes all windows and tokens: they come back with its end", "exhaust")

attack("objects that are closed while others need them, and never waited for, go with the session",
       "half-closed", 3)
attack("a queue pair that is closed while it is connected by number goes", "close-connecting")
attack("B125: a client that talks on its socket without pause keeps nobody waiting", "talkers")
attack("descriptors that are shared to wake are made to block, filled and emptied", "wakeups")


@test("B93: kill -9 at any moment of set-up and traffic: everything it held is freed")
def die():
    seeds = random.sample(range(1, 100000), 10 if rig.QUICK else 50)
    rig.note(f"seeds {seeds}")
    for seed in seeds:
        hostile("die", seed)
        expect(Stage.a.alive() and Stage.b.alive() and Stage.steady.alive(), "all live")
    unharmed()


@test("every session that was ended has its reason in the daemon's log")
def reasons():
    ended = re.findall(r"session \d+ \(hostile, pid \d+\) ended: (.*)", Stage.a.log())
    for reason in ("cursor in shared memory is impossible", "unknown request in the control ring",
                   "the client does not read its replies", "the client closed its socket",
                   "unknown message on the client's socket"):
        expect(reason in ended, f"'{reason}' is not among {sorted(set(ended))}")


@test("after all that the daemons end cleanly")
def end():
    expect_equal(Stage.steady.stop(), 0, f"the steady client's exit status: {Stage.steady.log()}")
    for process in (Stage.target, Stage.b, Stage.a):
        expect_equal(process.stop(), 0, f"exit status of {process.name}")


if __name__ == "__main__":
    rig.main(build)
