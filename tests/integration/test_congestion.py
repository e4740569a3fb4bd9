# SPDX-License-Identifier: BSD-3-Clause
"""Congestion control and traffic classes on the wire: marks, notices (CNP), DSCP, the switch."""
import subprocess

import rig
import roce
import stage
from rig import expect, expect_equal, until
from roce import CNP, bth
from stage import Stage, case, connect

CE, ECT0 = 3, 2
# Periods so long that nothing happens by itself within a test.
CONFIG = """bad-token-budget = 0
[congestion]
line-rate = 10G
increase-period = 10000000
cnp-interval = 10000000
reduce-period = 10000000
"""


def counter(name):
    return sum(worker[name] for worker in Stage.daemon.ask("stats")["workers"].values())


def rate(connection):
    """Bytes per second that the daemon allows the queue pair; 0: no limit."""
    qps = Stage.daemon.ask("list")["qps"]
    return next(qp["rate"] for qp in qps.values() if qp["qpn"] == connection.remote_qpn)


def switch(*argument):
    result = subprocess.run([rig.program("orielctl"), "--socket", Stage.daemon.socket,
                             "congestion", *argument], capture_output=True, text=True,
                            timeout=rig.PATIENCE, check=False)
    return result.returncode, result.stdout, result.stderr


def marked_write(c, data, ecn=CE, **flags):
    psn = c.psn
    options = {"tclass": ecn} if ":" in c.peer.ip else {"tos": ecn}
    c.post_write(0, data, frame={"ip_options": options}, **flags)
    c.expect_ack(psn)


def notices(c):
    c.wire.barrier()
    got = list(c.wire.notices[c.qpn])
    c.wire.notices[c.qpn].clear()
    return got


@case("a marked packet is answered by one CNP in an interval, as RNICs build it")
def marks(memory):
    for six in (False, True):
        c = connect(six=six)
        for ecn in (0, 1, ECT0):
            marked_write(c, bytes(memory[:8]), ecn)
        expect_equal(notices(c), [], "CNPs without a mark")
        before = counter("rx_marked")
        marked_write(c, bytes(memory[:8]))
        marked_write(c, bytes(memory[:8]))
        got = notices(c)
        expect_equal(len(got), 1, "CNPs in an interval")
        expect_equal((got[0].opcode, got[0].psn, got[0].ack_request, got[0].mig, got[0].pkey),
                     (CNP, 0, False, False, 0xFFFF), "BTH of the CNP")
        expect_equal(got[0].traffic_class, 48 << 2 | ECT0, "traffic class of the CNP")
        expect_equal(got[0].payload, bytes(16), "what follows the BTH")
        expect_equal(counter("rx_marked") - before, 2, "marks counted")


@case("FECN, set by a gateway, counts as a mark")
def gateway_mark(memory):
    c = connect()
    marked_write(c, bytes(memory[:8]), 0, resv8a=0x80)
    expect_equal(len(notices(c)), 1, "CNPs")


@case("a CNP halves the rate of its queue pair, is not answered, and takes no PSN")
def notice(memory):
    c, other = connect(), connect()
    before = counter("rx_cnp")
    c.peer.send(bth(CNP, c.remote_qpn, 0, mig=False, resv8a=0x40) + bytes(16), sport=0,
                ip_options={"tos": 0xC3})
    expect_equal(notices(c), [], "CNPs for a CNP")
    expect_equal(counter("rx_cnp") - before, 1, "CNPs counted")
    expect_equal(rate(c), 10**10 // 8 // 2, "bytes per second")
    expect_equal(rate(other), 0, "bytes per second of another queue pair")
    expect_equal(c.read(0, stage.FILLED), bytes(memory), "bytes read")


@case("a CNP from an address that is not the peer's, or for no queue pair, changes nothing")
def strangers(memory):
    c = connect()
    before = counter("rx_cnp")
    with stage.reasons(not_peer=1, qp_unknown=1):
        Stage.wire.peer().send(bth(CNP, c.remote_qpn, 0, mig=False, resv8a=0x40) + bytes(16))
        c.peer.send(bth(CNP, c.remote_qpn ^ 1, 0, mig=False, resv8a=0x40) + bytes(16))
    expect_equal((counter("rx_cnp") - before, rate(c)), (0, 0), "CNPs and bytes per second")
    stage.expect_memory(memory)


@case("B73: data and answers carry the DSCP of the REQ, data is ECN capable, answers are not")
def classes(memory):
    for tclass in (0, 104, 106):  # the last one's ECN bits are not ours to send
        for six in (False, True):
            c = connect(tclass=tclass, six=six)
            ack = c.write(0, bytes(memory[:8]))
            expect_equal(ack.traffic_class, tclass & 0xFC, "class of an ACK")
            c.post_read(0, 8)
            expect_equal(c.reply().traffic_class, tclass & 0xFC | ECT0, "class of a READ response")
            expect_equal(c.rep.packet.traffic_class & 3, 0, "ECN bits of a MAD")


@case("orielctl congestion shows it and switches it, at run time")
def switched(memory):
    c = connect()
    expect_equal(Stage.daemon.ask("congestion")["congestion"],
                 {"control": "on", "line_rate": 10**10 // 8, "minimum_rate": 10**8 // 8,
                  "gain": 256, "recovery_stages": 5, "additive_rate": 4 * 10**7 // 8,
                  "hyper_rate": 4 * 10**8 // 8, "alpha_period": 55, "increase_period": 10**7,
                  "increase_bytes": 10**7, "reduce_period": 10**7, "cnp_interval": 10**7,
                  "cnp_dscp": 48}, "congestion")
    c.peer.send(bth(CNP, c.remote_qpn, 0, mig=False, resv8a=0x40) + bytes(16), sport=0)
    until(lambda: rate(c) > 0, "the rate falls")
    try:
        status, text, _ = switch("off")
        expect(status == 0 and "control off" in text, f"congestion off: {status} {text}")
        before = counter("tx_cnp")
        marked_write(c, bytes(memory[:8]))
        c.post_read(0, 8)
        expect_equal(c.reply().traffic_class, 0, "class of a READ response")
        expect_equal((rate(c), counter("tx_cnp") - before), (0, 0), "rate and CNPs when off")
        expect_equal(len(notices(c)), 0, "CNPs when off")
    finally:
        status, text, _ = switch("on")
    expect(status == 0 and "control on" in text, f"congestion on: {status} {text}")
    marked_write(c, bytes(memory[:8]))
    expect_equal(len(notices(c)), 1, "CNPs when on again")
    for arguments in (("maybe", ), ("on", "off"), ("", )):
        status, _, text = switch(*arguments)
        expect(status == 2 and text, f"congestion {arguments}: {status} {text}")


@rig.test("a port's dscp is that of all that its queue pairs send, whatever the REQ says")
def own_class():
    rig.veth("d1", "p1")
    daemon = rig.Daemon("v", "net_af_packet0,iface=d1", "10.67.0.1/16", number=1,
                        port="dscp = 26\n[congestion]\nenabled = no\n")
    target = rig.Target("vtarget", daemon, "[export a]\nlisten = 10.67.0.1:7471\nsize = 4K\n"
                        "access = read,write\n")
    wire = roce.Wire("p1", daemon, "10.67.0.1")
    c = wire.witness = roce.Connection(wire.peer(), 7471, tclass=40)
    expect_equal(c.write(0, bytes(8)).traffic_class, 104, "class of an ACK")
    c.post_read(0, 8)
    expect_equal(c.reply().traffic_class, 104, "class of a READ response")
    marked_write(c, bytes(8))
    expect_equal(notices(c), [], "CNPs with control off")
    expect_equal((target.stop(), daemon.stop()), (0, 0), "exit status")


if __name__ == "__main__":
    rig.main(lambda: stage.build(CONFIG))
