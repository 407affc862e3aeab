"""One connection and the end of a channel on it: bytes to and fro, without waiting."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from jsonbus.core.channel import ChannelEnd
from jsonbus.errors import TransportError
from jsonbus.transport.streams import Stream

if TYPE_CHECKING:
    from jsonbus.frontend.calls import Call
    from jsonbus.frontend.channel import BaseChannel

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
        "is_requested",
        "lock",
        "stream",
        "timer_at",
    )

    def __init__(self, stream: Stream, end: ChannelEnd, lock: threading.Lock) -> None:
        self.stream = stream
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
        self.interest = (False, False)  # in reading, in writing: what is watched for
        self.timer_at = float("inf")  # what is planned

    def read(self, buffer: memoryview) -> None:
        """Take what the connection has, at most a buffer full. Not under the lock."""
        try:
            count = self.stream.read_into(buffer)
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

    def flush(self) -> None:
        """Write what the kernel takes. Under the lock."""
        end = self.end
        while end.output_bytes and not self.is_dialing:
            pieces = end.output(PIECES_MAX)
            try:
                count = self.stream.write(pieces)
            except TransportError as error:
                end.write_failed(str(error))
                return
            end.written(count, monotonic())
            if count < sum([len(piece) for piece in pieces]):
                return
