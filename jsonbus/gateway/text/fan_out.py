"""FanOut: gives each message, as a line, to all clients that want it, in few writes.

A line is made once, and lines that go to the same clients are joined to a chunk that they share.
What is left is a system call for each client and write, of 3 to 5 µs: as much as a message costs
everywhere else. So the number of writes decides what many clients cost, and writes are paced:
after a flush that wrote to n clients there is a pause of n times PAUSE_S_PER_CLIENT, at most
PAUSE_S_MAX. A message that comes later leaves at once, as it does on a calm bus; those that come
within the pause leave together at its end. With 100 clients and 20,000 messages a second, these
are 200 to a write; as they came from the bus, they were 24, and writing took a third of a core.

    take(messages) -> lines -> chunks, each with its receivers -> flush -> Outlet.write or .keep

A client's replies must not overtake messages that are held: call `flush` before they are written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import jsonbus
from jsonbus.errors import PayloadError

from .backlog import PIECE_BYTES, Chunk, join_spared
from .outlet import Outlet

logger = logging.getLogger("jsonbus.gateway")

#: Twenty times what a write takes: so writes take 5 % of the time, however fast messages come.
PAUSE_S_PER_CLIENT = 100e-6
#: Few notice it. Beyond 100 clients, writes take a larger part of the time.
PAUSE_S_MAX = 0.010
#: Bytes held in a pause. More are written at once: memory is bounded, and a client whose backlog
#: is empty has room for them.
HELD_BYTES_MAX = 4 * PIECE_BYTES

OutletT = TypeVar("OutletT", bound=Outlet)


class FanOut(Generic[OutletT]):
    """See the head of this file. Use it in one event loop."""

    def __init__(
        self,
        encode: Callable[[jsonbus.Message], bytes],
        join: Callable[[list[bytes]], bytes] = b"".join,
    ) -> None:
        """`encode` makes a line; `join` makes the bytes of a chunk."""
        self._encode = encode
        self._join = join
        self.store: jsonbus.SubscriptionStore[OutletT] = jsonbus.SubscriptionStore()
        #: Messages nested deeper than can be written.
        self.unwritable = 0
        #: Lines, once for each client that they went to.
        self.deliveries = 0
        self._chunks: list[tuple[Chunk, tuple[OutletT, ...]]] = []
        self._lines: list[bytes] = []  # of the next chunk
        self._lines_bytes = 0
        self._receivers: tuple[OutletT, ...] = ()  # of `_lines`
        self._held_bytes = 0  # of `_chunks` and `_lines`
        self._pause_ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None  # while something is held

    def take(self, messages: Iterable[jsonbus.Message]) -> None:
        """Give messages to the clients that want them, now or at the end of the pause.

        Never waits or raises.
        """
        encode, subscribers_of = self._encode, self.store.subscribers_of
        topic = ""
        subscribers: tuple[OutletT, ...] = ()
        for message in messages:
            if message.topic != topic:  # a burst is often of one topic
                topic = message.topic
                subscribers = subscribers_of(topic)
            if not subscribers:
                continue
            try:
                line = encode(message)
            except PayloadError:
                self.unwritable += 1
                continue
            if subscribers is not self._receivers or self._lines_bytes >= PIECE_BYTES:
                self._turn_to(subscribers)
            self._lines.append(line)
            self._lines_bytes += len(line)
            self._held_bytes += len(line)
            if self._held_bytes >= HELD_BYTES_MAX:
                self.flush()
        if self._held_bytes and self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._pause_ends_at:
                self.flush()
            else:
                self._timer = loop.call_at(self._pause_ends_at, self.flush)

    def flush(self) -> None:
        """Write what is held, and begin a pause."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._held_bytes:
            return
        self._end_chunk()
        chunks, self._chunks = self._chunks, []
        self._held_bytes = 0
        clients = self._write(chunks)
        now = asyncio.get_running_loop().time()
        self._pause_ends_at = now + min(clients * PAUSE_S_PER_CLIENT, PAUSE_S_MAX)

    def join_retained(self, messages: Iterable[jsonbus.Message]) -> list[Chunk]:
        """Return retained values as spared chunks, without those that cannot be written."""
        return join_spared(self._encode_all(messages), self._join)

    def _turn_to(self, subscribers: tuple[OutletT, ...]) -> None:
        """Begin a chunk for other clients, or because the last one is large enough."""
        # Topics that only patterns match have a tuple each, though with the same clients.
        # Comparing a thousand references costs less than a thousand writes.
        if subscribers != self._receivers or self._lines_bytes >= PIECE_BYTES:
            self._end_chunk()
        self._receivers = subscribers

    def _end_chunk(self) -> None:
        if self._lines:
            chunk = Chunk(self._join(self._lines), len(self._lines))
            self._chunks.append((chunk, self._receivers))
            self._lines, self._lines_bytes = [], 0
        self._receivers = ()

    def _write(self, chunks: list[tuple[Chunk, tuple[OutletT, ...]]]) -> int:
        """Give chunks to their receivers, and return how many these are."""
        if len(chunks) == 1:  # nearly always: all for the same clients
            chunk, receivers = chunks[0]
            data, lines = chunk.data, chunk.lines
            self.deliveries += lines * len(receivers)
            for client in receivers:
                if client.is_writable:
                    client.write(data, lines)
                else:
                    client.keep(chunk)
            return len(receivers)
        pending: defaultdict[OutletT, list[Chunk]] = defaultdict(list)
        for chunk, receivers in chunks:
            self.deliveries += chunk.lines * len(receivers)
            for client in receivers:
                pending[client].append(chunk)
        for client, wanted in pending.items():
            client.write_chunks(wanted)
        return len(pending)

    def _encode_all(self, messages: Iterable[jsonbus.Message]) -> Iterator[bytes]:
        for message in messages:
            try:
                yield self._encode(message)
            except PayloadError as error:
                logger.debug("! a retained value of %r: %s", message.topic, error)
