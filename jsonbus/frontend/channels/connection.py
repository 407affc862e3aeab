"""One connection and the end of a channel on it: bytes to and fro, without waiting."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from jsonbus.core.channel.end import OPEN, ChannelEnd
from jsonbus.core.channel.limits import BEAT_S, SILENCE_S
from jsonbus.errors import TransportError
from jsonbus.transport.tcp import TcpConnection

if TYPE_CHECKING:
    from jsonbus.frontend.channels.channel import BaseChannel
    from jsonbus.frontend.channels.connector import Call

#: A line that nobody has read for so long goes back to the operator, who would notice its end.
LENT_S = 0.05

#: And one with so much of a message that is not complete; who sends such messages sends more of
#: them, so it is not lent again at once.
LENT_BYTES_MAX = 256 << 10
LENT_PAUSE_S = 1.0

#: Pieces given to the kernel in one call: two for each large message, and far below its limit.
PIECES_MAX = 64


class Line:
    """`lock` guards `end`. With threads it is the channel's; in an event loop nobody contends."""

    __slots__ = (
        "call",
        "channel",
        "end",
        "interest",
        "is_answer",
        "is_dialing",
        "is_dropped",
        "is_lent",
        "is_requested",
        "is_wanted",
        "lent_from",
        "lock",
        "polled_at",
        "pollers",
        "tcp",
        "timer_at",
    )

    def __init__(self, tcp: TcpConnection, end: ChannelEnd, lock: threading.Lock) -> None:
        self.tcp = tcp
        self.end = end
        self.lock = lock
        #: Whose it is; None until the caller has said what it wants.
        self.channel: BaseChannel | None = None
        #: What it was dialed for, until it is a channel.
        self.call: Call | None = None
        self.is_answer = False  # somebody called, and was welcomed
        self.is_dialing = False
        self.is_dropped = False  # its connection is closed, and what it did is counted
        self.is_requested = False  # somebody has asked the operator to look at it
        # Under the lock. A line that is lent is read by who waits for messages (sync/direct.py).
        self.is_lent = False
        self.is_wanted = False  # somebody would read it
        self.lent_from = 0.0  # not before that
        self.pollers = 0  # threads that wait for it by themselves
        self.polled_at = 0.0  # when one of them last did
        self.interest = (False, False)  # in reading, in writing: what is watched for
        self.timer_at = float("inf")  # what is planned

    def read(self, buffer: memoryview) -> None:
        """Take what the connection has, at most a buffer full. Not under the lock."""
        try:
            count = self.tcp.read_into(buffer)
        except TransportError as error:
            with self.lock:
                self.end.fail(str(error))
            return
        if count is None:
            return
        with self.lock:
            if count:
                self.end.receive(buffer[:count], monotonic())
            else:
                self.end.receive_end(monotonic())

    def read_lent(self, buffer: memoryview) -> None:
        """`read` for a receiver. Under the lock, which keeps the operator from taking it back."""
        end = self.end
        try:
            count = self.tcp.read_into(buffer)
        except TransportError as error:
            end.fail(str(error))
            return
        if count:
            end.receive(buffer[:count], monotonic())
        elif count == 0:
            end.receive_end(monotonic())

    def reconsider_lending(self, now: float) -> None:
        """Lend it to who wants to read it, or take it back. Under the lock; by the operator."""
        if self.end.partial_bytes >= LENT_BYTES_MAX:
            self.lent_from = now + LENT_PAUSE_S
        if self.is_lent:
            is_in_use = self.pollers > 0 or now < self.polled_at + LENT_S
            self.is_lent = self.may_be_lent and is_in_use
        elif self.is_wanted and self.may_be_lent and now >= self.lent_from:
            self.is_lent, self.polled_at = True, now
        self.is_wanted = False

    @property
    def may_be_lent(self) -> bool:
        """Not while a large message comes: it takes memory that others may need."""
        end, channel = self.end, self.channel
        if end.state != OPEN or end.partial_bytes >= LENT_BYTES_MAX:
            return False
        return channel is not None and not channel.has_handlers

    def next_timer_at(self, now: float) -> float:
        """When to call `handle_timer`. Under the lock, or for the operator."""
        at = self.end.timer_at()
        if self.is_lent:
            return min(at, now + LENT_S)
        return min(at, now + BEAT_S) if self._is_deaf else at

    def handle_timer(self, now: float) -> None:
        """What has its time. Under the lock."""
        end = self.end
        # An end that is not read does not hear whether the other is there. Its machine tells: it
        # has to confirm our beats, if nothing else.
        if self._is_deaf and self.tcp.unanswered_s() >= SILENCE_S:
            end.fail(f"the machine of {end.name} did not answer for {SILENCE_S:g} s")
        end.handle_timer(now)

    @property
    def _is_deaf(self) -> bool:
        return self.end.is_paused and self.end.has_opened

    def flush(self) -> None:
        """Write what the kernel takes. Under the lock."""
        end = self.end
        while end.output_bytes and not self.is_dialing:
            before, pieces = end.output_bytes, end.output(PIECES_MAX)
            try:
                count = self.tcp.write(pieces)
            except TransportError as error:
                end.write_failed(str(error))
                return
            end.written(count, monotonic())
            if not count or (count < before and len(pieces) < PIECES_MAX):
                return  # the kernel took less than it was offered
