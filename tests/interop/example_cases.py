# SPDX-License-Identifier: BSD-3-Clause
"""The example programs against the stock ones that they are modelled on, each in both roles."""
import subprocess
import time

from rig import Failure
from target_cases import objects_at_rest

PINGS = {4: 1000, 6: 200}
CONNECTIONS = {4: 200, 6: 50}
RPING_PORT, CMATOSE_PORT, UDADDY_PORT, CMTIME_PORT = 7190, 7191, 7174, 7192
SIMPLE_PORT = 7193
CMTIME_CONNECTIONS = 100
PATIENCE = 500


def run(rig, report):
    before = objects_at_rest(rig)
    for version in (4, 6):
        ours, theirs = rig.daemon_address[version], rig.guest_address[version]
        pings, many = PINGS[version], CONNECTIONS[version]
        where = f"{rig.link} ipv{version} example"
        report.test(f"{where} rping server", serve, rig,
                    f"oriel-rping -s -a {ours} -p {RPING_PORT}",
                    f"rping -c -a {ours} -p {RPING_PORT} -C {pings} -V")
        report.test(f"{where} rping client", ask, rig,
                    f"rping -s -a {theirs} -p {RPING_PORT} -C {pings}",
                    f"oriel-rping -c -a {theirs} -p {RPING_PORT} -C {pings} -V")
        report.test(f"{where} ucmatose server", serve, rig,
                    f"oriel-cmatose -b {ours} -p {CMATOSE_PORT} -c {many} -C 4",
                    f"ucmatose -s {ours} -p {CMATOSE_PORT} -c {many} -C 4")
        report.test(f"{where} ucmatose client", ask, rig,
                    f"ucmatose -b {theirs} -p {CMATOSE_PORT} -c {many} -C 4",
                    f"oriel-cmatose -s {theirs} -p {CMATOSE_PORT} -c {many} -C 4")
        report.test(f"{where} udaddy server", serve, rig,
                    f"oriel-udaddy -b {ours} -p {UDADDY_PORT} -c 8 -C 10",
                    f"udaddy -s {ours} -c 8 -C 10")
        report.test(f"{where} udaddy client", ask, rig,
                    f"udaddy -b {theirs} -c 8 -C 10",
                    f"oriel-udaddy -s {theirs} -p {UDADDY_PORT} -c 8 -C 10")
        # One message of 16 bytes each way, as one connection of cmatose has them.
        report.test(f"{where} rdma_client", serve, rig,
                    f"oriel-cmatose -b {ours} -p {SIMPLE_PORT} -c 1 -C 1 -S 16",
                    f"rdma_client -s {ours} -p {SIMPLE_PORT}")
        report.test(f"{where} rdma_server", ask, rig, f"rdma_server -s {theirs} -p {SIMPLE_PORT}",
                    f"connect-out -a {theirs} -p {SIMPLE_PORT} single reply")
        if version == 4:    # it listens over IPv4 only
            report.test(f"{where} rdma_xserver", ask, rig, f"rdma_xserver -p {SIMPLE_PORT}",
                        f"connect-out -a {theirs} -p {SIMPLE_PORT} single")
        report.test(f"{where} cmtime", times, rig, ours)
    report.test(f"{rig.link} examples leave nothing behind", rig.must_have, before)


def serve(rig, ours, stock):
    """Our server here, the stock client in the guest; both must end well."""
    program, *options = ours.split()
    server = rig.example(program, *options)
    try:
        wait_for(lambda: "listening" in rig.log(program, 1) or server.poll() is not None)
        said = rig.guest(stock, timeout=PATIENCE)
        try:
            status = server.wait(30)
        except subprocess.TimeoutExpired:
            raise Failure(f"{program} goes on after its client's end\n{said}") from None
        if status:
            raise Failure(f"{ours} ended with {status}\n{rig.log(program)}\nthe client:\n{said}")
    except Failure as failure:
        raise Failure(f"{failure}\n{rig.log(program)}") from None
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def times(rig, ours):
    """The stock program that measures connection steps, each connection accepted by ours."""
    server = rig.example("oriel-connect", "-b", ours, "-p", str(CMTIME_PORT))
    try:
        wait_for(lambda: "listening" in rig.log("oriel-connect", 1) or server.poll() is not None)
        said = rig.guest(f"cmtime -s {ours} -p {CMTIME_PORT} -c {CMTIME_CONNECTIONS} 2>&1",
                         timeout=PATIENCE)
        server.terminate()
        if server.wait(30):
            raise Failure(f"oriel-connect ended with {server.returncode}")
    except Failure as failure:
        raise Failure(f"{failure}\n{rig.log('oriel-connect')}") from None
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    print("".join(f"# {line}\n" for line in said.splitlines()), end="")
    log = rig.log("oriel-connect", 1)
    if f"{CMTIME_CONNECTIONS} served, 0 of them failed" not in log or "disconnect" not in said:
        raise Failure(f"{log}\nthe client:\n{said}")


def ask(rig, stock, ours):
    """The stock server in the guest, our client here."""
    mark = f"/tmp/{stock.split()[0]}.status"
    rig.guest(f"rm -f {mark}; ({stock} >{mark}.log 2>&1; echo $? >{mark}) &")
    program, *options = ours.split()
    status = rig.ask_server(program, options, PATIENCE)
    said = rig.guest(f"for i in $(seq 30); do [ -s {mark} ] && break; sleep 1; done; "
                     f"tail -n 15 {mark}.log; echo status $(cat {mark})")
    if status or "status 0" not in said.splitlines():
        rig.guest(f"kill $(ps | awk '/{stock.split()[0]} -/ && !/awk/ {{print $1}}') || true")
        raise Failure(f"{ours} ended: {status}\n{rig.log(program)}\nthe server:\n{said}")


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds} s")
        time.sleep(0.1)
