# SPDX-License-Identifier: BSD-3-Clause
"""Programs that were written from the guide (doc/ndk.md) and <ndk/ndk.h> alone, on two daemons."""
import rig
from rig import Daemon, Process, expect, expect_equal, test

# Seven of the program's cases end with a request that the target's window refuses.
GUESSES = 7


def daemon(name, role, number):
    return Daemon(name, rig.memif("link", role), f"10.66.0.{number + 1}/24", number=number,
                  more="bad-token-budget = 0\n")


def guide(host, *arguments):
    return Process(f"guide-{arguments[0]}", [rig.program("guide-client"), *arguments],
                   {"ORIEL_SOCKET": host.socket})


@test("the guide alone is enough: windows used well and misused, ends in any order")
def windows():
    a, b = daemon("a", "server", 0), daemon("b", "client", 1)
    baseline = [a.counts(), b.counts()]
    target = guide(a, "target", "10.66.0.1")
    target.wait_log("listening")
    peer = guide(b, "peer", "10.66.0.2", "10.66.0.1")
    for process in (peer, target):
        expect_equal(process.wait(), 0, f"{process.name}: {process.log()}")
        expect(", 0 failures" in process.log(), f"{process.name}: {process.log()}")
    expect_equal(a.status()["bad_tokens"], GUESSES, "bad tokens that the target's daemon counted")
    a.expect_counts(baseline[0])
    b.expect_counts(baseline[1])
    for process in (b, a):
        expect_equal(process.stop(), 0, f"exit status of {process.name}: {process.log()}")


def store(host, *arguments):
    return Process(f"store-{arguments[0]}", [rig.program("guide-store"), *arguments],
                   {"ORIEL_SOCKET": host.socket})


@test("the guide alone is enough: values behind windows, deferred binds, ends that both sides make")
def values():
    a, b = daemon("a", "server", 0), daemon("b", "client", 1)
    baseline = [a.counts(), b.counts()]
    keeper = store(a, "store", "10.66.0.1", "2")
    keeper.wait_log("listening")
    for _ in range(2):
        client = store(b, "client", "10.66.0.2", "10.66.0.1")
        expect_equal(client.wait(), 0, client.log())
        expect("0 bytes wrong" in client.log(), client.log())
    expect_equal(keeper.wait(), 0, keeper.log())
    expect_equal(keeper.log().count("disconnected: STATUS_SUCCESS\n"
                                    "peer gone: 32 binds, 16 invalidates, 16 by the peer\n"),
                 2, keeper.log())
    a.expect_counts(baseline[0])
    b.expect_counts(baseline[1])
    for process in (b, a):
        expect_equal(process.stop(), 0, f"exit status of {process.name}: {process.log()}")


@test("who polls the event descriptor hears of the end of its peer, and of its daemon's")
def ends():
    a, b = daemon("a", "server", 0), daemon("b", "client", 1)
    keeper = store(a, "store", "10.66.0.1", "1")
    keeper.wait_log("listening")
    client = store(b, "client", "10.66.0.2", "10.66.0.1", "1000000000")
    client.wait_log("connected")
    keeper.kill()
    expect_equal(client.wait(), 1, client.log())
    expect("the store is gone" in client.log() or "STATUS_" in client.log(), client.log())
    keeper = store(a, "store", "10.66.0.1", "1")
    keeper.wait_log("listening")
    a.kill()
    expect_equal(keeper.wait(), 1, keeper.log())
    expect("the daemon is gone" in keeper.log(), keeper.log())
    expect_equal(b.stop(), 0, b.log())


@test("who waits as the guide says hears of it when the daemon is killed")
def killed():
    host = daemon("c", "server", 0)
    target = guide(host, "target", "10.66.0.1")
    target.wait_log("listening")
    host.kill()
    expect_equal(target.wait(), 1, target.log())
    expect("the daemon is gone" in target.log(), target.log())


if __name__ == "__main__":
    rig.main()
