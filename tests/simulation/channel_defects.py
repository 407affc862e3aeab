"""Deliberate defects of channels, each with the promise that it breaks; as in defects.py:

    AttemptsEndInTime             dialing_has_no_deadline, retries_outlive_the_deadline
    BoundsAreKept                 channels_are_not_counted, full_inboxes_are_read_on,
                                  memory_of_all_channels_is_unbounded, output_is_unbounded
    ClosesAreTrue                 closes_are_confirmed_by_the_closer, closes_come_out_of_nothing,
                                  closes_overtake_messages, ends_of_connections_are_taken_for_closes
    EverythingArrives             taken_messages_stay_counted, written_bytes_stay_counted
    ExclusivePortsHaveOneChannel  exclusive_ports_are_shared
    LossesAreNoticed              silence_is_not_noticed, speaking_is_taken_for_hearing
    MessagesAreInOrder            a_full_inbox_drops_messages, bodies_in_pieces_lose_their_end,
                                  messages_are_taken_for_too_large, messages_are_taken_in_reverse,
                                  messages_are_taken_twice
    NothingIsLeft                 closed_channels_never_end, ended_channels_stay_counted,
                                  lookups_never_end, memory_of_ended_channels_stays_counted
    RefusalsAreTrue               bound_ports_refuse_as_unbound, every_port_is_exclusive,
                                  exclusive_ports_stay_taken, hellos_are_not_answered,
                                  names_are_not_found, nobody_says_where_it_is,
                                  nobody_waits_for_answers, nodes_that_ended_are_still_here,
                                  old_news_prove_that_a_port_is_unbound, ports_refuse_as_busy,
                                  welcomes_are_not_sent
    SilenceIsTrue                 a_pause_counts_as_silence, channel_beats_are_never_sent,
                                  closes_are_never_confirmed, slow_readers_are_taken_for_dead

Some damage no history shows: channels that wait for memory and are never told that there is room
(their next timer reads on), ends that stay paused for ever (few are paused, and cut off later),
an address that is old and taken for fresh. tests/core/channel notices it.
"""

from __future__ import annotations

import math
from typing import Any

from pytest import MonkeyPatch

from jsonbus.core.channel import connecting, end, wire
from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.connecting import Attempt
from jsonbus.core.channel.end import CLOSING, OPEN, ChannelEnd
from jsonbus.core.channel.ports import Ports
from jsonbus.core.channel.wire import FrameItem, FrameReader, Hello, Refusal
from jsonbus.core.membership.directory import Directory, Place
from jsonbus.sim.channels.checkers import (
    AttemptsEndInTime,
    BoundsAreKept,
    ClosesAreTrue,
    EverythingArrives,
    ExclusivePortsHaveOneChannel,
    LossesAreNoticed,
    MessagesAreInOrder,
    NothingIsLeft,
    RefusalsAreTrue,
    SilenceIsTrue,
)
from tests.simulation.damage import Defects, around, omit

DEFECTS = Defects(has_channels=True)
breaks = DEFECTS.breaks


# --- Messages and closes -------------------------------------------------------------------------


@breaks(MessagesAreInOrder, 0, "basic")
def messages_are_taken_twice(patch: MonkeyPatch) -> None:
    def take(real: Any, self: Any) -> FrameItem | None:
        again = self.inbox[0]
        item: FrameItem | None = real(self)
        if self.received % 5 == 1:
            self.inbox.appendleft(again)
            self.inbox_bytes += len(again[1]) + end.MESSAGE_OVERHEAD_BYTES
        return item

    around(patch, ChannelEnd, "take", take)


@breaks(MessagesAreInOrder, 0, "basic")
def messages_are_taken_in_reverse(patch: MonkeyPatch) -> None:
    def take(real: Any, self: Any) -> FrameItem | None:
        self.inbox.reverse()
        item: FrameItem | None = real(self)
        self.inbox.reverse()
        return item

    around(patch, ChannelEnd, "take", take)


@breaks(MessagesAreInOrder, 2, "master")
def a_full_inbox_drops_messages(patch: MonkeyPatch) -> None:
    def receive(real: Any, self: Any, kind: int, body: bytes) -> None:
        if len(self.inbox) < 10:
            real(self, kind, body)

    around(patch, ChannelEnd, "_receive_message", receive)


@breaks(MessagesAreInOrder, 0, "basic")
def bodies_in_pieces_lose_their_end(patch: MonkeyPatch) -> None:
    def end_body(real: Any, self: Any, body: bytes) -> FrameItem:
        kind, whole = real(self, body)
        return kind, whole[:-1] if kind == wire.BYTES else whole

    around(patch, FrameReader, "_end_body", end_body)


@breaks(MessagesAreInOrder, 0, "basic")
def messages_are_taken_for_too_large(patch: MonkeyPatch) -> None:
    def open_(real: Any, self: Any, *welcome: Any) -> None:
        real(self, *welcome)
        self._reader.body_bytes_max = 1000

    around(patch, ChannelEnd, "_open", open_)


@breaks(ClosesAreTrue, 0, "basic")
def closes_are_confirmed_by_the_closer(patch: MonkeyPatch) -> None:
    def close(real: Any, self: Any, now: float) -> None:
        real(self, now)
        self.is_confirmed = True

    around(patch, ChannelEnd, "close", close)


@breaks(ClosesAreTrue, 0, "basic")
def closes_overtake_messages(patch: MonkeyPatch) -> None:
    def close(real: Any, self: Any, now: float) -> None:
        if self.state == OPEN:
            self._drop_output()
        real(self, now)

    around(patch, ChannelEnd, "close", close)


@breaks(ClosesAreTrue, 0, "basic")
def ends_of_connections_are_taken_for_closes(patch: MonkeyPatch) -> None:
    def receive_end(real: Any, self: Any, now: float) -> None:
        if self.state == OPEN:
            self._receive_close()
        real(self, now)

    around(patch, ChannelEnd, "receive_end", receive_end)


@breaks(ClosesAreTrue, 0, "basic")
def closes_come_out_of_nothing(patch: MonkeyPatch) -> None:
    def receive(real: Any, self: Any, kind: int, body: bytes) -> None:
        if kind == wire.BYTES and self.received == 50:
            self._receive_close()
        real(self, kind, body)

    around(patch, ChannelEnd, "_receive_message", receive)


# --- Bounds --------------------------------------------------------------------------------------


@breaks(BoundsAreKept, 0, "basic")
def full_inboxes_are_read_on(patch: MonkeyPatch) -> None:
    patch.setattr(end, "INBOX_BYTES_MAX", math.inf)


@breaks(BoundsAreKept, 0, "basic")
def output_is_unbounded(patch: MonkeyPatch) -> None:
    patch.setattr(ChannelEnd, "has_room", True)


@breaks(BoundsAreKept, 0, "mixed")
def memory_of_all_channels_is_unbounded(patch: MonkeyPatch) -> None:
    patch.setattr(Budget, "may_read", lambda self, channel: True)


@breaks(BoundsAreKept, 1, "basic")
def channels_are_not_counted(patch: MonkeyPatch) -> None:
    def opened(real: Any, self: Any, port: str) -> None:
        real(self, port)
        self._channels_max += 1

    around(patch, Ports, "opened", opened)


@breaks(ExclusivePortsHaveOneChannel, 0, "basic")
def exclusive_ports_are_shared(patch: MonkeyPatch) -> None:
    def bind(real: Any, self: Any, *binding: Any, exclusive: bool) -> None:
        real(self, *binding, exclusive=False)

    around(patch, Ports, "bind", bind)


# --- Silence -------------------------------------------------------------------------------------


@breaks(SilenceIsTrue, 0, "basic")
def channel_beats_are_never_sent(patch: MonkeyPatch) -> None:
    patch.setattr(ChannelEnd, "_beat_at", lambda self: math.inf)


@breaks(SilenceIsTrue, 5, "master")
def slow_readers_are_taken_for_dead(patch: MonkeyPatch) -> None:
    omit(patch, ChannelEnd, "pause")


@breaks(SilenceIsTrue, 5, "master")
def a_pause_counts_as_silence(patch: MonkeyPatch) -> None:
    def resume(self: Any, now: float) -> None:
        self.is_paused = False

    patch.setattr(ChannelEnd, "resume", resume)


@breaks(SilenceIsTrue, 0, "basic")
def closes_are_never_confirmed(patch: MonkeyPatch) -> None:
    def put(real: Any, self: Any, frame: bytes) -> None:
        if frame != wire.encode_frame(wire.END):
            real(self, frame)

    around(patch, ChannelEnd, "_put", put)


@breaks(LossesAreNoticed, 10, "basic")
def silence_is_not_noticed(patch: MonkeyPatch) -> None:
    patch.setattr(ChannelEnd, "silent_at", lambda self: math.inf)


@breaks(LossesAreNoticed, 10, "basic")
def speaking_is_taken_for_hearing(patch: MonkeyPatch) -> None:
    def written(real: Any, self: Any, count: int, now: float) -> None:
        real(self, count, now)
        self.liveness.hear(now, 0)

    around(patch, ChannelEnd, "written", written)


# --- The end -------------------------------------------------------------------------------------


@breaks(EverythingArrives, 1, "master")
def taken_messages_stay_counted(patch: MonkeyPatch) -> None:
    def take(self: Any) -> FrameItem | None:
        return self.inbox.popleft() if self.inbox else None

    patch.setattr(ChannelEnd, "take", take)


@breaks(EverythingArrives, 1, "master")
def written_bytes_stay_counted(patch: MonkeyPatch) -> None:
    def written(real: Any, self: Any, count: int, now: float) -> None:
        if count == self.output_bytes:
            real(self, count, now)
        else:
            real(self, count, now)
            self.output_bytes += count

    around(patch, ChannelEnd, "written", written)


@breaks(NothingIsLeft, 0, "basic")
def closed_channels_never_end(patch: MonkeyPatch) -> None:
    def silent_at(real: Any, self: Any) -> float:
        return math.inf if self.state == CLOSING else float(real(self))

    omit(patch, ChannelEnd, "_settle")
    around(patch, ChannelEnd, "silent_at", silent_at)


@breaks(NothingIsLeft, 1, "master")
def memory_of_ended_channels_stays_counted(patch: MonkeyPatch) -> None:
    def note(real: Any, self: Any, channel: Any, complete: int, partial: int) -> bool:
        return bool(real(self, channel, complete, partial or self._held.get(channel, (0, 0))[1]))

    around(patch, Budget, "note", note)


@breaks(NothingIsLeft, 0, "basic")
def ended_channels_stay_counted(patch: MonkeyPatch) -> None:
    def closed(real: Any, self: Any, port: str) -> None:
        real(self, port)
        self._channels += 1

    around(patch, Ports, "closed", closed)


@breaks(NothingIsLeft, 0, "basic")
def lookups_never_end(patch: MonkeyPatch) -> None:
    omit(patch, Directory, "stop_lookup")


# --- Attempts ------------------------------------------------------------------------------------


@breaks(AttemptsEndInTime, 0, "basic")
def dialing_has_no_deadline(patch: MonkeyPatch) -> None:
    def timer_at(real: Any, self: Any) -> float:
        return math.inf if self.state == connecting.DIALING else float(real(self))

    around(patch, Attempt, "timer_at", timer_at)


@breaks(AttemptsEndInTime, 0, "basic")
def retries_outlive_the_deadline(patch: MonkeyPatch) -> None:
    def refuse(real: Any, self: Any, *refusal: Any) -> None:
        real(self, *refusal)
        if self.state == connecting.RESTING:
            self._deadline = max(self._deadline, self._rests_until)

    around(patch, Attempt, "_refuse", refuse)


def judging(patch: MonkeyPatch, reason: str, port: str = "") -> None:
    """Let ports that are bound refuse for that reason."""

    def judge(real: Any, self: Any, hello: Hello) -> Any:
        verdict = real(self, hello)
        if isinstance(verdict, Refusal) or port and hello.port != port:
            return verdict
        return self._refusal(reason)

    around(patch, Ports, "judge", judge)


@breaks(RefusalsAreTrue, 0, "basic")
def bound_ports_refuse_as_unbound(patch: MonkeyPatch) -> None:
    judging(patch, "unbound")


@breaks(RefusalsAreTrue, 0, "master")
def old_news_prove_that_a_port_is_unbound(patch: MonkeyPatch) -> None:
    patch.setattr(Attempt, "_has_answered", lambda self, place: True)


@breaks(RefusalsAreTrue, 0, "basic")
def every_port_is_exclusive(patch: MonkeyPatch) -> None:
    def bind(real: Any, self: Any, *binding: Any, exclusive: bool) -> None:
        real(self, *binding, exclusive=True)

    around(patch, Ports, "bind", bind)


@breaks(RefusalsAreTrue, 0, "master")
def exclusive_ports_stay_taken(patch: MonkeyPatch) -> None:
    def closed(self: Any, port: str) -> None:
        self._channels -= 1

    patch.setattr(Ports, "closed", closed)


@breaks(RefusalsAreTrue, 0, "basic")
def ports_refuse_as_busy(patch: MonkeyPatch) -> None:
    judging(patch, "busy")


@breaks(RefusalsAreTrue, 0, "master")
def nodes_that_ended_are_still_here(patch: MonkeyPatch) -> None:
    def find(real: Any, self: Any, who: str, now: float) -> list[Place]:
        return [place._replace(introduced_at=math.inf) for place in real(self, who, now)]

    around(patch, Directory, "find", find)


@breaks(RefusalsAreTrue, 0, "master")
def names_are_not_found(patch: MonkeyPatch) -> None:
    def find(real: Any, self: Any, who: str, now: float) -> list[Place]:
        return [place for place in real(self, who, now) if place.node == who]

    around(patch, Directory, "find", find)


@breaks(RefusalsAreTrue, 0, "master")
def nobody_waits_for_answers(patch: MonkeyPatch) -> None:
    patch.setattr(connecting, "FIND_S", 0.0)


@breaks(RefusalsAreTrue, 0, "master")
def nobody_says_where_it_is(patch: MonkeyPatch) -> None:
    omit(patch, Directory, "receive_where")


@breaks(RefusalsAreTrue, 0, "master")
def hellos_are_not_answered(patch: MonkeyPatch) -> None:
    def receive(real: Any, self: Any, kind: int, body: bytes) -> None:
        if kind != wire.HELLO:
            real(self, kind, body)

    around(patch, ChannelEnd, "_receive_greeting", receive)


@breaks(RefusalsAreTrue, 0, "master")
def welcomes_are_not_sent(patch: MonkeyPatch) -> None:
    def welcome(real: Any, self: Any, *welcome: Any) -> None:
        real(self, *welcome)
        self._drop_output()

    around(patch, ChannelEnd, "welcome", welcome)
