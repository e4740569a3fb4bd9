# SPDX-License-Identifier: BSD-3-Clause
"""oriel-perf against the stock programs of perftest in the guest, each as either side."""
import re
import subprocess

from example_cases import wait_for
from rig import GUEST_HOST_ADDRESS, HOST_ADDRESS, Failure
from target_cases import objects_at_rest

PATIENCE = 300
FIGURE = "(?:[\\d.]+|inf|-?nan)"
# perftest's own ACK timeout ends a connection whose peer stands still for half a second.
PATIENT = "-u 18"
TCP_PORT = 18515
LISTENS = "0A"      # TCP_LISTEN in /proc/net/tcp

# Flags that both sides get. Little goes each way: an emulated peer moves a few MB a second.
RELIABLE = ["write_bw", "read_bw", "send_bw", "atomic_bw", "write_lat", "read_lat", "send_lat",
            "atomic_lat"]
BY_CM = ["write_bw", "send_bw", "read_lat", "write_lat"]
OTHERS = [("write_bw", "-b -q 2 -s 2048"), ("send_bw", "-b -q 2 -s 2048"),
          ("write_bw", "-c UC -s 3000 -t 8"), ("send_bw", "-c UC -s 3000 -t 8"),
          ("send_lat", "-c UC"), ("send_bw", "-c UD -s 1024 -t 8"), ("send_lat", "-c UD"),
          ("send_bw", "-R -c UD -s 1024 -t 8"), ("send_lat", "-R -c UD"),
          ("read_bw", "-b -s 4096"), ("atomic_bw", "-R -b -o 16"),
          ("send_bw", "-b -c UD -s 512 -t 8"), ("send_lat", "-s 1048576 -n 5")]
IPV6 = ("read_bw", "-s 2048")
ALL_SIZES = ("write_bw", "-a -n 5")     # up to 8 MiB: 80 in all


def run(rig, report):
    before = objects_at_rest(rig)
    cases = [(test, "-s 16384" if test.endswith("_bw") and "atomic" not in test else "")
             for test in RELIABLE]
    for test, flags in cases + [(test, "-R") for test in BY_CM] + OTHERS:
        where = f"{rig.link} perftest {test} {flags}".rstrip()
        report.test(f"{where} server", serve, rig, test, flags)
        report.test(f"{where} client", ask, rig, test, flags)
    report.test(f"{rig.link} perftest write_bw -a client", ask, rig, *ALL_SIZES)
    report.test(f"{rig.link} perftest ipv6 server", serve, rig, *IPV6, True)
    report.test(f"{rig.link} perftest ipv6 client", ask, rig, *IPV6, True)
    report.test(f"{rig.link} perftest leaves nothing behind", rig.must_have, before)


def words(flags, ipv6):
    """What both sides are told."""
    by_number = "" if {"-R", "-c"} & {*flags.split()} else PATIENT
    return f"-n 50 {flags} {by_number} {'--ipv6' if ipv6 else ''}"


def ours(test, flags, host, ipv6):
    """The words of oriel-perf."""
    return [test, *words(flags, ipv6).split(), *host]


def stock(test, flags, host, ipv6):
    return f"ib_{test} -F -d rxe0 {words(flags, ipv6)} {host}"


def serve(rig, test, flags, ipv6=False):
    """oriel-perf waits, the stock client comes."""
    by_cm, before = "-R" in flags, rig.objects()["listeners"]
    server = rig.example("oriel-perf", *ours(test, flags, [], ipv6))
    try:
        wait_for(lambda: server.poll() is not None or
                 (rig.objects()["listeners"] > before if by_cm else somebody_listens()))
        host = rig.daemon_address[4] if by_cm else HOST_ADDRESS
        said = rig.guest(stock(test, flags, host, ipv6), PATIENCE)
        must_end(rig, server)
    except Failure as failure:
        raise Failure(f"{failure}\n{rig.log('oriel-perf')}") from None
    finally:
        server.kill()
        server.wait()
    must_show(test, said)


def somebody_listens():
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path) as file:
            for line in list(file)[1:]:
                _, local, _, state, *_ = line.split()
                if state == LISTENS and int(local.rpartition(":")[2], 16) == TCP_PORT:
                    return True
    return False


def ask(rig, test, flags, ipv6=False):
    """The stock server waits, oriel-perf comes."""
    rig.guest(f"({stock(test, flags, '', ipv6)}; echo ended $?) >/tmp/perftest 2>&1 &")
    host = rig.guest_address[4] if "-R" in flags else GUEST_HOST_ADDRESS
    try:
        status = rig.ask_server("oriel-perf", ours(test, flags, [host], ipv6), PATIENCE)
        must_be_good(rig, status)
        said = rig.guest("for i in $(seq 300); do grep ended /tmp/perftest && break; sleep 0.1;"
                         " done; cat /tmp/perftest")
    except Failure as failure:
        raise Failure(f"{failure}\n{rig.guest('cat /tmp/perftest')}") from None
    if "ended 0" not in said:
        raise Failure(f"ib_{test} did not end well\n{said}")
    must_show(test, rig.log("oriel-perf", 60))


def must_end(rig, process):
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failure(f"oriel-perf is still there\n{rig.log('oriel-perf')}") from None
    must_be_good(rig, status)


def must_be_good(rig, status):
    if status:
        raise Failure(f"oriel-perf ended: {status}\n{rig.log('oriel-perf')}")


def must_show(test, said):
    """A row of results. On a busy machine the stock programs do not find out how fast the clock
    runs ("Correlation coefficient r^2 ... < 0.9"): then all has taken 0, `inf` or `nan`."""
    if not re.search(rf"^ \d+ +\d+ +{FIGURE}\s+{FIGURE}", said, re.M):
        raise Failure(f"no result of {test}\n{said}")
