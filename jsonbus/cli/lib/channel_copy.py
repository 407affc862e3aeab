"""Copies standard input to a channel, and the channel to standard output, both at once.

**How it ends.** A side whose input has ended sends an empty message of bytes, END; no line of JSON
and no piece of a file is empty. A side that has sent and received END closes the channel. A side
that fails or is interrupted aborts the channel instead. So if the other side closes after its END,
it got everything. A side that refused lines of its input says so before END, by the object
{"jsonbus.incomplete": NUMBER}: what it did send arrives, and yet both commands fail.

**Threads.** The main thread copies to standard output, because Ctrl-C interrupts it even while it
waits for a full pipe. Standard input has its own thread, which nobody waits for: it may be blocked
in a read that never returns.

**Bounds.** Each direction has one message in hand. The rest stays in the channel, which is bounded
and slows the other side down, or in standard input.
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

#: Sent by a side when its input has ended.
END = b""

#: The only key of the object before END by which a side says how many lines it could not send.
#: Not bytes: with --raw, any bytes may be a piece of a file.
INCOMPLETE_KEY = "jsonbus.incomplete"

#: A piece of raw bytes: large enough to cost little, and the usual capacity of a pipe.
CHUNK_BYTES = 64 << 10

#: The longest line: the largest message of a channel.
LINE_BYTES_MAX = 64 << 20

#: How long to wait for the end of standard input if the other side ended first.
END_S = 0.2


class ChannelFailed(click.ClickException):
    """Copying ended before everything had arrived."""


class Meter:
    """Counts the bytes that were copied."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0

    def add_sent(self, count: int) -> None:
        self.sent += count

    def add_received(self, count: int) -> None:
        self.received += count

    def stop(self) -> None:
        """Copying has ended."""


class Input:
    """Standard input as messages: values, or with `is_raw` pieces of at most CHUNK_BYTES."""

    def __init__(self, *, is_raw: bool) -> None:
        #: A person types it, and would have to end it by hand.
        self.is_terminal = sys.stdin.isatty()
        self._stream = _open_stdin()
        self._lines = (
            None
            if is_raw
            else ValueReader(
                self._stream,
                done="sent",
                remedy="--raw sends bytes as they are",
                line_bytes_max=LINE_BYTES_MAX,
            )
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._chunks() if self._lines is None else self._lines)

    @property
    def refused(self) -> int:
        """Number of lines that were not sent."""
        return 0 if self._lines is None else self._lines.refused

    def refuse(self, reason: str) -> None:
        """Report that the last message cannot be sent."""
        assert self._lines is not None  # raw bytes can always be sent
        self._lines.refuse(reason)

    @property
    def size_bytes(self) -> int | None:
        """Number of bytes left to read, if known."""
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
    """An input that has already ended; standard input is not touched."""

    def __init__(self) -> None:
        super().__init__(is_raw=True)
        self.is_terminal = False

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Sender:
    """Copies an input to a channel in its own thread."""

    def __init__(
        self, channel: jsonbus.Channel, source: Input, meter: Meter, ended: Callable[[], None]
    ) -> None:
        #: Number of messages sent, without END.
        self.count = 0
        #: Everything has been read.
        self.is_at_end = False
        #: END was sent.
        self.has_sent_end = False
        #: Why it ended early, if the channel is not the cause.
        self.failure: Exception | None = None
        self._channel = channel
        self._source = source
        self._meter = meter
        self._ended = ended
        self._lock = threading.Lock()  # nothing is sent after END
        self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def end(self) -> None:
        """Send END, even if more input could come."""
        with self._lock:
            if not self.has_sent_end:
                if self._source.refused:
                    self._channel.send({INCOMPLETE_KEY: self._source.refused})
                self._channel.send(END)
                self.has_sent_end = True

    def _run(self) -> None:
        try:
            self._copy(self._source)
            self.is_at_end = True
            self.end()
        except ChannelClosedError:
            return  # the main thread notices it, too
        except (click.ClickException, JsonBusError) as error:
            self.failure = error
            self._channel.abort()
            return
        self._ended()

    def _copy(self, messages: Iterable[Any]) -> None:
        for message in messages:
            try:
                with self._lock:
                    if self.has_sent_end:
                        return
                    self._channel.send(message)
            except (PayloadError, MessageTooLargeError) as error:
                self._source.refuse(str(error))  # the next line may be right
                continue
            self.count += 1
            if isinstance(message, bytes):
                self._meter.add_sent(len(message))


class Copier:
    """Copies both ways until the inputs of both sides have ended.

    `closing` is called before the channel is closed.
    """

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
        self._is_incomplete = False
        self._sender = Sender(channel, source, meter, self._input_ended)

    def run(self) -> None:
        """Copy. Raises ChannelFailed or ChannelClosedError unless everything arrived, both ways.

        Lines that were refused here are in `refused` of the input.
        """
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
        if self._is_incomplete:
            raise ChannelFailed(f"{self._name} could not send all of its input: see there")

    def _input_ended(self) -> None:
        """Close the channel if the other input has ended, too. Runs in the sender's thread."""
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
                if self._sender.has_sent_end:
                    self._close()
                    return
            else:
                self._write(message)

    def _write(self, message: Any) -> None:
        if self._has_other_ended:
            raise ChannelFailed(f"{self._name} sent something after its empty last message")
        if isinstance(message, bytes) is not self._is_raw:
            raise ChannelFailed(
                f"{self._name} sent JSON, not bytes: leave out --raw"
                if self._is_raw
                else f"{self._name} sent bytes, not JSON: use --raw"
            )
        if self._is_raw:
            self._output.write_bytes(message)
            self._meter.add_received(len(message))
        elif isinstance(message, dict) and message.keys() == {INCOMPLETE_KEY}:
            self._is_incomplete = True
        else:
            text = to_json(message)
            self._output.write_line(printable(text) if self._output.is_terminal else text)
        if not self._channel.pending:
            self._output.flush()

    def _is_useless(self) -> bool:
        """Return True if all that is left to do is to write what nobody reads."""
        return (
            self._sender.has_sent_end or self._source.is_terminal
        ) and not self._output.has_reader()

    def _judge(self, error: ChannelClosedError) -> None:
        """Raise an error unless the channel was closed after everything had arrived."""
        sender = self._sender
        if sender.failure is not None:
            raise sender.failure
        if error.is_lost:
            raise error
        if not error.is_closed_here:  # else the sender's thread closed it at the end
            if not self._source.is_terminal:
                sender.wait(END_S)
                if not sender.is_at_end:
                    raise ChannelFailed(
                        f"{self._name} closed the channel before the input had ended"
                    )
            if sender.count and not self._has_other_ended:
                raise ChannelFailed(
                    f"{self._name} closed the channel without confirming that it got everything"
                )
        self._close()

    def _close(self) -> None:
        """Close the channel and wait until everything has arrived, however long that takes."""
        self._closing()
        while not self._channel.close(timeout=signals.CHECK_S):
            signals.check()
            if self._channel.state == "closed":
                self._find_out_why()
                return

    def _find_out_why(self) -> None:
        """Raise the reason why it is not confirmed that everything arrived, if there is one."""
        try:
            self._channel.receive(timeout=0.0)
        except ChannelClosedError as error:
            if error.is_lost:
                raise
            if error.is_closed_here:
                raise ChannelFailed(
                    f"the connection was lost before {self._name} confirmed that everything arrived"
                ) from None
            # Else the other side closed first, after its END: it has everything.

    def _end_without_reader(self) -> None:
        """Nobody reads standard output any more; see that what was sent arrives."""
        if not self._sender.count:
            self._channel.abort()
            return
        if not (self._sender.is_at_end or self._source.is_terminal):
            raise ChannelFailed("nobody reads standard output, and the input had not ended")
        self._sender.end()
        self._close()


def _open_stdin() -> IO[bytes]:
    """Open standard input with its own buffer.

    A thread that waits in a read holds the lock of the buffer. The interpreter needs the lock of
    sys.stdin at its end, and not getting it would be a fatal error.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:
        return sys.stdin.buffer  # it is something in memory
