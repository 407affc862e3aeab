"""Bodies: the bodies of batches, in memory only while they are needed, and bounded for all.

Theory of operation
-------------------
    cut --keep()--> at hand --attempt--> 200: drop()
             |        ^   |
             |   load()   +--> failed: drop(), for as long as the delivery pauses
             v        |                  |
             +---> in the store <--------+

A batch usually comes with its body, right out of the commit, and is posted at once. Ten thousand
receivers that are down would keep a megabyte each, for days. So a body is dropped during a pause
and read again from the store for the next attempt, which waits for room.

A delivery with room waits for nothing but a connection, and gives the room back after one attempt;
so all deliveries get room, in the order in which they asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from .commands import Batch

#: For all bodies in memory. 64 receivers of the largest batches can hang at the same moment before
#: others have to wait; each hangs for one attempt and pauses for six, so some 400 can always hang.
#: 2,000 receivers that refuse 0.5 MB each keep the process at 140 MB, not at a gigabyte.
BYTES_MAX = 64 << 20


#: Reads the body of a batch from the store; None if the batch is gone. `WebhookLedger.body_of`.
ReadBody = Callable[[Batch], Awaitable[bytes | None]]


class Bodies:
    """The memory for the bodies of all batches. Use it in one event loop.

    A batch's body is None, or its bytes are counted here.
    """

    def __init__(self, read_body: ReadBody, bytes_max: int = BYTES_MAX) -> None:
        self._read_body = read_body
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        #: Of bodies in memory or about to be read.
        self.bytes = 0
        #: Bodies that were read again.
        self.loaded = 0

    def keep(self, batch: Batch) -> None:
        """Count the body of a new batch, or drop it if there is no room."""
        if batch.body is None:
            return
        if self._waiting or not self._has_room(batch.body_bytes):
            batch.body = None
        else:
            self.bytes += batch.body_bytes

    async def load(self, batch: Batch) -> bool:
        """Read the body again unless it is in memory; return False if the batch is gone.

        Raises StoreError, ClosedError.
        """
        if batch.body is not None:
            return True
        await self._take_room(batch.body_bytes)
        try:
            batch.body = await self._read_body(batch)
            self.loaded += 1
        finally:
            if batch.body is None:
                self._give_room(batch.body_bytes)
        return batch.body is not None

    def drop(self, batch: Batch) -> None:
        """Drop the body: it is not needed now. Idempotent."""
        if batch.body is not None:
            batch.body = None
            self._give_room(batch.body_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        # One is always allowed, however large.
        return not self.bytes or self.bytes + size_bytes <= self._bytes_max

    async def _take_room(self, size_bytes: int) -> None:
        if not self._waiting and self._has_room(size_bytes):
            self.bytes += size_bytes
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it got room in the same moment
                self._give_room(size_bytes)
            else:
                self._wake()  # those behind it may fit
            raise

    def _give_room(self, size_bytes: int) -> None:
        self.bytes -= size_bytes
        self._wake()

    def _wake(self) -> None:
        waiting = self._waiting
        while waiting:
            size_bytes, future = waiting[0]
            if not future.done():
                if not self._has_room(size_bytes):
                    return
                self.bytes += size_bytes
                future.set_result(None)
            waiting.popleft()
