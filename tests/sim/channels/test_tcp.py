from __future__ import annotations

import random

import pytest

from jsonbus.sim.channels.tcp import AGAIN_MAX_S, UNREACHABLE_S, Socket, Tcp
from jsonbus.sim.clock import Clock
from jsonbus.sim.network import Network, NetworkOptions


class Pair:
    """Host 1 listens, host 0 dials."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = Clock()
        self.network = Network(NetworkOptions(), random.Random(seed))
        self.tcp = Tcp(self.clock, self.network, random.Random(seed))
        self.accepted: list[Socket] = []
        self.dialed: list[tuple[Socket | None, str]] = []
        self.port = self.tcp.listen(1, self.accepted.append)

    def dial(self, port: int | None = None) -> None:
        to = self.port if port is None else port
        self.tcp.dial(0, 1, to, lambda socket, why: self.dialed.append((socket, why)))

    def connect(self) -> tuple[Socket, Socket]:
        self.dial()
        self.run_for(0.1)
        near, _ = self.dialed[-1]
        assert near is not None
        return near, self.accepted[-1]

    def run_for(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)


def read_all(socket: Socket) -> bytes:
    found = b""
    while piece := socket.read(1000):
        found += piece
    return found


def test_bytes_arrive_in_order_and_in_pieces() -> None:
    pair = Pair()
    near, far = pair.connect()
    pieces: list[bytes] = []

    def read() -> None:
        while piece := far.read(1 << 20):
            pieces.append(piece)

    far.on_ready = read
    data = random.Random(1).randbytes(5_000_000)
    written = 0

    def write() -> None:
        nonlocal written
        written += near.write(data[written:])

    near.on_ready = write
    write()
    pair.run_for(10.0)
    assert b"".join(pieces) == data
    assert len({len(piece) for piece in pieces}) > 20
    assert min(len(piece) for piece in pieces) < 10


def test_the_same_seed_gives_the_same_pieces() -> None:
    runs = []
    for seed in (1, 1, 2):
        pair = Pair(seed)
        near, far = pair.connect()
        seen: list[tuple[float, int]] = []
        far.on_ready = lambda pair=pair, far=far, seen=seen: seen.append(
            (pair.clock.now, len(read_all(far)))
        )
        near.write(bytes(200_000))
        pair.run_for(1.0)
        runs.append(seen)
    assert runs[0] == runs[1] != runs[2]


def test_a_writer_whose_reader_is_slow_finds_the_pipe_full() -> None:
    pair = Pair()
    near, far = pair.connect()
    size = near.write(bytes(10_000_000))
    assert 0 < size < 1_000_000
    pair.run_for(5.0)
    assert near.write(b"more") == 0
    assert len(read_all(far)) == size
    assert near.write(b"more") == 0  # it cannot know yet
    pair.run_for(0.1)
    assert near.write(b"more") == 4


def test_nothing_arrives_at_once() -> None:
    pair = Pair()
    near, far = pair.connect()
    near.write(b"x")
    assert far.read(10) is None
    pair.run_for(0.00009)
    assert far.read(10) is None


def test_bytes_and_dials_stall_while_a_link_is_cut_and_go_on_when_it_is_mended() -> None:
    pair = Pair()
    near, far = pair.connect()
    cuts = pair.network.partition([0], [1])
    near.write(b"hello")
    pair.dial()
    pair.run_for(60.0)
    assert far.read(10) is None
    assert len(pair.dialed) == 1
    for cut in cuts:
        pair.network.mend(cut, pair.clock.now)
    pair.run_for(AGAIN_MAX_S + 0.1)
    assert read_all(far) == b"hello"
    assert len(pair.dialed) == 2 and pair.dialed[1][0] is not None


def test_room_is_not_told_over_a_link_that_is_cut_in_that_direction() -> None:
    pair = Pair()
    near, far = pair.connect()
    near.write(bytes(1_000_000))
    pair.network.cut([1], [0])
    pair.run_for(5.0)
    assert read_all(far)
    pair.run_for(5.0)
    assert near.write(b"more") == 0
    pair.network.mend_all(pair.clock.now)
    pair.run_for(AGAIN_MAX_S + 0.1)
    assert near.write(b"more") == 4


def test_a_dial_where_nobody_listens_is_refused_at_once() -> None:
    pair = Pair()
    pair.dial(port=1)
    pair.run_for(0.1)
    assert pair.dialed == [(None, "connection refused")]


def test_a_dial_to_a_host_without_power_fails_after_a_while() -> None:
    pair = Pair()
    pair.tcp.fail_host(1)
    pair.dial()
    pair.run_for(UNREACHABLE_S - 0.1)
    assert pair.dialed == []
    pair.run_for(AGAIN_MAX_S + 0.2)
    assert pair.dialed == [(None, "no route to host")]


def test_a_dial_that_was_canceled_is_never_told() -> None:
    pair = Pair()
    dialing = pair.tcp.dial(0, 1, pair.port, lambda socket, why: pair.dialed.append((None, "")))
    pair.tcp.cancel(dialing)
    pair.run_for(5.0)
    assert not pair.dialed and not pair.accepted
    assert len(pair.tcp) == 0


def test_the_end_follows_what_was_written() -> None:
    pair = Pair()
    near, far = pair.connect()
    near.write(b"last words")
    near.close()
    pair.run_for(0.1)
    assert far.read(100) == b"last words"
    assert far.read(100) == b""
    far.close()
    pair.run_for(5.0)
    assert len(pair.tcp) == 0
    assert len(pair.clock) == 0


def test_unread_bytes_reset_the_connection_when_it_is_closed() -> None:
    pair = Pair()
    near, far = pair.connect()
    near.write(b"nobody reads this")
    pair.run_for(0.1)
    far.close()
    pair.run_for(0.1)
    with pytest.raises(ConnectionResetError):
        near.write(b"more")
    with pytest.raises(ConnectionResetError):
        near.read(10)


def test_writing_to_a_closed_end_resets_the_connection() -> None:
    pair = Pair()
    near, far = pair.connect()
    far.close()
    pair.run_for(0.1)
    assert near.read(10) == b""
    assert near.write(b"anybody?") == 8
    pair.run_for(1.0)
    with pytest.raises(ConnectionResetError):
        near.write(b"more")


@pytest.mark.parametrize("seed", range(8))
def test_a_reset_may_lose_what_was_not_read_or_not(seed: int) -> None:
    pair = Pair(seed)
    near, far = pair.connect()
    far.write(b"farewell")
    near.write(b"unread")
    pair.run_for(0.1)
    far.close()
    pair.run_for(0.1)
    try:
        assert near.read(100) == b"farewell"
    except ConnectionResetError:
        pass
    with pytest.raises(ConnectionResetError):
        near.read(100)


def test_a_process_that_ends_has_its_sockets_closed() -> None:
    pair = Pair()
    near, _ = pair.connect()
    pair.tcp.end_process(1)
    pair.run_for(0.1)
    assert near.read(10) == b""
    pair.dial()
    pair.run_for(0.1)
    assert pair.dialed[-1] == (None, "connection refused")


def test_a_process_that_ends_dials_no_more() -> None:
    pair = Pair()
    pair.dial()
    pair.tcp.end_process(0)
    pair.run_for(5.0)
    assert pair.dialed == []
    assert len(pair.tcp) == 0


def test_a_host_that_fails_is_silent_and_resets_when_it_is_back() -> None:
    pair = Pair()
    near, _ = pair.connect()
    pair.tcp.fail_host(1)
    near.write(b"anybody?")
    pair.run_for(30.0)
    assert near.read(10) is None
    pair.tcp.revive(1)
    pair.run_for(AGAIN_MAX_S + 0.1)
    with pytest.raises(ConnectionResetError):
        near.read(10)


def test_a_listener_that_ends_while_somebody_connects_leaves_nothing_behind() -> None:
    for wait_us in range(0, 20_000, 500):
        pair = Pair()
        pair.dial()
        pair.run_for(wait_us / 1e6)
        pair.tcp.end_process(1)
        pair.run_for(1.0)
        (near, why), *_ = pair.dialed
        if near is not None:
            near.close()
        else:
            assert why == "connection refused"
        pair.run_for(5.0)
        assert len(pair.tcp) == 0


def test_a_dialer_without_power_leaves_nothing_behind() -> None:
    for wait_us in range(0, 20_000, 500):
        pair = Pair()
        pair.dial()
        pair.run_for(wait_us / 1e6)
        pair.tcp.fail_host(0)
        pair.run_for(30.0)
        for socket in pair.accepted:
            socket.close()
        assert len(pair.tcp) == 0
