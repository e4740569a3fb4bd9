# SPDX-License-Identifier: BSD-3-Clause
"""Connections in numbers: thousands that come and go, clients killed at any time, REQ floods."""
import os
import random
import time

import rig
import roce
import stage
from rig import Daemon, Process, expect, expect_equal, note, test, until
from roce import REJ, REP
from stage import REJ_CONSUMER, REJ_NO_RESOURCES, SCRATCH, Stage, connect, expect_alive

CYCLES = 500 if rig.QUICK else 5000
KILLS = 10 if rig.QUICK else 50
GROWTH_KIB = 2048  # of a daemon over all cycles but the first fifth
HALF_OPEN = 256  # requests that one peer may have without an RTU


class Pair:
    a = b = connect = ping = None


def setup():
    Pair.a = Daemon("left", rig.memif("pair", "server"), "10.67.0.1/24, fd67::1/64")
    Pair.b = Daemon("right", rig.memif("pair", "client"), "10.67.0.2/24, fd67::2/64", number=1)
    Pair.connect = serve("oriel-connect", "-b", "10.67.0.1")
    Pair.ping = serve("oriel-rping", "-s", "-P", "-a", "10.67.0.1")
    stage.build()


def serve(name, *arguments):
    server = Process(name, [rig.program(name), *arguments], {"ORIEL_SOCKET": Pair.a.socket})
    server.wait_log("listening")
    return server


def client(name, *arguments):
    return Process(name, [rig.program(name), *arguments], {"ORIEL_SOCKET": Pair.b.socket})


def counts():
    return [daemon.counts() for daemon in (Pair.a, Pair.b)]


def expect_counts(before):
    for daemon, baseline in zip((Pair.a, Pair.b), before):
        daemon.expect_counts(baseline)


def cycle(address, count, at_once):
    done = client("oriel-connect", "-s", address, "-c", str(count), "-j", str(at_once))
    expect_equal(done.wait(150), 0, f"oriel-connect:\n{done.log()}")
    note(done.log())


@test(f"{CYCLES} connects and disconnects, one by one and many at once, leave nothing behind")
def cycles():
    before = counts()
    first = CYCLES // 5
    cycle("10.67.0.1", first, 64)
    expect_counts(before)
    processes = (Pair.a, Pair.b, Pair.connect)
    heap = [process.anonymous_kib() for process in processes]
    resident = [process.resident_kib() for process in processes]
    descriptors = [process.descriptors() for process in processes]
    cycle("10.67.0.1", first, 1)
    cycle("10.67.0.1", CYCLES - 2 * first, 64)
    expect_counts(before)
    for process, old, whole, files in zip(processes, heap, resident, descriptors):
        new, now = process.anonymous_kib(), process.resident_kib()
        note(f"{process.name}: {old} KiB of heap and {whole} in all after {first}, {new} and {now} "
             f"after {CYCLES}")
        expect(new - old < GROWTH_KIB, f"{process.name}: {old} KiB of heap became {new}")
        # So few do not fill the tables with connections in timewait.
        expect(rig.QUICK or now - whole < GROWTH_KIB, f"{process.name}: {whole} KiB became {now}")
        # A daemon's telemetry closes a connection when it comes to it.
        until(lambda process=process, files=files: process.descriptors() <= files,
              f"{process.name}: {files} descriptors again")


def lifetime():
    """How long a client that does next to nothing takes."""
    begin = time.monotonic()
    done = client("oriel-rping", "-c", "-a", "10.67.0.1", "-C", "20")
    expect_equal(done.wait(), 0, f"oriel-rping:\n{done.log()}")
    return time.monotonic() - begin


def killed(victim, after, before):
    """Seconds until the peer's program has heard and both daemons hold what they held."""
    time.sleep(after)
    victim.kill()
    begin = time.monotonic()
    expect_counts(before)
    return time.monotonic() - begin


@test(f"a client killed at {KILLS} random points: its peer hears of it, nothing is left behind")
def kills():
    before = counts()
    span = 2 * lifetime()
    expect_counts(before)
    rng = random.Random(os.getpid())
    took = []
    for number in range(KILLS):
        if number % 2:
            victim = client("oriel-rping", "-c", "-a", "10.67.0.1", "-C", "1000000")
        else:
            victim = client("oriel-connect", "-s", "10.67.0.1", "-c", "1000000", "-j", "16")
        took.append(killed(victim, rng.uniform(0, span), before))
    for server in (Pair.connect, Pair.ping):
        expect(server.alive(), f"{server.name} ended:\n{server.log()}")
    note(f"kills within {span:.2f} s of the start; all was as before after {max(took):.2f} s "
         f"at most, {sorted(took)[len(took) // 2]:.2f} s in the middle")
    cycle("10.67.0.1", 20, 4)
    lifetime()
    expect_counts(before)


@test("a flood of REQs without RTUs: bounded for its peer, another one is served meanwhile")
def flood():
    peer = Stage.wire.peer()
    some = [roce.Connection(peer, SCRATCH, connect=False) for _ in range(4 * HALF_OPEN)]
    # The daemon's patience, a minute, is longer than this takes: who is accepted stays so.
    for number, c in enumerate(some):
        c.request()
        if number % 64 == 63:
            expect_alive(Stage.witness)
            Stage.wire.pump()
        if number % 256 == 255:
            expect_alive(connect())
    Stage.wire.barrier()
    answers = [mad for mad in Stage.wire.mads if mad.attribute in (REP, REJ)]
    accepted = {mad.remote_id: mad for mad in answers if mad.attribute == REP}
    reasons = [mad.reason for mad in answers if mad.attribute == REJ]
    note(f"{len(accepted)} of {len(some)} accepted, {len(reasons)} refused")
    expect(0 < len(accepted) <= HALF_OPEN, f"{len(accepted)} accepted")
    expect_equal(set(reasons), {REJ_NO_RESOURCES}, "reasons of the refusals")
    expect_alive(connect())
    for number, c in enumerate(c for c in some if c.local_id in accepted):
        c.mad(REJ, c.ids() + bytes([1 << 6, 0, 0, REJ_CONSUMER]))
        if number % 64 == 63:
            Stage.wire.barrier()
    stage.hang_up()
    until(lambda: Stage.wire.pump() or stage.settled(), stage.difference)
    Stage.wire.mads.clear()
    again = connect(peer=peer)
    expect_alive(again)
    stage.hang_up()
    until(lambda: Stage.wire.pump() or stage.settled(), stage.difference)


rig.main(setup)
