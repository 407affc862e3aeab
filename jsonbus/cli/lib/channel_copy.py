"""Standard input to a channel, and the channel to standard output, both at once.

**How it ends.** A side whose input has ended says so by an empty message of bytes, END; no line of
JSON and no piece of a file is that. A side that has said it and heard it closes the channel. Who
fails, or is interrupted, does not close the channel but gives it up: so a close by the other side,
behind its END, means that it got everything.

**Threads.** The main thread copies to standard output: it is the one that Ctrl-C interrupts, also
while it waits for a full pipe. Standard input has a thread of its own, which nobody waits for: it
may sit in a read that never returns.

**Bounds.** Each direction has one message in hand. What is not taken stays in the channel, which is
bounded and holds up the other side; what it does not take stays in standard input.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import click

import jsonbus
from jsonbus.errors import (
    ChannelClosedError,
    ChannelTimeoutError,
    JsonBusError,
    MessageTooLargeError,
    PayloadError,
)

from .. import signals
from .input_lines import ValueReader
from .output import Output
from .values import printable, to_json

#: What a side sends when its input has ended.
END = b""

#: A piece of raw bytes: large enough to cost next to nothing, and what a pipe usually holds.
CHUNK_BYTES = 64 << 10

#: A line; a message of a channel has at most as much.
LINE_BYTES_MAX = 64 << 20

#: How long standard input may take to tell that it is at its end, if the other side is quicker.
END_S = 0.2


class ChannelFailed(click.ClickException):
    """The two sides did not get to the end."""


class Meter:
    """What was copied, in bytes."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0

    def add_sent(self, count: int) -> None:
        self.sent += count

    def add_received(self, count: int) -> None:
        self.received += count

    def stop(self) -> None:
        """No more is copied."""


class Input:
    """Standard input as messages: values, or with is_raw pieces of at most CHUNK_BYTES."""

    def __init__(self, *, is_raw: bool) -> None:
        #: Whether somebody types it. Who does would have to end it by hand.
        self.is_terminal = sys.stdin.isatty()
        self._stream = _open_stdin()
        self._lines = (
            None
            if is_raw
            else ValueReader(self._stream, done="sent", line_bytes_max=LINE_BYTES_MAX)
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._chunks() if self._lines is None else self._lines)

    @property
    def refused(self) -> int:
        """Lines that were not sent."""
        return 0 if self._lines is None else self._lines.refused

    def refuse(self, reason: str) -> None:
        """What was given out last cannot be sent."""
        assert self._lines is not None  # any piece can be
        self._lines.refuse(reason)

    @property
    def size_bytes(self) -> int | None:
        """How much there is to read, where that is known."""
        try:
            status = os.fstat(self._stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            return max(0, status.st_size - os.lseek(self._stream.fileno(), 0, os.SEEK_CUR))
        except OSError:
            return None

    def _chunks(self) -> Iterator[bytes]:
        while True:
            try:
                chunk: bytes = self._stream.read1(CHUNK_BYTES)  # type: ignore[attr-defined]
            except OSError as error:
                raise click.ClickException(
                    f"cannot read standard input: {error.strerror}"
                ) from error
            if not chunk:
                return
            yield chunk


class NoInput(Input):
    """An input that has ended already; standard input is not touched."""

    def __init__(self) -> None:
        super().__init__(is_raw=True)
        self.is_terminal = False

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Sender:
    """Copies an input to a channel, in a thread of its own."""

    def __init__(
        self, channel: jsonbus.Channel, source: Input, meter: Meter, ended: Callable[[], None]
    ) -> None:
        #: How many messages were sent, END left out.
        self.count = 0
        #: Whether there is nothing left to be read.
        self.is_at_end = False
        #: Whether the other side was told so.
        self.has_told = False
        #: Why it ended early, if the channel is not the cause.
        self.failure: Exception | None = None
        self._channel = channel
        self._source = source
        self._meter = meter
        self._ended = ended
        self._lock = threading.Lock()  # nothing is sent behind END
        self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def end(self) -> None:
        """Whatever may still come of the input: tell the other side that it has ended."""
        with self._lock:
            if not self.has_told:
                self._channel.send(END)
                self.has_told = True

    def _run(self) -> None:
        try:
            self._copy(self._source)
            self.is_at_end = True
            self.end()
        except ChannelClosedError:
            return  # the main thread sees that itself
        except (click.ClickException, JsonBusError) as error:
            self.failure = error
            self._channel.abort()
            return
        self._ended()

    def _copy(self, messages: Iterable[Any]) -> None:
        for message in messages:
            try:
                with self._lock:
                    if self.has_told:
                        return
                    self._channel.send(message)
            except (PayloadError, MessageTooLargeError) as error:
                self._source.refuse(str(error))  # the next line may be right
                continue
            self.count += 1
            if isinstance(message, bytes):
                self._meter.add_sent(len(message))


class Copier:
    """Copies both ways until both sides' inputs have ended; `closing` is called before the end."""

    def __init__(
        self,
        channel: jsonbus.Channel,
        source: Input,
        output: Output,
        meter: Meter,
        *,
        is_raw: bool,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self._channel = channel
        self._name = printable(channel.name)
        self._source = source
        self._output = output
        self._meter = meter
        self._is_raw = is_raw
        self._closing = closing
        self._has_other_ended = False
        self._sender = Sender(channel, source, meter, self._input_ended)

    def run(self) -> None:
        """Raises ChannelFailed or ChannelClosedError unless everything arrived, both ways."""
        try:
            self._sender.start()
            try:
                self._copy_to_output()
            except BrokenPipeError:
                self._end_without_reader()
            except ChannelClosedError as error:
                self._judge(error)
        except BaseException as error:
            self._channel.abort()
            if isinstance(error, KeyboardInterrupt):
                self._output.let_go()
            raise

    def _input_ended(self) -> None:
        """By the sender's thread: if the other input has ended, too, the main thread only waits."""
        if self._has_other_ended:
            self._channel.close(timeout=0.0)

    def _copy_to_output(self) -> None:
        while True:
            try:
                message = self._channel.receive(timeout=signals.CHECK_S)
            except ChannelTimeoutError:
                signals.check()
                if self._is_useless():
                    raise BrokenPipeError from None
                continue
            if isinstance(message, bytes) and message == END:
                self._has_other_ended = True
                if self._source.is_terminal:
                    self._sender.end()
                if self._sender.has_told:
                    self._close()
                    return
            else:
                self._write(message)

    def _write(self, message: Any) -> None:
        if self._has_other_ended:
            raise ChannelFailed(f"{self._name} sent something behind its empty last message")
        if isinstance(message, bytes) is not self._is_raw:
            raise ChannelFailed(
                f"{self._name} sent JSON, not bytes: leave out --raw"
                if self._is_raw
                else f"{self._name} sent bytes, not JSON: use --raw"
            )
        if self._is_raw:
            self._output.write_bytes(message)
            self._meter.add_received(len(message))
        else:
            text = to_json(message)
            self._output.write_line(printable(text) if self._output.is_terminal else text)
        if not self._channel.pending:
            self._output.flush()

    def _is_useless(self) -> bool:
        """Whether all that is left to do is to write what nobody reads."""
        return (self._sender.has_told or self._source.is_terminal) and not self._output.has_reader()

    def _judge(self, error: ChannelClosedError) -> None:
        """The channel is closed: is that all right?"""
        sender = self._sender
        if sender.failure is not None:
            raise sender.failure
        if error.is_lost:
            raise error
        if not error.is_closed_here:  # the sender's thread does it when all is said
            if not self._source.is_terminal:
                sender.wait(END_S)
                if not sender.is_at_end:
                    raise ChannelFailed(
                        f"{self._name} closed the channel before the input had ended"
                    )
            if sender.count and not self._has_other_ended:
                raise ChannelFailed(
                    f"{self._name} closed the channel, and did not say that it got everything"
                )
        self._close()

    def _close(self) -> None:
        """Both inputs have ended: see that all of this one has arrived, however long that takes."""
        self._closing()
        while not self._channel.close(timeout=signals.CHECK_S):
            signals.check()
            if self._channel.state == "closed":
                self._find_out_why()
                return

    def _find_out_why(self) -> None:
        """It is not confirmed that everything arrived."""
        try:
            self._channel.receive(timeout=0.0)
        except ChannelClosedError as error:
            if error.is_lost:
                raise
            if error.is_closed_here:
                raise ChannelFailed(
                    f"the connection was lost before {self._name} confirmed that everything arrived"
                ) from None
            # Else the other side was first to close, behind its END: it has everything.

    def _end_without_reader(self) -> None:
        """Nobody reads standard output any more; what was sent before still has to arrive."""
        if not self._sender.count:
            self._channel.abort()
            return
        if not (self._sender.is_at_end or self._source.is_terminal):
            raise ChannelFailed("nobody reads standard output, and the input had not ended")
        self._sender.end()
        self._close()


def _open_stdin() -> IO[bytes]:
    """Standard input with a buffer of its own.

    A thread that waits in a read holds the lock of its buffer. That of sys.stdin is wanted by the
    interpreter when it ends, which would be a fatal error.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:
        return sys.stdin.buffer  # it was replaced by something in memory
