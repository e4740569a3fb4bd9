# SPDX-License-Identifier: BSD-3-Clause
"""Our requester against stock servers in the guest."""
import re

from rig import STOCK_PORT, Failure

PERFTEST_PORT = 18515

COMMANDS = """send write read atomic invalidate fence pipeline late serve reject refuse gone
 cycles""".split() + ["number rc", "number uc", "number ud"]


def run(rig, report):
    rig.last("servers", start_servers, rig)
    for version in (4, 6):
        where = f"{rig.link} ipv{version} out"
        for words in COMMANDS:
            report.test(f"{where} {words}", rig.connect_out, version, words)
    for operation in ("write", "read"):
        report.test(f"{rig.link} ipv4 out perftest {operation}", perftest, rig, operation)


def run_few(rig, report):
    rig.last("servers", start_servers, rig)
    for version in (4, 6):
        where = f"{rig.link} ipv{version} out"
        for words in ("send", "write", "read", "serve"):
            report.test(f"{where} {words}", rig.connect_out, version, words)


def start_servers(rig):
    """stock-server anew whenever it ends, which one of the tests makes it do."""
    rig.guest(f"while :; do stock-server {STOCK_PORT}; done >/tmp/stock-server 2>&1 &")


def perftest(rig, operation):
    """Its connection for parameters is IPv4 only. Without -F it ends with an error on a machine
    that is too busy to find out how fast its clock runs."""
    rig.guest(f"ib_{operation}_bw -F -R -n 64 -s 65536 -p {PERFTEST_PORT} >/tmp/perftest 2>&1 &")
    try:
        rig.connect_out(4, f"perftest {operation}", PERFTEST_PORT)
        said = rig.guest("for i in $(seq 300); do grep -q '^ *65536 ' /tmp/perftest && break; "
                         "sleep 0.1; done; cat /tmp/perftest")
    except Failure as failure:
        raise Failure(f"{failure}\n{rig.guest('cat /tmp/perftest')}") from None
    if not re.search(r"^\s*65536\s+64\s", said, re.M):
        raise Failure(f"ib_{operation}_bw shows no result\n{said}")
