# SPDX-License-Identifier: BSD-3-Clause
"""What a REQ says about the connection, by hand-made datagrams: numbers, paths, tries."""
import re
import struct

import rig
import roce
import stage
from rig import expect, expect_equal, until
from roce import RTU, orq1
from stage import SCRATCH, Stage, case, connect, expect_alive


@case("B73: answers carry the traffic class that the REQ's path names")
def traffic_class(memory):
    for tclass in (0, 104):
        c = connect(tclass=tclass)
        expect_equal(c.write(0, bytes(memory[:8])).traffic_class & 0xFC, tclass, "class of an ACK")


@case("B27: the RNR NAK of a connection that rdma_cm made carries a short time, not code 0")
def rnr_code(memory):
    c = connect()
    with Stage.target.stopped():
        for _ in range(200):
            psn = c.psn
            c.post(roce.SEND_ONLY, b"", orq1())
            got = c.reply()
            if got.syndrome != 0x1F:
                break
        expect_equal((got.opcode, got.syndrome, got.psn), (roce.ACK, 0x20 | 12, psn), "RNR NAK")
        for _ in range(3):
            c.post(roce.SEND_ONLY, b"", orq1(), psn=psn)
            c.expect_nak(0x20 | 12, psn)
        # Other requests' duplicates are served meanwhile.
        c.post(roce.SEND_ONLY, b"", orq1(), psn=psn - 1 & 0xFFFFFF)
        c.expect_ack(psn - 1 & 0xFFFFFF)
    c.disconnect()
    Stage.wire.inbox[c.qpn].clear()


@case("starting PSNs: the peer sends with ours, we send with the peer's")
def starting_psns(memory):
    for start in (0, 0xFFFFFF, 0x96A956):
        c = roce.Connection(Stage.wire.peer(), SCRATCH, connect=False)
        c.receive_psn = start
        c.request()
        c.take_reply()
        c.mad(RTU, c.ids())
        c.write(0, bytes(memory[:8]))
        for number in range(3):
            c.ask()
            expect_equal(c.answered_psn, start + number & 0xFFFFFF, "PSN of the daemon's SEND")


@case("B73, B88: frames of a connection have hop limit and flow label of the REQ, v4 and v6")
def path_fields(memory):
    for six in (False, True):
        for flow, hops in ((0x00278, 1), (0x57F97, 255), (0xFFFFF, 64)):
            c = connect(six=six, flow=flow, hops=hops)
            got = c.write(0, bytes(memory[:8]))
            port = (flow & 0x3FFF) ^ (flow & 0xFC000) >> 14 | 0xC000
            expect_equal((got.hops, got.sport), (hops, port), f"path of flow label {flow:#x}")
            c.ask()
    # Without a label both numbers make the port, and both ends can.
    c = connect()
    product = c.qpn * c.remote_qpn
    product ^= product >> 20
    product ^= product >> 40
    label = product & 0xFFFFF
    expect_equal(c.write(0, bytes(memory[:8])).sport,
                 (label & 0x3FFF) ^ (label & 0xFC000) >> 14 | 0xC000, "port without a label")


def unanswered(c):
    """The SENDs that come for one ORQ1 until the daemon gives up."""
    c.post(roce.SEND_ONLY, b"", orq1())
    until(lambda: Stage.wire.pump(0.05) or c.dreqs, "the daemon gives up")
    c.open = False
    return [p for p in Stage.wire.inbox[c.qpn] if p.opcode == roce.SEND_ONLY]


@case("B72: the daemon tries as often as the REQ says, 7 being seven, and 0 not once again")
def retries(memory):
    for retry in (0, 1, 7):
        c = connect(retry=retry, timeout=8)
        sent = unanswered(c)
        expect_equal((len(sent), len({p.psn for p in sent})), (1 + retry, 1), "tries")
        expect_equal(len({p.payload for p in sent}), 1, "different payloads of one PSN")


@case("B72: ACK timeout code 0 is no timer: nothing is sent again, and the connection lives")
def no_timer(memory):
    for code in (0, 31):
        c = connect(timeout=code, retry=1)
        c.post(roce.SEND_ONLY, b"", orq1())
        got = []
        until(lambda: got.extend(c.replies()) or any(p.opcode == roce.SEND_ONLY for p in got),
              "the answer")
        for _ in range(50):
            got.extend(c.replies())
        sent = [p for p in got if p.opcode == roce.SEND_ONLY]
        expect_equal(len(sent), 1, f"SENDs with timeout code {code}")
        c.acknowledge(sent[0].psn)
        expect_equal(c.ask(length=8).length, 8, "a good request behind it")


PROBED = """[export probed]
listen = 10.66.0.1:7480
size = 4K
"""


@case("an idle peer is asked by a WRITE of no bytes; who answers stays, who does not is given up")
def probes(memory):
    target = rig.Target("probing", Stage.daemon, PROBED, probe=1)
    alive = connect(7480, timeout=19)
    psns = set()
    while len(psns) < 3:
        got = alive.reply()
        expect_equal((got.opcode, got.ack_request, got.payload), (roce.WRITE_ONLY, True, bytes(16)),
                     "a probe: no address, no token, no length")
        psns.add(got.psn)
        alive.acknowledge(got.psn)
    dead = connect(7480, timeout=8, retry=1)
    Stage.wire.wait(lambda: dead.dreqs, "the DREQ to who does not answer")
    dead.open = False
    sent = list(Stage.wire.inbox[dead.qpn])
    expect_equal([(p.opcode, p.payload) for p in sent], [(roce.WRITE_ONLY, bytes(16))] * 2,
                 "tries of one probe")
    expect_equal(len({p.psn for p in sent}), 1, "its PSN")
    target.wait_log("does not answer any more")
    alive.disconnect()
    expect_equal(target.stop(), 0, target.log())
    told = re.search(r"(\d+) probes.*, (\d+) answered, (\d+) connections ended", target.log())
    expect(told and int(told[1]) > int(told[2]) >= 2 and told[3] == "1",
           f"the target tells what came of its probes; it said:\n{target.log()}")
    Stage.wire.inbox[alive.qpn].clear()
    Stage.wire.inbox[dead.qpn].clear()


@case("B26, B27: RNR retries of the REQ: as many as it says, then the daemon gives up")
def rnr_retries(memory):
    for rnr in (0, 2):
        c = connect(rnr=rnr)
        c.post(roce.SEND_ONLY, b"", orq1())
        seen = 0
        while True:
            Stage.wire.wait(lambda: Stage.wire.inbox[c.qpn] or c.dreqs, "SEND or DREQ")
            if c.dreqs and not Stage.wire.inbox[c.qpn]:
                break
            got = c.reply()
            if got.opcode == roce.SEND_ONLY:
                seen += 1
                c.acknowledge(got.psn, 0x21)
        expect_equal(seen, 1 + rnr, "tries")
        c.open = False


@case("an alternate path is not supported: the REP says so to who names one, APR 2 to a LAP")
def alternate_path(memory):
    c = connect(alternate=struct.pack("!HH", 1, 1) + roce.gid("10.66.0.99") + roce.gid("10.66.0.1"))
    expect_equal(c.rep.body[26] >> 1 & 3, 1, "failover accepted")
    expect_alive(c)
    c.mad(0x19, c.ids() + bytes(224))
    refusal_of_path = Stage.wire.mad(0x1A, c.local_id, "APR")
    expect_equal((refusal_of_path.tid, refusal_of_path.local_id, refusal_of_path.body[8:10]),
                 (c.tid, c.remote_id, b"\0\2"), "APR")
    c.mad(0x1A, c.ids() + bytes(224))
    Stage.wire.barrier()
    expect_alive(c)


if __name__ == "__main__":
    rig.main(stage.build)
