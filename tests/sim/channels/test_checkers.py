"""Each checker watches channels that are broken on purpose, and must say so."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from jsonbus.core.channel.limits import SILENCE_S
from jsonbus.core.channel.wire import BYTES, Refusal
from jsonbus.errors import ChannelRefusedError, ChannelTimeoutError
from jsonbus.sim import BrokenInvariantError, Checker, World
from jsonbus.sim.channels.checkers import (
    AttemptsEndInTime,
    BoundsAreKept,
    ChannelPromises,
    ClosesAreTrue,
    EverythingArrives,
    ExclusivePortsHaveOneChannel,
    LossesAreNoticed,
    MessagesAreInOrder,
    NothingIsLeft,
    RefusalsAreTrue,
    SilenceIsTrue,
)
from jsonbus.sim.channels.connector import ConnectAttempt
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.channels.node import ChannelBounds
from jsonbus.sim.records import Habits

SENDS = Habits(messages=10)


class Pair:
    """Two nodes; the second has bound a port."""

    def __init__(self, *checkers: Checker, **binding: Any) -> None:
        self.world = World(1, checkers=checkers)
        self.one, self.two = self.world.add_node("one"), self.world.add_node("two")
        self.world.run_for(2.0)
        self.world.channels.bind(self.two, **binding)
        self.world.run_for(0.1)

    def call(
        self, habits: Habits | None = None, port: str = "door", **options: Any
    ) -> ConnectAttempt:
        call = self.world.channels.connect(self.one, "two", port, habits=habits, **options)
        self.world.run_for(0.2)
        return call

    def connect(self, habits: Habits | None = None) -> tuple[Endpoint, Endpoint]:
        end = self.call(habits).endpoint
        assert end is not None and end.other is not None
        return end, end.other


def test_honest_ends_break_nothing() -> None:
    promises = ChannelPromises()
    pair = Pair(*promises.checkers, habits=SENDS)
    end, other = pair.connect(SENDS)
    promises.arrives.arrives_by = pair.world.clock.now
    pair.call(port="nothing")
    pair.world.run_for(30.0)
    end.close()
    other.close()
    pair.world.run_for(1.0)
    for checker in promises.checkers:
        checker.finished()


# --- Messages and closes ----------------------------------------------------------------------


def test_a_message_that_nobody_sent_is_noticed() -> None:
    pair = Pair(MessagesAreInOrder())
    _, other = pair.connect()
    other.core.inbox.append((BYTES, b"surprise"))
    with pytest.raises(BrokenInvariantError, match="which nobody sent"):
        other.work()


def test_a_message_out_of_order_is_noticed() -> None:
    pair = Pair(MessagesAreInOrder(), habits=Habits(take_s=inf))
    _, other = pair.connect(SENDS)
    other.core.inbox.rotate(1)
    with pytest.raises(BrokenInvariantError, match="bytes as 0"):
        other.use(Habits())


def test_a_message_that_is_missing_is_noticed() -> None:
    pair = Pair(MessagesAreInOrder(), habits=Habits(take_s=inf))
    _, other = pair.connect(SENDS)
    del other.core.inbox[3]
    with pytest.raises(BrokenInvariantError, match="bytes as 3"):
        other.use(Habits())


def test_a_close_that_is_confirmed_too_early_is_noticed() -> None:
    pair = Pair(ClosesAreTrue(), habits=Habits(take_s=inf))
    end, _ = pair.connect()
    end.use(Habits(messages=100, bytes_max=100_000))
    end.close()
    end.core.is_confirmed = True
    end.core._output.clear()
    end.core._end("lies")
    with pytest.raises(BrokenInvariantError, match=r"sent \d+, confirmed"):
        end.work()


def test_a_close_that_overtakes_messages_is_noticed() -> None:
    pair = Pair(ClosesAreTrue())
    end, other = pair.connect(SENDS)
    end.close()
    end.sent.append(7)  # it says
    with pytest.raises(BrokenInvariantError, match="was closed after 11; 10 arrived"):
        pair.world.run_for(0.1)
    assert other.core.is_peer_closed


def test_a_close_that_nobody_made_is_noticed() -> None:
    pair = Pair(ClosesAreTrue())
    _, other = pair.connect(SENDS)
    other.core._receive_close()
    with pytest.raises(BrokenInvariantError, match="closed by nobody"):
        other.work()


# --- Bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["inbox_bytes", "output_bytes"])
def test_an_end_that_holds_too_much_is_noticed(held: str) -> None:
    pair = Pair(BoundsAreKept())
    end, _ = pair.connect()
    setattr(end.core, held, 5 << 20)
    with pytest.raises(BrokenInvariantError, match=f"{held.split('_')[0]} of 5242880 bytes"):
        end.work()


def test_a_node_that_holds_too_much_is_noticed() -> None:
    pair = Pair(BoundsAreKept())
    end, _ = pair.connect()
    pair.world.channels.of(pair.one).bounds = ChannelBounds(memory_bytes_max=10_000)
    end.core.inbox_bytes = 500_000
    with pytest.raises(BrokenInvariantError, match="one holds 500000 bytes"):
        end.work()


def test_too_many_channels_are_noticed() -> None:
    pair = Pair(BoundsAreKept())
    pair.connect()
    pair.world.channels.of(pair.two).bounds = ChannelBounds(channels_max=1)
    with pytest.raises(BrokenInvariantError, match="two has 2 channels"):
        pair.connect()


def test_two_channels_of_an_exclusive_port_are_noticed() -> None:
    pair = Pair(ExclusivePortsHaveOneChannel(), exclusive=True)
    pair.connect()
    pair.world.channels.of(pair.two).ports.closed("door")  # it is not
    with pytest.raises(BrokenInvariantError, match="was opened beside"):
        pair.connect()


# --- Silence ----------------------------------------------------------------------------------


def test_an_end_that_is_called_silent_although_it_speaks_is_noticed() -> None:
    pair = Pair(SilenceIsTrue())
    end, _ = pair.connect()
    pair.world.run_for(20.0)
    end.core.handle_timer(pair.one.local(pair.world.clock.now) + SILENCE_S)
    with pytest.raises(BrokenInvariantError, match="was there all the time"):
        end.work()


def test_an_end_that_is_cut_off_may_be_called_silent() -> None:
    pair = Pair(SilenceIsTrue())
    end, _ = pair.connect()
    pair.world.network.partition([0], [1])
    pair.world.run_for(SILENCE_S + 1.0)
    assert end.core.is_lost


@pytest.mark.parametrize("fate", ["cut", "crash", "power"])
def test_an_end_that_does_not_notice_that_the_other_is_gone_is_noticed(
    fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endpoint, "_timer_at", lambda end: inf)  # no timers
    pair = Pair(LossesAreNoticed())
    end, _ = pair.connect()
    end.socket.on_ready = None
    if fate == "cut":
        pair.world.network.partition([0], [1])
    else:
        pair.world.crash(pair.two, with_host=fate == "power")
    pair.world.run_for(SILENCE_S)
    with pytest.raises(BrokenInvariantError, match="after it could be heard"):
        pair.world.run_for(1.0)


# --- The end ----------------------------------------------------------------------------------


def test_what_is_left_is_noticed() -> None:
    left = NothingIsLeft()
    pair = Pair(left)
    left.finished()
    call = pair.world.channels.connect(pair.one, "nobody")
    with pytest.raises(BrokenInvariantError, match="goes on"):
        left.finished()
    pair.world.run_for(5.0)
    assert call.is_over
    end, other = pair.connect()
    with pytest.raises(BrokenInvariantError, match="is open"):
        left.finished()
    for each in (end, other):
        each.close()
    pair.world.run_for(1.0)
    left.finished()
    end.owner.budget.note("somebody", 1, 0)
    with pytest.raises(BrokenInvariantError, match="one holds 1 bytes"):
        left.finished()
    end.owner.budget.note("somebody", 0, 0)
    pair.one.core.directory.start_lookup()
    with pytest.raises(BrokenInvariantError, match="still seeks"):
        left.finished()
    pair.one.core.directory.stop_lookup()
    assert pair.world.channels.of(pair.two).tcp_port is not None
    port = pair.world.channels.of(pair.two).tcp_port or 0
    pair.world.channels.tcp.dial(0, 1, port, lambda socket, why: None)
    with pytest.raises(BrokenInvariantError, match="1 sockets are held"):
        left.finished()


def test_messages_that_do_not_arrive_are_noticed() -> None:
    arrives = EverythingArrives()
    pair = Pair(arrives, habits=Habits(take_s=inf))
    pair.connect(SENDS)
    arrives.arrives_by = pair.world.clock.now
    with pytest.raises(BrokenInvariantError, match="0 of 10 taken"):
        pair.world.run_for(1.0)


# --- Calls ------------------------------------------------------------------------------------


def test_a_call_that_ends_late_is_noticed() -> None:
    pair = Pair(AttemptsEndInTime())
    call = pair.world.channels.connect(pair.one, "nobody", timeout_s=0.5)
    call.timeout_s = 0.1
    with pytest.raises(BrokenInvariantError, match="goes on 0.1"):
        pair.world.run_for(1.0)
    with pytest.raises(BrokenInvariantError, match="ended 0.5"):
        pair.world.run_for(1.0)


REASONS = ["unbound", "taken", "busy", "ambiguous", "unknown", "gone"]


@pytest.mark.parametrize("reason", REASONS)
def test_a_refusal_that_is_not_true_is_noticed(reason: str) -> None:
    checker = RefusalsAreTrue(is_lossless=True)
    call = Pair(checker).call()
    call.endpoint, call.error = None, ChannelRefusedError("two", "door", reason)
    with pytest.raises(BrokenInvariantError, match=f"is told {reason}"):
        checker.attempt_changed(call)


def test_a_timeout_on_a_whole_network_is_noticed() -> None:
    checker = RefusalsAreTrue(is_lossless=True)
    call = Pair(checker).call()
    call.endpoint, call.error = None, ChannelTimeoutError("two", "door", "two did not answer", 5.0)
    with pytest.raises(BrokenInvariantError, match="is told timeout"):
        checker.attempt_changed(call)


def test_a_refusal_by_a_node_that_lies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(RefusalsAreTrue(is_lossless=True))
    ports = pair.world.channels.of(pair.two).ports
    monkeypatch.setattr(ports, "judge", lambda hello: Refusal(pair.two.node_id, "two", "unbound"))
    with pytest.raises(BrokenInvariantError, match="is told unbound"):
        pair.call()


@pytest.mark.parametrize("retry", [False, True])
def test_refusals_that_are_true_are_none_of_its_business(retry: bool) -> None:
    pair = Pair(RefusalsAreTrue(is_lossless=True), exclusive=True)
    pair.connect()
    assert str(getattr(pair.call(retry=retry).error, "reason", "")) == "taken"
    assert str(getattr(pair.call(port="x", retry=retry).error, "reason", "")) == "unbound"
    pair.world.crash(pair.two)
    pair.world.run_for(1.0)
    call = pair.call(retry=retry)
    pair.world.run_for(2.0)
    assert str(getattr(call.error, "reason", "")) == "gone"
    nobody = pair.world.channels.connect(pair.one, "nobody", retry=retry)
    pair.world.run_for(1.0)
    assert str(getattr(nobody.error, "reason", "")) == "unknown"
