# SPDX-License-Identifier: BSD-3-Clause
"""Frames made by hand against a connection: what is served, refused, or dropped, and why."""
import os
import struct

import rig
import roce
import stage
from rig import expect, expect_equal
from roce import (ACK, ATOMIC_ACK, ATOMIC_WRITE, COMPARE_SWAP, FETCH_ADD, FLUSH, NAK_ACCESS,
                  NAK_INVALID, NAK_SEQUENCE, READ_ONLY, READ_REQUEST, SEND_ONLY, SEND_ONLY_INV,
                  UD_SEND_ONLY, WRITE_FIRST, WRITE_LAST, WRITE_MIDDLE, WRITE_ONLY, WRITE_ONLY_IMM,
                  atomic_eth, bth, orq1, reth)
from stage import (Stage, case, connect, expect_alive, expect_dead, expect_memory, expect_silence,
                   reasons, refused)

MTU = 1024


def block(number, length=MTU):
    """Payload that differs from what memory holds and from every other block."""
    return bytes((number * 37 + i * 11 + 5) & 0xFF for i in range(length))


def first(c, length, data, **options):
    c.post(WRITE_FIRST, reth(c.at(0), c.window.token, length), data, **options)


# --- lengths ------------------------------------------------------------------------------------


@case("a good WRITE, READ, SEND and atomic")
def good(memory):
    c = connect()
    with reasons():
        c.write(16, b"hello")
        memory[16:21] = b"hello"
        expect_equal(c.read(0, 4096), bytes(memory), "read back")
        expect_equal(c.atomic(FETCH_ADD, 8, 1), int.from_bytes(memory[8:16], "little"), "old value")
        memory[8:16] = (int.from_bytes(memory[8:16], "little") + 1).to_bytes(8, "little")
        window = c.ask(offset=4096, length=16)
        expect_equal(window.length, 16, "length of the window that was asked for")
    expect_memory(memory)


@case("W01: RETH length greater than the sum of payloads: NAK 0x61, nothing behind it written")
def length_too_great(memory):
    c = connect()
    with reasons(length=1):
        first(c, 3072, block(1), ack=False)
        c.post(WRITE_MIDDLE, b"", block(2), ack=False)
        psn = c.psn
        c.post(WRITE_LAST, b"", block(3, 512))
        got = c.replies()
    expect_equal([(p.opcode, p.syndrome, p.psn) for p in got], [(ACK, NAK_INVALID, psn)], "answer")
    expect_dead(c)
    memory[:2048] = block(1) + block(2)
    expect_memory(memory)


@case("W03, B19: FIRST and MIDDLE are full, LAST has something, ONLY fits: else NAK 0x61")
def shapes(memory):
    def short_first(c):
        first(c, 2044, block(4, 1020))

    def short_middle(c):
        first(c, 3072, block(5), ack=False)
        return lambda: c.post(WRITE_MIDDLE, b"", block(6, 1023))

    def empty_last(c):
        first(c, 1024, block(5), ack=False)
        return lambda: c.post(WRITE_LAST)

    def long_only(c):
        c.post_write(0, block(7, 1028))

    def long_middle(c):
        first(c, 3072, block(5), ack=False)
        return lambda: c.post(WRITE_MIDDLE, b"", block(6, 1028))

    def short_send(c):
        c.post(roce.SEND_FIRST, b"", block(8, 1020))

    for shape in (short_first, short_middle, empty_last, long_only, long_middle, short_send):
        c = connect()
        before = c.psn
        with reasons(length=1):
            last = shape(c)
            psn = c.psn if last else before
            if last:
                last()
            got = c.replies()
        expect_equal([(p.opcode, p.syndrome, p.psn) for p in got], [(ACK, NAK_INVALID, psn)],
                     f"answer to {shape.__name__}")
        expect_dead(c)
    memory[:1024] = block(5)
    expect_memory(memory)


@case("W13, B01: pad without payload is dropped; pad must fit the length; it is never written")
def pads(memory):
    c = connect()
    with reasons(pad=2):
        c.peer.send(bth(SEND_ONLY, c.remote_qpn, c.psn, pad=3, ack=True))
        c.peer.send(bth(WRITE_ONLY, c.remote_qpn, c.psn, pad=3, ack=True) + reth(0, 0, 0))
        expect_silence(c)
    expect_alive(c)
    with reasons():
        c.post(WRITE_ONLY, reth(c.at(0), c.window.token, 5), b"\xee" * 5, pad=3)
        c.expect_ack(c.psn - 1 & 0xFFFFFF)
    memory[:5] = b"\xee" * 5
    expect_memory(memory)
    for pad in (2, 0):
        c = connect()
        refused(c, NAK_INVALID, lambda: c.peer.send(
            bth(WRITE_ONLY, c.remote_qpn, c.psn, pad=pad, ack=True)
            + reth(c.at(0), c.window.token, 5) + b"\xdd" * 8), length=1)
    expect_memory(memory)


@case("W15, B03: truncated headers are dropped, whatever lies behind them in the frame")
def truncated(memory):
    c = connect()
    whole = (bth(WRITE_ONLY, c.remote_qpn, c.psn, ack=True) + reth(c.at(0), c.window.token, 8)
             + b"\xcc" * 12)
    with reasons(runt=4):
        for length in (0, 1, 12, 15):
            c.peer.send_udp(whole[:length], tail=whole[length:])
        expect_silence(c)
    with reasons(header_truncated=4):
        c.peer.send(whole[:12])
        c.peer.send(bth(FETCH_ADD, c.remote_qpn, c.psn, ack=True) + bytes(16))
        c.peer.send(bth(UD_SEND_ONLY, c.remote_qpn, c.psn))
        c.peer.send(bth(WRITE_ONLY_IMM, c.remote_qpn, c.psn, ack=True) + bytes(16))
        expect_silence(c)
    with reasons(udp_length=3):
        for udp_length in (7, 8 + 15, 8 + len(whole) + 40):
            c.peer.send_udp(whole, udp_length=udp_length, tail=bytes(60))
        expect_silence(c)
    with reasons(ip_length=1):
        frame = c.peer.frame(whole[:32]).bytes()
        c.wire.send(frame[:-8])
        expect_silence(c)
    expect_memory(memory)
    expect_alive(c)
    # 16 bytes behind the UDP header are the smallest packet that can be good.
    with reasons():
        c.post(SEND_ONLY)
        expect_equal(c.take_answer().code, 1, "code of the answer to an empty message")


# --- addresses and tokens -----------------------------------------------------------------------


@case("W05, B42: ranges that wrap or lie outside are refused by NAK 0x62, too long ones by 0x61")
def ranges(memory):
    top = 0xFFFFFFFFFFFFFC00
    for address, length, syndrome, why in (
            (lambda c: top, 0x400, NAK_ACCESS, "access_range"),
            (lambda c: c.at(-1), 2, NAK_ACCESS, "access_range"),
            (lambda c: c.at(stage.SIZE), 1, NAK_ACCESS, "access_range"),
            (lambda c: c.at(stage.SIZE - 1), 2, NAK_ACCESS, "access_range"),
            (lambda c: 0, 8, NAK_ACCESS, "access_range"),
            (lambda c: c.at(0), 0x80000001, NAK_INVALID, "length"),
            (lambda c: c.at(0), 0xFFFFFFFF, NAK_INVALID, "length"),
            (lambda c: c.at(1), 0x80000000, NAK_ACCESS, "access_range")):
        c = connect()
        refused(c, syndrome, lambda: c.post(READ_REQUEST, reth(address(c), c.window.token, length)),
                **{why: 1})
        if length > MTU:
            continue
        c = connect()
        refused(c, syndrome, lambda: c.post(WRITE_ONLY, reth(address(c), c.window.token, length),
                                            block(1, length)), **{why: 1})
    c = connect()
    refused(c, NAK_ACCESS, lambda: c.post(
        FETCH_ADD, atomic_eth(c.at(stage.SIZE), c.window.token, 1)), access_range=1)
    expect_memory(memory)


@case("W23, B44: inside the region but outside the window, or without the right: NAK 0x62")
def windows(memory):
    narrow = orq1(offset=1024, length=64)
    for offset, length in ((-1, 1), (64, 1), (0, 65), (-1024, 8)):
        c = connect(private=narrow)
        expect_equal((c.window.length, c.read(0, 64)), (64, bytes(memory[1024:1088])), "window")
        refused(c, NAK_ACCESS, lambda: c.post_read(offset, length), access_range=1)
    for port in (stage.READ_ONLY, ):
        c = connect(port)
        c.read(0, 8)
        refused(c, NAK_ACCESS, lambda: c.post_write(0, b"12345678"), access_rights=1)
    for port in (stage.READ_ONLY, stage.NO_ATOMIC):
        c = connect(port)
        refused(c, NAK_ACCESS, lambda: c.post(FETCH_ADD, atomic_eth(c.at(0), c.window.token, 1)),
                access_rights=1)
    c = connect(private=orq1(access=2))
    c.write(0, bytes(memory[:8]))
    refused(c, NAK_ACCESS, lambda: c.post_read(0, 8), access_rights=1)
    expect_memory(memory)


@case("B51, W23: a window tied to a connection serves no other; one of the domain does")
def tied(memory):
    a, b = connect(), connect()
    refused(b, NAK_ACCESS, lambda: b.post(READ_REQUEST, reth(a.at(0), a.window.token, 8)),
            access_queue_pair=1)
    expect_equal(a.read(0, 8), bytes(memory[:8]), "A reads on")
    a.disconnect()
    a, b = connect(stage.DOMAIN), connect(stage.DOMAIN)
    data = os.urandom(8)
    a.write(0, data)
    with reasons():
        psn = b.psn
        b.post(READ_REQUEST, reth(a.at(0), a.window.token, 8))
        expect_equal(b.take_read(psn, 8), data, "B reads A's window of the domain")
    a.disconnect()
    b.disconnect()


@case("B52: the window of a connection that has ended serves no later one")
def destroyed(memory):
    for _ in range(3 if rig.QUICK else 20):
        a = connect()
        a.read(0, 8)
        a.disconnect()
        b = connect()
        before = Stage.daemon.verdicts()
        psn = b.psn
        b.post(READ_REQUEST, reth(a.at(0), a.window.token, 8))
        b.expect_nak(NAK_ACCESS, psn)
        moved = Stage.daemon.verdicts() - before
        expect(moved["access_unknown"] + moved["access_dead"] == 1, f"reasons {dict(moved)}")
    expect_memory(memory)


@case("B59: the token of ORX1 is, byte for byte, the one on the wire; swapped it is no good")
def token_order(memory):
    c = connect()
    psn = c.psn
    c.post(READ_REQUEST, struct.pack("!Q", c.at(0)) + c.window.token_bytes + struct.pack("!I", 8))
    expect_equal(c.take_read(psn, 8), bytes(memory[:8]), "read by the four bytes of ORX1")
    swapped, = struct.unpack("<I", c.window.token_bytes)
    refused(c, NAK_ACCESS, lambda: c.post_read(0, 8, token=swapped), access_unknown=1)


@case("tokens that were never given out, and 0, are refused; each is counted as a bad token")
def guesses(memory):
    before = Stage.daemon.status()["bad_tokens"]
    for token in (0, 1, 0xFFFFFFFF, Stage.witness.window.token ^ 1):
        c = connect()
        refused(c, NAK_ACCESS, lambda: c.post_write(0, b"guessed!", token=token), access_unknown=1)
    expect_equal(Stage.daemon.status()["bad_tokens"], before + 4, "bad tokens counted")
    expect_memory(memory)


@case("B49: after each new window the token before it is dead")
def rebound(memory):
    for _ in range(3 if rig.QUICK else 15):
        c = connect()
        old = c.window.token
        for _ in range(10):
            window = c.ask()
            expect(window.token not in (0, old), "a new window with the old token")
            c.window, old = window, c.window.token
        expect_equal(c.read(0, 8), bytes(memory[:8]), "read through the new window")
        with reasons(**{"access_unknown": 1}):
            psn = c.psn
            c.post_read(0, 8, token=old)
            c.expect_nak(NAK_ACCESS, psn)
    expect_memory(memory)


@case("B57: SEND with invalidate kills its own window at once, and nothing of anybody else's")
def invalidates(memory):
    a = connect()
    with reasons():
        psn = a.psn
        a.post(SEND_ONLY_INV, struct.pack("!I", a.window.token))
        a.expect_ack(psn)
        window = a.ask()
    refused(a, NAK_ACCESS, lambda: a.post_read(0, 8), access_unknown=1)
    expect(window.token != a.window.token, "the new window has the dead token")
    a = connect()
    for token in (a.window.token, 0x12345678, 0):
        b = connect()
        with reasons(remote_invalidate=1):
            b.post(SEND_ONLY_INV, struct.pack("!I", token))
            expect_silence(b)
        expect_dead(b)
        expect_equal(a.read(0, 8), bytes(memory[:8]), "A's window lives")
    a.disconnect()


# --- sequence, replay ---------------------------------------------------------------------------


@case("W11: a gap is reported once; what came early is not executed, then all once and in order")
def gap(memory):
    c = connect()
    start = c.psn

    def write(n):
        c.post_write(n * 16, block(n, 16), psn=start + n & 0xFFFFFF)
    with reasons(psn_ahead=1, psn_ahead_silent=3):
        for n in (1, 2, 3, 5):
            write(n)
        c.expect_nak(NAK_SEQUENCE, start)
        expect_silence(c)
        expect_memory(memory)
    with reasons():
        for n in range(4):
            write(n)
            memory[n * 16:n * 16 + 16] = block(n, 16)
        got = c.replies()
        expect(got and all(p.syndrome & 0x60 == 0 for p in got), f"ACKs: {got}")
        expect_equal((got[-1].psn, got[-1].msn), (start + 3 & 0xFFFFFF, 4), "last ACK")
        expect_memory(memory)
    c.psn = start + 4 & 0xFFFFFF
    expect_alive(c)


@case("W07, B13: a repeated atomic is answered from what was kept, never executed again")
def atomics(memory):
    c = connect()
    c.write(0, (5).to_bytes(8, "little"))
    memory[:8] = (12).to_bytes(8, "little")
    psn = c.psn
    with reasons(duplicate=2):
        expect_equal(c.atomic(FETCH_ADD, 0, 7), 5, "value before")
        again = {"psn": psn}
        for _ in range(2):
            c.post(FETCH_ADD, atomic_eth(c.at(0), c.window.token, 7), **again)
            got = c.reply()
            expect_equal((got.opcode, got.psn, got.original), (ATOMIC_ACK, psn, 5), "repeated")
            other = connect()
            for n in range(16):
                expect_equal(other.atomic(FETCH_ADD, 5000 * 8, 0), other.atomic(
                    FETCH_ADD, 5000 * 8, 0), f"atomic {n} of another queue pair")
            other.disconnect()
        expect_equal(c.read(0, 8), bytes(memory[:8]), "executed once")
    before = Stage.daemon.verdicts()
    c.post(FETCH_ADD, atomic_eth(c.at(0), c.window.token, 9), **again)
    got = c.replies()
    moved = Stage.daemon.verdicts() - before
    expect(all(p.original == 5 for p in got) and sum(moved.values()) == 1,
           f"altered repetition: {got} {dict(moved)}")
    expect_equal(c.atomic(COMPARE_SWAP, 0, 0x1112131415161718, 12), 12, "compare equal")
    expect_equal(c.atomic(COMPARE_SWAP, 0, 99, 12), 0x1112131415161718, "compare unequal")
    expect_equal(c.atomic(FETCH_ADD, 0, 0xF0000000), 0x1112131415161718, "before the carry")
    memory[:8] = (0x1112131415161718 + 0xF0000000).to_bytes(8, "little")
    expect_memory(memory)


@case("W09: a repeated READ that asks for more, elsewhere or by another token is dropped")
def read_again(memory):
    c = connect()
    start, offset = c.psn, 8
    c.read(offset, 1024)
    for address, token, length in ((offset, c.window.token, 1028), (0, c.window.token, 1024),
                                   (offset, Stage.witness.window.token, 1024)):
        with reasons(duplicate_unknown=1):
            c.post_read(address, length, token=token, psn=start)
            expect_silence(c)
    with reasons(duplicate=2):
        for length in (1024, 512):
            c.post_read(offset, length, psn=start)
            expect_equal(c.take_read(start, length), bytes(memory[offset:offset + length]), "again")
    expect_alive(c)
    # The window dies between the READ and its repetition: no byte may come.
    dead = c.window.token
    c.post(SEND_ONLY_INV, struct.pack("!I", dead))
    c.expect_ack(c.psn - 1 & 0xFFFFFF)
    c.post_read(offset, 1024, psn=start, token=dead)
    got = c.replies()
    expect(all(p.opcode == ACK and p.syndrome == NAK_ACCESS for p in got), f"answers: {got}")


@case("duplicates within a message are answered, and neither executed nor part of its sequence")
def duplicates_between(memory):
    c = connect()
    start = c.psn
    c.read(0, 3000)
    first(c, 2048, block(1), ack=False)
    with reasons(duplicate=3):
        c.post_read(0, 3000, psn=start)
        expect_equal(c.take_read(start, 3000)[1024:], bytes(memory[1024:3000]), "READ once more")
        first(c, 2048, block(2), psn=c.psn - 1 & 0xFFFFFF)
        c.expect_ack(c.psn - 1 & 0xFFFFFF)
        c.post(WRITE_LAST, b"", block(3))
        c.expect_ack(c.psn - 1 & 0xFFFFFF)
        # Neither its token nor its length is looked at again.
        c.post_write(0, b"12345678", psn=c.psn - 1 & 0xFFFFFF, token=5, length=77)
        c.expect_ack(c.psn - 1 & 0xFFFFFF)
    memory[:2048] = block(1) + block(3)
    expect_memory(memory)


@case("B22: MSN counts each request message once, whatever its kind; duplicates do not add")
def message_numbers(memory):
    c = connect()
    start = c.psn
    for n in range(3):
        psn = c.psn
        c.post_write(0, bytes(memory[:8]))
        c.expect_ack(psn, n + 1)
    c.post_read(0, 8)
    expect_equal(c.reply().msn, 4, "MSN of a READ's response")
    c.post(FETCH_ADD, atomic_eth(c.at(0), c.window.token, 0))
    expect_equal(c.reply().msn, 5, "MSN of an atomic's answer")
    psn = c.psn
    c.post(SEND_ONLY, b"", orq1())
    c.expect_ack(psn, 6)
    c.take_answer()
    with reasons(duplicate=2):
        c.post_write(0, bytes(memory[:8]), psn=start)
        c.expect_ack(psn, 6)
        c.post(SEND_ONLY, b"", orq1(), psn=psn)
        c.expect_ack(psn, 6)
        expect_silence(c)


@case("B37: zero-length WRITE and READ need no token; repeated they are answered the same")
def zero_length(memory):
    c = connect()
    before = Stage.daemon.status()["bad_tokens"]
    with reasons(duplicate=2):
        psn = c.psn
        c.post(WRITE_ONLY, reth(0, 0, 0))
        c.expect_ack(psn)
        c.post(WRITE_ONLY, reth(0, 0, 0), psn=psn)
        c.expect_ack(psn)
        psn = c.psn
        c.post(READ_REQUEST, reth(0, 0, 0))
        for again in (True, False):
            got = c.reply()
            expect_equal((got.opcode, got.psn, len(got.payload)), (READ_ONLY, psn, 0), "empty READ")
            if again:
                c.post(READ_REQUEST, reth(0, 0, 0), psn=psn)
    expect_equal(Stage.daemon.status()["bad_tokens"], before, "bad tokens counted")


@case("W25: the READ beyond what was agreed is refused by NAK 0x61, those within are answered")
def too_many_reads(memory):
    c = connect(responder=16, initiator=4)
    expect_equal(c.responder, 4, "READs that the REP allows")
    length, limit = 48 * MTU, 4
    for _ in range(2):
        starts = []
        for _ in range(limit):
            starts.append(c.psn)
            c.post_read(0, length)
        for start in starts:
            c.take_read(start, length)
    with reasons(read_limit=1):
        starts = []
        # All are there before the first is answered.
        with Stage.daemon.stopped():
            for _ in range(limit + 1):
                starts.append(c.psn)
                c.post_read(0, length)
        for start in starts[:-1]:
            c.take_read(start, length)
        c.expect_nak(NAK_INVALID, starts[-1])
    expect_dead(c)


@case("B38: a connection that agreed on no READs gets NAK 0x61 for the first")
def no_reads(memory):
    for send in (lambda c: c.post_read(0, 8),
                 lambda c: c.post(FETCH_ADD, atomic_eth(c.at(0), c.window.token, 1))):
        c = connect(initiator=0)
        expect_equal(c.responder, 0, "READs that the REP allows")
        c.write(0, bytes(memory[:8]))
        refused(c, NAK_INVALID, lambda: send(c), read_limit=1)
    expect_memory(memory)


@case("opcodes out of sequence: NAK 0x61")
def sequence(memory):
    for opcode, extension in ((WRITE_MIDDLE, b""), (WRITE_LAST, b""), (roce.SEND_LAST, b"")):
        c = connect()
        refused(c, NAK_INVALID, lambda: c.post(opcode, extension, block(1)), opcode_sequence=1)
    c = connect()
    first(c, 3072, block(2), ack=False)
    refused(c, NAK_INVALID, lambda: c.post_read(0, 8), opcode_sequence=1)
    memory[:1024] = block(2)
    expect_memory(memory)


@case("B10: a refused atomic is answered by opcode 0x11, whatever was wrong with it")
def refused_atomics(memory):
    for opcode in (FETCH_ADD, COMPARE_SWAP):
        c = connect()
        refused(c, NAK_ACCESS, lambda: c.post(opcode, atomic_eth(c.at(0), 0x01020304, 1)),
                access_unknown=1)
        for offset in (1, 4, 7, stage.SIZE - 1):
            c = connect()
            refused(c, NAK_INVALID,
                    lambda: c.post(opcode, atomic_eth(c.at(offset), c.window.token, 1)),
                    atomic_alignment=1)
    expect_memory(memory)


@case("B11: FLUSH and ATOMIC WRITE are not offered: NAK 0x61, whatever their length; no byte moves")
def not_offered(memory):
    for payload in (b"", b"1234", b"12345678", bytes(1024)):
        for length in (0, 8, len(payload)):
            c = connect()
            refused(c, NAK_INVALID, lambda: c.post(
                ATOMIC_WRITE, reth(c.at(0), c.window.token, length), payload), operation=1)
    c = connect()
    refused(c, NAK_INVALID, lambda: c.post(
        ATOMIC_WRITE, reth(c.at(1), c.window.token, 8), b"12345678"), operation=1)
    for flush_eth in (0, 0x11):
        c = connect()
        refused(c, NAK_INVALID, lambda: c.post(FLUSH, struct.pack("!I", flush_eth) + reth(
            c.at(0), c.window.token, 8)), operation=1)
    c = connect()
    with reasons(header_truncated=2, pad=1):
        c.peer.send(bth(ATOMIC_WRITE, c.remote_qpn, c.psn, ack=True) + bytes(12))
        c.peer.send(bth(FLUSH, c.remote_qpn, c.psn, ack=True) + bytes(16))
        c.peer.send(bth(FLUSH, c.remote_qpn, c.psn, ack=True) + bytes(24))
        expect_silence(c)
    expect_alive(c)
    expect_memory(memory)


@case("B23: WRITE with immediate writes, takes a receive, and is no message to the target")
def immediate(memory):
    c = connect()
    window = c.ask(length=8192)
    for length in (0, 1, 64, 1024):
        psn = c.psn
        c.post(WRITE_ONLY_IMM, reth(c.at(0), window.token, length) + b"\1\2\3\4", block(9, length))
        c.expect_ack(psn)
        expect_silence(c)
        memory[:length] = block(9, length)
        expect_memory(memory)
    c.window = window
    expect_alive(c)


@case("B126: requests as fast as they can be sent are all answered, in order, RNR or not")
def storm(memory):
    c = connect()
    wanted = [n % 100 + 1 for n in range(64 if rig.QUICK else 400)]
    first_psn, sent, answers = c.psn, 0, []

    def psn_of(n):
        return first_psn + n & 0xFFFFFF
    while len(answers) < len(wanted):
        while sent < len(wanted) and sent < len(answers) + 64:
            c.post(SEND_ONLY, b"", orq1(length=wanted[sent]), psn=psn_of(sent))
            sent += 1
        got = c.reply()
        if got.opcode == SEND_ONLY:
            c.had(got)
            answers.append(roce.Window(got.payload).length)
        elif got.syndrome & 0xE0 == 0x20 or got.syndrome == NAK_SEQUENCE:
            sent = got.psn - first_psn & 0xFFFFFF
    expect_equal(answers, wanted, "answers in order")
    c.psn = psn_of(len(wanted))
    c.window = c.ask()
    expect_alive(c)


if __name__ == "__main__":
    rig.main(stage.build)
