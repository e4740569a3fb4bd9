# SPDX-License-Identifier: BSD-3-Clause
"""The stage of the tests by hand-made frames: a daemon on a veth, a target, a witness."""
import contextlib
import os

import rig
import roce
from rig import expect, expect_equal

SIZE = 65536
FILLED = 4096  # bytes of the export that a test finds filled and must leave as it says
SCRATCH, READ_ONLY, NO_ATOMIC, DOMAIN, NARROW, TWIN = 7471, 7472, 7473, 7474, 7475, 7476
ABSENT_PORT = 7999
ALIAS = "10.66.255.250"

REJ_NO_RESOURCES, REJ_TIMEOUT, REJ_UNSUPPORTED = 3, 4, 5
REJ_SERVICE, REJ_TRANSPORT, REJ_STALE, REJ_GID = 8, 9, 10, 12
REJ_MTU, REJ_CONSUMER = 26, 28

EXPORTS = """
[export scratch]
listen = 10.66.0.1:7471, [fd66::1]:7471
size = 64K
access = read,write,atomic
[export readonly]
listen = 10.66.0.1:7472
size = 64K
access = read
[export noatomic]
listen = 10.66.0.1:7473
size = 64K
access = read,write
[export domain]
listen = 10.66.0.1:7474
size = 64K
access = read,write,atomic
window = domain
[export narrow]
listen = 10.66.0.1:7475
size = 64K
allow = 10.66.255.0/24
[export first]
listen = 10.66.0.1:7476
size = 4K
[export second]
listen = 10.66.0.1:7476
size = 8K
access = read,write
"""


class Stage:
    """What every test of a file uses; made once."""

    daemon = target = wire = witness = baseline = None


def build(more="bad-token-budget = 0\n"):
    rig.veth("d0", "p0")
    Stage.daemon = rig.Daemon("a", "net_af_packet0,iface=d0",
                              f"10.66.0.1/16, {ALIAS}/16, fd66::1/64", more=more)
    Stage.target = rig.Target("target", Stage.daemon, EXPORTS)
    Stage.wire = roce.Wire("p0", Stage.daemon, "10.66.0.1", "fd66::1")
    Stage.witness = Stage.wire.witness = connect(SCRATCH)
    # Until its RTU has been heard there is a connection more that is pending.
    Stage.wire.barrier()
    Stage.baseline = Stage.daemon.counts()
    expect_equal(Stage.baseline["connections_pending"], 0, "connections without an RTU")


def connect(port=SCRATCH, *, peer=None, six=False, **options):
    """A fresh connection, from an address of its own unless one is given."""
    return roce.Connection(peer or Stage.wire.peer(six), port, **options)


def refusal(port=SCRATCH, *, peer=None, six=False, private=b"", **changes):
    """The REJ that an attempt to connect must end with."""
    c = roce.Connection(peer or Stage.wire.peer(six), port, private=private, connect=False)
    c.request(**changes)
    try:
        c.take_reply()
    except roce.Refused as refused:
        expect_equal(refused.mad.remote_id, c.local_id, "id in the REJ")
        expect_equal(refused.mad.tid, c.tid, "transaction in the REJ")
        return refused
    raise rig.Failure(f"accepted: {port} {private!r} {changes}")


# --- memory -----------------------------------------------------------------------------------


def pattern():
    return bytearray(i % 251 for i in range(FILLED))


def fill():
    """Memory as every case finds it."""
    data = pattern()
    for at in range(0, FILLED, 1024):
        Stage.witness.write(at, bytes(data[at:at + 1024]))
    return data


def expect_memory(data):
    got = Stage.witness.read(0, FILLED)
    if got != bytes(data):
        at = next(i for i in range(FILLED) if got[i] != data[i])
        raise rig.Failure(f"memory differs first at {at}: expected {data[at]}, got {got[at]}")


# --- what a case must leave ---------------------------------------------------------------------


@contextlib.contextmanager
def reasons(**expected):
    """Exactly these counters move, by exactly so much, while the block runs."""
    before = Stage.daemon.verdicts()
    yield
    Stage.wire.barrier()
    moved = dict(Stage.daemon.verdicts() - before)
    expect_equal(moved, expected, "reason counters that moved")


def expect_silence(connection):
    expect_equal(connection.replies(), [], "packets from the daemon where none may come")


def expect_dead(connection):
    """A good request is dropped in silence, counted, and changes nothing."""
    before = Stage.daemon.verdicts()
    connection.post_write(0, b"dead", psn=connection.psn)
    expect_silence(connection)
    moved = Stage.daemon.verdicts() - before
    # Its owner may have closed the queue pair by now.
    expect(sum(moved[name] for name in ("qp_dead", "qp_unknown", "qp_state")) == 1 and
           sum(moved.values()) == 1, f"a dead queue pair counts a packet once: {dict(moved)}")


def refused(c, syndrome, send, **why):
    """send() makes the daemon answer with this NAK for its PSN; the queue pair dies of it."""
    with reasons(**why):
        psn = c.psn
        send()
        c.expect_nak(syndrome, psn)
    expect_dead(c)


def expect_alive(connection):
    """The next request at the expected PSN is served: nothing has changed."""
    data = os.urandom(16)
    connection.write(FILLED + 64, data)
    expect_equal(connection.read(FILLED + 64, 16), data, "bytes read back")


def fresh():
    """The post-check of every case: a new peer is served, and objects are as they were."""
    connection = connect()
    data = os.urandom(1000)
    connection.write(FILLED + 1024, data)
    expect_equal(connection.read(FILLED + 1024, 1000), data, "bytes of a fresh connection")
    hang_up()
    # What the daemon asks meanwhile is answered.
    rig.until(lambda: Stage.wire.pump() or settled(), difference)


def hang_up():
    """Ends every connection that a case has left."""
    for connection in list(Stage.wire.connections.values()):
        if connection.open and connection is not Stage.witness:
            connection.disconnect()


def settled():
    now = Stage.daemon.counts()
    return all(now[key] == Stage.baseline[key] for key in now)


def difference():
    now = Stage.daemon.counts()
    return "objects (before, now): " + str({key: (Stage.baseline[key], now[key]) for key in now
                                            if now[key] != Stage.baseline[key]})


def case(rule, slow=False):
    """A test with memory filled before it and the post-check behind it."""
    def register(function):
        @rig.test(rule, slow)
        def run():
            try:
                function(fill())
                fresh()
            finally:
                hang_up()
        return run
    return register
