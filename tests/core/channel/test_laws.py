"""What holds of two ends whatever happens in whatever order."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from jsonbus.core.channel.limits import BEAT_S, INBOX_BYTES_MAX, OUTPUT_BYTES_MAX, SILENCE_S
from jsonbus.core.channel.wire import BYTES, Refusal
from tests.core.channel.channel_pair import MAX, UNBOUND, ChannelPair
from tests.core.generated import unhurried

whose = st.sampled_from([0, 1])
counts = st.sampled_from([1, 4, 5, 6, 100, 20_000, 1 << 40])


class Conversation(RuleBasedStateMachine):
    """Two ends and their owners, applications that come and go, and a connection that may break."""

    @initialize(refusal=st.sampled_from([None] * 9 + [UNBOUND]), is_open=st.booleans())
    def start(self, refusal: Refusal | None, is_open: bool) -> None:
        self.pair = ChannelPair(refusal=refusal)
        self.sides = self.pair.sides
        self.sent: tuple[list[str], list[str]] = ([], [])
        self.killed: set[int] = set()
        self.taken: tuple[list[str], list[str]] = ([], [])
        if is_open:
            self.pair.move()

    @rule(who=whose, size=st.sampled_from([0, 5, 300, 20_000, MAX]))
    def send(self, who: int, size: int) -> None:
        end = self.sides[who].end
        if end.state == "open" and end.has_room:
            text = f"{len(self.sent[who])}:".ljust(size, "x")
            self.sent[who].append(text)
            self.sides[who].send(text)

    @rule(who=whose, count=counts)
    def write(self, who: int, count: int) -> None:
        side = self.sides[who]
        if side.is_cut:
            return
        if side.other.is_cut and side.end.output_bytes and count % 2:
            side.end.write_failed("broken pipe")
        else:
            side.write(self.pair.now, count)
        self.pair.attend(side)

    @rule(who=whose, count=counts)
    def read(self, who: int, count: int) -> None:
        side = self.sides[who]
        if side.arriving and side.end.wants_input and not side.is_cut:
            side.read(self.pair.now, count)
            self.pair.attend(side)

    @rule(who=whose)
    def hear_of_the_end(self, who: int) -> None:
        self.pair.tell_end(self.sides[who])

    @rule(who=whose, count=st.integers(1, 20))
    def take(self, who: int, count: int) -> None:
        side = self.sides[who]
        for _ in range(count):
            item = side.end.take()
            if item is None:
                break
            assert item[0] == BYTES
            self.taken[who].append(item[1].decode())
        if not side.is_cut:
            self.pair.attend(side)

    @rule()
    def move(self) -> None:
        self.pair.move()

    @rule(seconds=st.sampled_from([0.1, BEAT_S, SILENCE_S - 1]))
    def pass_time(self, seconds: float) -> None:
        """Owners are never late, but the connection may be."""
        self.pair.now += seconds
        for side in self.sides:
            if not side.is_cut:
                while side.end.timer_at() <= self.pair.now:
                    side.end.handle_timer(self.pair.now)
                self.pair.attend(side)

    @rule(who=whose)
    def close(self, who: int) -> None:
        self.sides[who].end.close(self.pair.now)
        self.pair.attend(self.sides[who])

    @rule(who=whose, dice=st.integers(0, 9))
    def kill(self, who: int, dice: int) -> None:
        """Its process is gone: nothing is said or read there any more."""
        if dice == 0 and not self.sides[who].is_cut:
            self.sides[who].cut()
            self.killed.add(who)

    @invariant()
    def nothing_is_lost_in_between_nor_out_of_order(self) -> None:
        for who, taken in enumerate(self.taken):
            assert taken == self.sent[1 - who][: len(taken)]

    @invariant()
    def sums_are_exact(self) -> None:
        for side in self.sides:
            side.check()
            assert side.end.output_bytes <= OUTPUT_BYTES_MAX + MAX + 100
            assert side.end.inbox_bytes < INBOX_BYTES_MAX + (4 << 20)

    @invariant()
    def what_is_confirmed_has_arrived(self) -> None:
        for who, side in enumerate(self.sides):
            if side.end.is_confirmed:
                assert side.other.messages_read == len(self.sent[who])
                assert side.end.unsent == 0

    @invariant()
    def counters_agree(self) -> None:
        for who, side in enumerate(self.sides):
            end = side.end
            assert end.sent == len(self.sent[who]) >= end.unsent
            assert end.skipped == 0
            assert side.messages_read == len(self.taken[who]) + len(end.inbox) + end.discarded
            assert end.received <= side.messages_read <= end.received + end.discarded
            assert side.messages_read + side.other.end.unsent <= side.other.end.sent

    def teardown(self) -> None:
        """Applications that take and close, and owners that do their work: it ends."""
        if not hasattr(self, "pair"):
            return
        pair = self.pair
        for _ in range(100):
            pair.move()
            for who in (0, 1):
                self.take(who, 1000)
        for who in (0, 1):
            if not self.sides[who].is_cut:
                self.close(who)
        pair.move()
        # Whoever is left has only a dead one to wait for.
        pair.run(3 * SILENCE_S)
        for who, side in enumerate(self.sides):
            if who not in self.killed:
                assert side.end.is_over and side.end.timer_at() == math.inf


@pytest.mark.slow
def test_whatever_two_ends_do_messages_stay_in_order_and_both_end() -> None:
    run_state_machine_as_test(
        Conversation, settings=settings(unhurried, max_examples=400, stateful_step_count=60)
    )
