# SPDX-License-Identifier: BSD-3-Clause
"""The pingpong programs of libibverbs, whose ends meet over TCP, each in both roles.
ibv_xsrq_pingpong is not among them: neither we nor rdma_rxe serve XRC."""
import ipaddress
import subprocess

from example_cases import wait_for
from rig import GUEST_HOST_ADDRESS, HOST_ADDRESS, Failure

PORT = 18600
PATIENCE = 120
TRIES = 5
FLAGS = {"rc": "-s 4096 -m 1024", "uc": "-s 4096 -m 1024", "ud": "-s 1024", "srq": "-s 4096 -q 1"}
# Their ACK timeout is fixed: eight times 67 ms without an answer, and they give up.
TOO_LATE = "transport retry counter exceeded"
GIDS = "/sys/class/infiniband/rxe0/ports/1/gids"


def run(rig, report):
    for version, kinds in ((4, "rc uc ud srq"), (6, "rc ud")):
        for kind in kinds.split():
            where = f"{rig.link} ipv{version} pingpong {kind}"
            report.test(f"{where} server", again, serve, rig, version, kind)
            report.test(f"{where} client", again, ask, rig, version, kind)


def again(function, *args):
    for left in reversed(range(TRIES)):
        try:
            function(*args)
            return
        except Failure as failure:
            if not left or TOO_LATE not in str(failure):
                raise


def stock(rig, version, kind, host=""):
    """They know a GID by its number only."""
    address = rig.guest_address[version]
    gid = ipaddress.IPv6Address(address if version == 6 else f"::ffff:{address}").exploded
    return (f"g=$(grep -lx {gid} {GIDS}/* 2>/dev/null); "
            f"timeout {PATIENCE} ibv_{kind}_pingpong -d rxe0 -g ${{g##*/}} -p {PORT} -n 100 "
            f"{FLAGS[kind]} {host} 2>&1; echo status $?")


def must_be_good(kind, said):
    if "status 0" not in said.splitlines() or "100 iters in" not in said:
        raise Failure(f"ibv_{kind}_pingpong did not end well\n{said}")


def serve(rig, version, kind):
    """The stock client comes to ours."""
    log = f"{rig.dir}/pingpong.log"
    with open(log, "w") as file:
        ours = subprocess.Popen(rig.connect_out_words(version, f"pingpong {kind}", PORT),
                                stdout=file, stderr=file, env=rig.environment())
    try:
        wait_for(lambda: "listening" in rig.log("pingpong") or ours.poll() is not None)
        said = rig.guest(stock(rig, version, kind, HOST_ADDRESS), PATIENCE + 10)
        must_be_good(kind, said)
        if ours.wait(PATIENCE):
            raise Failure(f"connect-out ended with {ours.returncode}\n{said}")
    except (Failure, subprocess.TimeoutExpired) as failure:
        raise Failure(f"{failure}\n{rig.log('pingpong')}") from None
    finally:
        ours.kill()
        ours.wait()


def ask(rig, version, kind):
    """The stock server waits, ours comes."""
    rig.guest(f"({stock(rig, version, kind)}) >/tmp/pingpong 2>&1 &")
    try:
        rig.connect_out(version, f"pingpong {kind}:{GUEST_HOST_ADDRESS}", PORT)
    except Failure as failure:
        raise Failure(f"{failure}\n{rig.guest(SAID)}") from None
    must_be_good(kind, rig.guest(SAID))


SAID = ("for i in $(seq 300); do grep -q status /tmp/pingpong && break; sleep 0.1; done; "
        "cat /tmp/pingpong")
