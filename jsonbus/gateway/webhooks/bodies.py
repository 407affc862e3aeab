"""Bodies: what deliveries post, in memory only while it is needed, and bounded for all of them.

Theory of operation
-------------------
    cut --keep()--> at hand --attempt--> 200: drop()
             |        ^   |
             |   load()   +--> failed: drop(), for as long as the delivery pauses
             v        |                  |
             +---> in the store <--------+

A batch usually comes with its body, right out of the commit, and goes to its receiver at once. Ten
thousand receivers that are down would otherwise keep a megabyte each, for days: so a body is
dropped for the pause and read again from the store for the next attempt, which waits for room.

Whoever has room has nothing else to wait for but a connection, and gives it back after the time of
an attempt; so everybody gets some, in the order in which they asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from .commands import Batch

#: Of all bodies at hand. 64 receivers of the largest batches can hang at the same moment before
#: others have to wait; since each hangs for one attempt and pauses for six, some 400 that always
#: hang. 2,000 receivers that refuse 0.5 MB each keep the process at 140 MB, not at a gigabyte.
BYTES_MAX = 64 << 20


#: Reads the body of a batch from the store; None if the batch is gone. `WebhookLedger.body_of`.
ReadBody = Callable[[Batch], Awaitable[bytes | None]]


class Bodies:
    """See the head of this file. A batch's body is None, or its bytes are counted here.

    Everything in one event loop.
    """

    def __init__(self, read_body: ReadBody, bytes_max: int = BYTES_MAX) -> None:
        self._read_body = read_body
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        #: At hand, or about to be read.
        self.bytes = 0
        #: Bodies that were read again.
        self.loaded = 0

    def keep(self, batch: Batch) -> None:
        """Take a new batch into account; its body is dropped if there is no room for it."""
        if batch.body is None:
            return
        if self._waiting or not self._has_room(batch.body_bytes):
            batch.body = None
        else:
            self.bytes += batch.body_bytes

    async def load(self, batch: Batch) -> bool:
        """Have the body at hand, read again if need be; False if the batch is gone.

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
        """The body is not needed now; again is nothing."""
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
            if future.done() and not future.cancelled():  # it was given room in the same moment
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
