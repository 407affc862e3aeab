"""One TCP connection and this node's end of the channel on it: bytes in and out, no waiting."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from jsonbus.core.channel.end import OPEN, ChannelEnd
from jsonbus.core.channel.limits import ANSWER_S, UNANSWERED_S
from jsonbus.errors import TransportError
from jsonbus.transport.tcp import TcpConnection

if TYPE_CHECKING:
    from jsonbus.frontend.channels.channel import BaseChannel
    from jsonbus.frontend.channels.connector import Call

#: ChannelIO takes back a connection that no receiver polled for this long, to notice its end.
DIRECT_S = 0.05

#: It also takes back a connection with this much of an incomplete message. A node that sends one
#: large message sends more of them, so direct reading pauses for a while.
DIRECT_BYTES_MAX = 256 << 10
DIRECT_PAUSE_S = 1.0

#: Beats are due at multiples of this, so that those of many channels are sent and read together:
#: to wake for each alone costs as much as the beat.
TICK_S = 0.25

#: The interest of a connection that has nothing to write.
READING = (True, False)

#: Pieces given to the kernel in one call: two for each large message, and far below its limit.
PIECES_MAX = 64


def next_tick(at: float) -> float:
    return at + TICK_S - at % TICK_S


@dataclass(slots=True, eq=False)
class Connection:
    """A TCP connection with its channel end.

    `lock` guards `end`. With threads it is the channel's lock; in an event loop nobody contends.
    """

    tcp: TcpConnection
    end: ChannelEnd
    lock: threading.Lock
    #: The channel it carries; None until the other node has said what it wants.
    channel: BaseChannel | None = None
    #: The call of `connect` it was dialed for, until it carries a channel.
    call: Call | None = None
    is_answer: bool = False  # another node connected, and was welcomed
    is_dialing: bool = False
    is_dropped: bool = False  # closed, and its traffic is counted
    is_requested: bool = False  # the manager was asked to look at it
    # Direct reading (sync/direct_receive.py); all under the lock.
    is_read_directly: bool = False  # by threads that wait for messages, not by ChannelIO
    is_direct_read_wanted: bool = False
    direct_from: float = 0.0  # no direct reading before this time
    pollers: int = 0  # threads that poll it now
    polled_at: float = 0.0  # when a thread last finished polling
    interest: tuple[bool, bool] = (False, False)  # in reading, writing: what ChannelIO watches for
    timer_at: float = math.inf  # when the manager looks at it next

    def read(self, buffer: memoryview) -> bool:
        """Read what the connection has, at most a buffer full. Lock not held.

        Returns False if that was only a beat, or nothing: then nothing else has changed.
        """
        try:
            count = self.tcp.read_into(buffer)
        except TransportError as error:
            with self.lock:
                self.end.fail(str(error))
            return True
        if count is None:
            if self.tcp.has_heard_part:
                with self.lock:
                    self.end.liveness.hear(monotonic(), self.end.output_bytes)
            return False
        with self.lock:
            if count:
                return self.end.receive(buffer[:count], monotonic())
            self.end.receive_end(monotonic())
        return True

    def read_directly(self, buffer: memoryview) -> None:
        """Do what `read` does, in a receiver's thread.

        Lock held, which keeps ChannelIO from taking the connection back meanwhile.
        """
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
        elif self.tcp.has_heard_part:
            end.liveness.hear(monotonic(), end.output_bytes)

    def decide_reader(self, now: float) -> None:
        """Let receivers read it directly, or take it back. Lock held; called by ChannelIO."""
        if self.end.partial_bytes >= DIRECT_BYTES_MAX:
            self.direct_from = now + DIRECT_PAUSE_S
        if self.is_read_directly:
            is_in_use = self.pollers > 0 or now < self.polled_at + DIRECT_S
            self.is_read_directly = self.may_be_read_directly and is_in_use
        elif self.is_direct_read_wanted and self.may_be_read_directly and now >= self.direct_from:
            self.is_read_directly, self.polled_at = True, now
        self.is_direct_read_wanted = False

    @property
    def may_be_read_directly(self) -> bool:
        """False while a large message arrives: it takes memory that others may need."""
        end, channel = self.end, self.channel
        if end.state != OPEN or end.partial_bytes >= DIRECT_BYTES_MAX:
            return False
        return channel is not None and not channel.has_handlers

    def next_timer_at(self, now: float) -> float:
        """Return when to call `handle_timer`. Lock held, or called by ChannelIO."""
        at = self.end.timer_at()
        if at != math.inf:
            at = next_tick(at)
        if self.is_read_directly:
            return min(at, now + DIRECT_S)
        return min(at, now + ANSWER_S) if self._is_deaf else at

    def handle_timer(self, now: float) -> None:
        """Do what is due: send a beat, or give the other node up. Lock held."""
        end = self.end
        # An end that is not read cannot hear whether the other node is there. Its kernel shows it:
        # it has to acknowledge our beats, if nothing else.
        if self._is_deaf and self.tcp.unanswered_s() >= UNANSWERED_S:
            end.fail(f"the machine of {end.name} did not answer for {UNANSWERED_S:g} s")
        end.handle_timer(now)

    def beat(self, now: float) -> float | None:
        """Send a beat if one is due. Lock held; a short `handle_timer`.

        Returns when to look again; None if something else is due, or has to be decided.
        """
        end = self.end
        liveness = end.liveness
        if end.state != OPEN or self.interest != READING or end.output_bytes:
            return None
        if liveness.silent_at <= now:
            return None
        if liveness.beat_at <= now:
            end.beat(now)
            self.flush()
            if end.output_bytes:
                return None
        return next_tick(min(liveness.beat_at, liveness.silent_at))

    @property
    def _is_deaf(self) -> bool:
        return self.end.is_paused and self.end.has_opened

    def flush(self) -> None:
        """Write what the kernel takes. Lock held."""
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
