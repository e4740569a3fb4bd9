# SPDX-License-Identifier: BSD-3-Clause
"""Our requester against stock servers in the guest."""
from rig import RPING_PORT, STOCK_PORT

COMMANDS = """send write read atomic invalidate fence pipeline late serve reject refuse gone
 cycles""".split()


def run(rig, report):
    start_servers(rig)
    for version in (4, 6):
        where = f"{rig.link} ipv{version} out"
        for words in COMMANDS:
            report.test(f"{where} {words}", rig.connect_out, version, words)
        report.test(f"{where} rping", rig.connect_out, version, "rping", RPING_PORT)


def run_few(rig, report):
    start_servers(rig)
    for version in (4, 6):
        where = f"{rig.link} ipv{version} out"
        for words in ("send", "write", "read", "serve"):
            report.test(f"{where} {words}", rig.connect_out, version, words)


def start_servers(rig):
    """stock-server anew whenever it ends, which one of the tests makes it do."""
    rig.guest(f"while :; do stock-server {STOCK_PORT}; done >/tmp/stock-server 2>&1 &")
    for address in rig.guest_address.values():
        rig.guest(f"rping -s -P -a {address} -p {RPING_PORT} -S 3000 >>/tmp/rping 2>&1 &")
