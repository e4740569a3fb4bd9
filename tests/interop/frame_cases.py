# SPDX-License-Identifier: BSD-3-Clause
"""What went over the link is as specified, on the path MTU and the VLAN that were meant."""
from audit import audit
from frames import pcap_end
from rig import Failure

SENDERS = ("guest", "daemon")


class Since:
    """Where in the recording something begins; with another guest the recording is another one."""

    def __init__(self, rig):
        self.rig, self.renewed = rig, rig.renewed
        if rig.recorded[0] != rig.renewed:
            rig.recorded = rig.renewed, 0
        self.offset = pcap_end(rig.pcap, rig.recorded[1]) if rig.pcap else 0
        rig.recorded = rig.renewed, self.offset

    def begin(self):
        return self.offset if self.rig.renewed == self.renewed else 0


def run(rig, report):
    """All since the guest's start."""
    look(rig, report, "plain frames", mtu=1024, errors=True)


def look(rig, report, name, since=None, **expected):
    if rig.pcap:
        report.test(f"{rig.link} {name}", check, rig, since, **expected)


def check(rig, since, mtu, tag=0, faults=(), errors=False):
    """`faults`: of lost and corrupted frames something must be seen. `errors`: so must NAKs."""
    mac = bytes.fromhex(rig.guest("cat /sys/class/net/eth0/address").strip().replace(":", ""))
    seen = audit(rig.pcap, mac, since.begin() if since else 0, tag, "corrupted" in faults)
    wanted = [(what, sender) for sender in SENDERS for what in ("requests", "acks", "responses")]
    wanted += [("naks", "daemon")] if errors else []
    wanted += ["corrupted"] if "corrupted" in faults else []
    wrong = [f"nothing of {what}" for what in wanted if not seen[what]]
    for sender in SENDERS:
        if "lost" in faults and not seen["again", sender] + seen["ahead", sender]:
            wrong.append(f"no trace of a loss in what the {sender} sent")
        if seen["longest", sender] != mtu:
            wrong.append(f"payloads of the {sender} have up to {seen['longest', sender]} bytes")
    if seen[f"path MTU {mtu}"] != seen["connections"] or not seen["connections"]:
        wrong.append("another path MTU was agreed on")
    if seen["unasked"]:
        wrong.append(f"{seen['unasked']} connections whose last request asks for no answer")
    if wrong:
        raise Failure("; ".join(wrong) + f"\n{dict(seen)}")
