"""The echo between two hosts: one asks, the other answers; both by multicast, both in one size.

    jsonbus doctor             asks: a small echo now and then, and as soon as somebody answers, or
                               says that it would, a series of small and large ones
    jsonbus doctor --listen    answers each echo once, and tells that it is there every second

An answer tells how many echoes its sender has heard so far. Between two echoes that were answered,
this tells whether those without an answer got lost on the way there or their answers on the way
back. And who hears that somebody listens, but gets no answer, knows that nothing arrives there.

Neither class knows a socket or a clock: they are given the time and hand out datagrams.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from dataclasses import dataclass, field

from ..core.wire.encode_messages import Stamp
from ..core.wire.frames import EchoedFrame, EchoFrame
from .echo_wire import encode_echo, encode_echoed

Address = tuple[str, int]

#: The smallest size holds an answer, whose header is the longest. 1,400 bytes is the most that
#: nodes send, 1,472 what Ethernet carries in one piece, and the last the most that UDP carries.
SIZES_BYTES = (200, 1_400, 1_472, 8_000, 32_000, 65_507)
SMALL_BYTES = SIZES_BYTES[0]

#: Small echoes of a series: at 1 % loss, two of three series lose at least one.
SERIES_SMALL = 100
#: Echoes of each larger size: enough that if all get lost, it is not by chance.
SERIES_LARGE = 4
#: Time between two echoes of a series. 100 a second: no burden on any network.
SERIES_STEP_S = 0.01
#: Time between two echoes while there is nobody to measure with, and after the series.
PROBE_STEP_S = 0.2

#: How often a listener announces itself.
TELL_STEP_S = 1.0
#: Askers that a listener counts, and echoes of each: beyond, the oldest asker is forgotten, or the
#: echo not answered. A series has some hundred.
ASKERS_MAX = 64
ECHOES_MAX = 4_096
#: Answers per second: what ten askers need. Nobody may make a listener flood a network.
ANSWERS_PER_S_MAX = 1_000
#: An asker that was silent for this long is done.
DONE_S = 1.5

#: Listeners that an asker measures with.
LISTENERS_MAX = 64

_NODE_ID_BYTES = 10  # as a node has
_NO_MESSAGES = 1  # the number of the first message, which never comes


class _Voice:
    """The headers of a sender that is new and not a node."""

    def __init__(self, wall_offset_s: float, now: float) -> None:
        self.node = base64.b32encode(os.urandom(_NODE_ID_BYTES)).decode("ascii").lower()
        self._stamp = Stamp(self.node, int((now + wall_offset_s) * 1_000))
        self._wall_offset_s = wall_offset_s

    def _head(self, now: float) -> tuple[Stamp, int, int]:
        """Return the first arguments to encode a datagram with."""
        return self._stamp, _NO_MESSAGES, int((now + self._wall_offset_s) * 1_000_000)


@dataclass(slots=True)
class Answer:
    round_trip_s: float
    heard: int


@dataclass(slots=True)
class Listener:
    """Somebody who answers echoes."""

    address: str
    name: str = ""
    answers: dict[int, Answer] = field(default_factory=dict)
    repeated_there: int = 0
    repeated_back: int = 0
    #: The first echo of the series that is measured with it; 0 until there is one.
    series_from: int = 0


class Asker(_Voice):
    """Sends echoes and notes what comes back."""

    def __init__(
        self,
        wall_offset_s: float,
        now: float,
        rate_limit: float | None = None,
        added_bytes: int = 0,
    ) -> None:
        super().__init__(wall_offset_s, now)
        self._added_bytes = added_bytes  # to each datagram on its way, by sealing
        self._rate_limit = rate_limit  # bytes per second
        self.sizes: list[int] = []  # of the echoes sent: echo id - 1 -> bytes
        self.listeners: dict[str, Listener] = {}
        self._sent_at: list[float] = []
        self._series: list[int] | None = None  # sizes still to send; None before it begins
        #: The last echo of the series; later ones only show what became of it.
        self.series_to = 0
        #: When the next echo is due.
        self.due_at = now

    def next_echo(self, now: float) -> bytes:
        """Return the echo that is due."""
        if self._series is None and self.listeners:
            self._begin_series()
        size = self._series.pop() if self._series else SMALL_BYTES
        step_s = SERIES_STEP_S if self._series else PROBE_STEP_S
        self.due_at = now + max(step_s, size / self._rate_limit if self._rate_limit else 0.0)
        self.sizes.append(size)
        self._sent_at.append(now)
        # The sizes that are told are those on the wire.
        size_bytes = max(SMALL_BYTES, size - self._added_bytes)
        return encode_echo(*self._head(now), echo_id=len(self.sizes), size_bytes=size_bytes)

    def receive(self, frame: EchoedFrame, sender: Address, now: float) -> None:
        """Handle an answer, or the announcement of a listener."""
        node = frame.header.node
        listener = self.listeners.get(node)
        if listener is None:
            if len(self.listeners) >= LISTENERS_MAX:
                return
            listener = self.listeners[node] = Listener(sender[0])
            if self._series is None:
                self.due_at = now  # the series need not wait for the next probe
            else:
                listener.series_from = len(self.sizes) + 1
        if frame.to == node:
            listener.name = frame.name
        elif frame.to == self.node and 1 <= frame.echo_id <= len(self.sizes):
            self._note_answer(listener, frame, now)

    def _note_answer(self, listener: Listener, frame: EchoedFrame, now: float) -> None:
        listener.repeated_there = max(listener.repeated_there, frame.repeated)
        if frame.echo_id in listener.answers:
            listener.repeated_back += 1
            return
        round_trip_s = now - self._sent_at[frame.echo_id - 1]
        listener.answers[frame.echo_id] = Answer(round_trip_s, frame.heard)

    def _begin_series(self) -> None:
        first = len(self.sizes) + 1
        for listener in self.listeners.values():
            listener.series_from = first
        # Each large echo goes between two small ones, whose answers show what became of it.
        large = [size for size in SIZES_BYTES[1:] for _ in range(SERIES_LARGE)]
        steps = [size for each in large for size in (each, SMALL_BYTES)]
        series = [SMALL_BYTES] * (SERIES_SMALL - len(large)) + steps
        self._series = series[::-1]
        self.series_to = first + len(series) - 1


@dataclass(slots=True)
class Asking:
    """What a listener knows of one asker."""

    address: str
    heard_at: float
    seen: set[int] = field(default_factory=set)
    repeated: int = 0
    answered: int = 0
    sizes: Counter[int] = field(default_factory=Counter)


class Answerer(_Voice):
    """Answers echoes, within bounds, and counts them."""

    def __init__(self, name: str, wall_offset_s: float, now: float) -> None:
        super().__init__(wall_offset_s, now)
        #: By the asker's id, in the order in which they were first heard.
        self.askers: dict[str, Asking] = {}
        self._name = name
        self._answers_left = float(ANSWERS_PER_S_MAX)
        self._refilled_at = now
        #: When to announce again that somebody listens.
        self.due_at = now

    def tell(self, now: float) -> bytes:
        """Return the announcement that is due."""
        self.due_at = now + TELL_STEP_S
        return encode_echoed(
            *self._head(now), to=self.node, echo_id=0, heard=0, repeated=0, name=self._name
        )

    def receive(
        self, frame: EchoFrame, size_bytes: int, sender: Address, now: float
    ) -> bytes | None:
        """Return the answer to an echo, unless it came before or is too much."""
        asking = self._find(frame.header.node, sender, now)
        asking.heard_at = now
        if frame.echo_id in asking.seen:
            asking.repeated += 1
            return None
        if len(asking.seen) >= ECHOES_MAX or not self._may_answer(now):
            return None
        asking.seen.add(frame.echo_id)
        asking.answered += 1
        asking.sizes[size_bytes] += 1
        return encode_echoed(
            *self._head(now),
            to=frame.header.node,
            echo_id=frame.echo_id,
            heard=len(asking.seen),
            repeated=asking.repeated,
            size_bytes=size_bytes,
        )

    def take_done(self, now: float, *, all_of_them: bool = False) -> list[Asking]:
        """Return askers that have fallen silent, each once."""
        done = [
            node
            for node, asking in self.askers.items()
            if all_of_them or now - asking.heard_at >= DONE_S
        ]
        return [self.askers.pop(node) for node in done]

    def _find(self, node: str, sender: Address, now: float) -> Asking:
        asking = self.askers.get(node)
        if asking is None:
            if len(self.askers) >= ASKERS_MAX:
                del self.askers[next(iter(self.askers))]
            asking = self.askers[node] = Asking(sender[0], now)
            if self._may_answer(now):
                self.due_at = now  # it wants to know the name that goes with the answers
        return asking

    def _may_answer(self, now: float) -> bool:
        earned = (now - self._refilled_at) * ANSWERS_PER_S_MAX
        self._answers_left = min(ANSWERS_PER_S_MAX, self._answers_left + earned)
        self._refilled_at = now
        if self._answers_left < 1:
            return False
        self._answers_left -= 1
        return True
