# SPDX-License-Identifier: BSD-3-Clause
"""oriel-perf against the stock programs of perftest in the guest, each as either side."""
import re
import subprocess

from rig import GUEST_HOST_ADDRESS, HOST_ADDRESS, Failure

TESTS = ["write_bw", "read_bw", "send_bw", "atomic_bw", "write_lat", "read_lat", "send_lat",
         "atomic_lat"]
PORT = 18515
PATIENCE = 60

# Flags that both sides get. A latency's server is told by its client that it ends, or counts.
CASES = [(test, flags) for flags in ("", "-R") for test in TESTS]


def run(rig, report):
    before = rig.objects()
    for test, flags in CASES:
        where = f"{rig.link} perftest {test} {flags}".rstrip()
        report.test(f"{where} server", serve, rig, test, flags)
        report.test(f"{where} client", ask, rig, test, flags)
    report.test(f"{rig.link} perftest leaves nothing behind", nothing_left, rig, before)


def run_few(rig, report):
    for test in ("write_bw", "read_lat", "send_bw"):
        report.test(f"{rig.link} perftest {test} server", serve, rig, test, "")
        report.test(f"{rig.link} perftest {test} client", ask, rig, test, "")


def ours(rig, test, flags, host):
    """oriel-perf, started."""
    numbers = [] if "-n" in flags else ["-n", "100"]
    return rig.example("oriel-perf", test, *numbers, *flags.split(), *host)


def stock(test, flags, host):
    numbers = "" if "-n" in flags else "-n 100"
    return f"ib_{test} -F -d rxe0 {numbers} {flags} {host}"


def serve(rig, test, flags):
    """oriel-perf waits, the stock client comes."""
    server = ours(rig, test, flags, [])
    try:
        host = rig.daemon_address[4] if "-R" in flags else HOST_ADDRESS
        said = rig.guest(stock(test, flags, host), PATIENCE)
        must_end(rig, server)
    finally:
        server.kill()
        server.wait()
    must_show(test, said)


def ask(rig, test, flags):
    """The stock server waits, oriel-perf comes."""
    rig.guest(f"({stock(test, flags, '')}; echo ended $?) >/tmp/perftest 2>&1 &")
    client = ours(rig, test, flags,
                  [rig.guest_address[4] if "-R" in flags else GUEST_HOST_ADDRESS])
    try:
        must_end(rig, client)
    except Failure as failure:
        raise Failure(f"{failure}\n{rig.guest('cat /tmp/perftest')}") from None
    finally:
        client.kill()
        client.wait()
    said = rig.guest("for i in $(seq 50); do grep ended /tmp/perftest && break; sleep 0.1; done;"
                     " cat /tmp/perftest")
    if "ended 0" not in said:
        raise Failure(f"ib_{test} did not end well\n{said}")
    must_show(test, rig.log("oriel-perf", 60))


def must_end(rig, process):
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failure(f"oriel-perf is still there\n{rig.log('oriel-perf')}") from None
    if status:
        raise Failure(f"oriel-perf ended with {status}\n{rig.log('oriel-perf')}")


def must_show(test, said):
    """A row of results."""
    if not re.search(r"^ \d+ +\d+ +[\d.]+ +[\d.]+", said, re.M):
        raise Failure(f"no result of {test}\n{said}")


def nothing_left(rig, before):
    after = rig.objects()
    if after != before:
        raise Failure(f"objects before {before}, after {after}")
