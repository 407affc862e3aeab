"""Webhooks: ties hub, ledger and deliveries together.

The ledger announces batches (`begin`), which go to the subscriber's Delivery. The hub brings the
messages of other nodes (`take`), which go into the ledger. Messages of this gateway's own clients
are left out: the hub stored them before it published them. The hub serves other clients, too, so it
does not wait for the disk until much is on its way there; then it waits, so that messages of the
bus do not pile up.

Each pattern is wanted of the hub once, however many webhooks want it: `_wanted` counts them.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from collections import Counter
from collections.abc import Awaitable, Coroutine, Sequence
from functools import lru_cache
from random import Random
from typing import Any, TypeVar

import jsonbus
from jsonbus.errors import ClosedError, PayloadError

from ..hub import Hub
from ..values import to_json
from .bodies import Bodies
from .delivery import Delivery, DeliveryContext
from .ledger import Batch, Subscribed, WebhookLedger
from .post import make_tls_context
from .targets import Targets

logger = logging.getLogger("jsonbus.gateway.webhooks.webhooks")

T = TypeVar("T")

#: Requests at the same time, of all subscribers. Each takes a file descriptor, and clients need
#: some, too: half of the limit of the process, which is often 1,024.
CONNECTIONS_MAX = max(64, min(4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
#: Idle connections that are kept, and for how long.
IDLE_CONNECTIONS_MAX = 100
IDLE_S = 60.0
SWEEP_S = 5.0
#: How long a request may still run when the gateway ends: most receivers answer sooner, which
#: spares them a repetition.
GRACE_S = 1.0
#: How long `close` waits for deliveries and changes in all; only a disk that hangs needs it.
CLOSE_S = 10.0
#: How long a subscription waits for the look-up of its url, to refuse a forbidden one at once.
LOOK_UP_S = 2.0
#: Messages of the bus on their way to the disk, and their bytes, before the hub has to wait. Far
#: less than a webhook's backlog, which includes them: a disk that hangs should delay the bus, which
#: repeats reliable messages, rather than fill the backlog, so that messages are dropped.
STORING_MAX = 2_000
STORING_BYTES_MAX = 16 << 20


class Webhooks:
    """All webhooks of a gateway. Use it in one event loop.

    `own_node` is the id of the gateway's node. `tls` is for receivers whose certificates this
    machine does not know.
    """

    def __init__(
        self,
        ledger: WebhookLedger,
        targets: Targets,
        hub: Hub,
        *,
        own_node: str,
        timeout_s: float = 10.0,
        retry_s_max: float = 60.0,
        tls: ssl.SSLContext | None = None,
        random: Random | None = None,
    ) -> None:
        self._ledger = ledger
        self._targets = targets
        self._hub = hub
        self._own_node = own_node
        self._context = DeliveryContext(
            ledger=ledger,
            targets=targets,
            # Made at the first delivery: reading the authorities takes some 40 ms.
            tls=lru_cache(maxsize=1)(make_tls_context) if tls is None else lambda: tls,
            bodies=Bodies(ledger.body_of),
            slots=asyncio.Semaphore(CONNECTIONS_MAX),
            retry_slots=asyncio.Semaphore(max(1, CONNECTIONS_MAX // 2)),
            random=random or Random(),
            timeout_s=timeout_s,
            retry_s_max=retry_s_max,
        )
        self._deliveries: dict[int, Delivery] = {}  # by subscriber
        self._wanted: Counter[str] = Counter()
        self._changes: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closed = False
        self._unwritable = 0
        self._storing = self._storing_bytes = 0

    async def start(self) -> None:
        """Subscribe to the patterns of the stored webhooks; the ledger must be open."""
        for view in self._ledger.subscribers():
            self._wanted.update(view.patterns)
        self._hub.want_first(list(self._wanted))
        self._sweeper = asyncio.create_task(self._sweep(), name="webhook connections")

    def begin(self, batch: Batch) -> None:
        """Deliver a batch; the ledger calls this for each batch that it cuts."""
        if self._is_closed:
            return  # it is on disk
        if batch.subscriber not in self._deliveries:
            delivery = Delivery(batch.subscriber, batch.name, self._context)
            self._deliveries[batch.subscriber] = delivery
        self._deliveries[batch.subscriber].give(batch)

    def take(self, messages: list[jsonbus.Message]) -> Awaitable[None] | None:
        """Store messages of other nodes that webhooks want: the hub's sink."""
        wants = self._ledger.wants
        wanted = []
        for message in messages:
            origin = message.origin
            if origin.is_retained or origin.node == self._own_node or not wants(message.topic):
                continue
            try:
                wanted.append((message.topic, to_json(message.value)))
            except PayloadError:
                self._unwritable += 1
        if not wanted:
            return None
        size_bytes = sum([len(payload) for _, payload in wanted])
        self._storing += len(wanted)
        self._storing_bytes += size_bytes
        storing = self._begin_change(self._store(wanted, size_bytes))
        if self._storing <= STORING_MAX and self._storing_bytes <= STORING_BYTES_MAX:
            return None
        return _wait_for(storing)  # the ledger stores in order, so nothing is left then

    async def subscribe(self, name: str, pattern: str, url: str) -> Subscribed:
        """Deliver messages of the pattern to the url from now on.

        A subscriber has one url: another one replaces it for all its patterns. Raises ValueError
        for a url that is not allowed, InvalidTopicError, LocalError, BacklogFullError, StoreError,
        ClosedError; nothing has changed then.
        """
        pattern = jsonbus.check_pattern(pattern)
        self._targets.check(url)
        try:
            async with asyncio.timeout(LOOK_UP_S):
                await self._targets.resolve(url)
        except OSError:  # a TimeoutError is one
            pass  # the receiver may not be there yet
        return await self._finish(self._subscribe(name, pattern, url))

    async def unsubscribe(self, name: str, pattern: str | None = None) -> list[str]:
        """End one subscription of a subscriber, or all; return the patterns that ended.

        The last one deletes the backlog and breaks off a running request. Raises
        InvalidTopicError, StoreError, ClosedError.
        """
        if pattern is not None:
            pattern = jsonbus.check_pattern(pattern)
        return await self._finish(self._unsubscribe(name, pattern))

    async def close(self) -> None:
        """Stop delivering. Bounded in time, even if receivers hang. The ledger must be open."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        deliveries = list(self._deliveries.values())
        self._deliveries.clear()
        for delivery in deliveries:
            self._begin_change(delivery.stop(GRACE_S))
        if self._changes:
            await asyncio.wait(list(self._changes), timeout=CLOSE_S)

    def stats(self) -> dict[str, int]:
        """Return gauges, and counts since the start."""
        deliveries = self._deliveries.values()
        return {
            **self._context.counts,
            "connections_kept": sum(delivery.is_open for delivery in deliveries),
            "delivering": sum(delivery.idle_at is None for delivery in deliveries),
            "messages_unwritable": self._unwritable,
            "messages_storing": self._storing,
            "bodies_bytes": self._context.bodies.bytes,
            "bodies_loaded": self._context.bodies.loaded,
        }

    async def _store(self, messages: Sequence[tuple[str, bytes]], size_bytes: int) -> None:
        try:
            await self._ledger.accept_from_bus(messages)
        except ClosedError:
            pass  # the gateway ends while messages still come
        finally:
            self._storing -= len(messages)
            self._storing_bytes -= size_bytes

    async def _subscribe(self, name: str, pattern: str, url: str) -> Subscribed:
        # The hub first: a message published once the subscription is on disk must arrive.
        await self._want(pattern)
        try:
            subscribed = await self._ledger.subscribe(name, pattern, url)
        except BaseException:
            self._unwant(pattern)
            raise
        if not subscribed.is_new:
            self._unwant(pattern)
        delivery = self._deliveries.get(subscribed.subscriber)
        if subscribed.has_moved and delivery is not None:
            delivery.move()
        return subscribed

    async def _unsubscribe(self, name: str, pattern: str | None) -> list[str]:
        ended = await self._ledger.unsubscribe(name, pattern)
        for each in ended.patterns:
            self._unwant(each)
        if ended.is_gone and (delivery := self._deliveries.pop(ended.subscriber, None)) is not None:
            await delivery.stop()
        return list(ended.patterns)

    async def _want(self, pattern: str) -> None:
        # The hub subscribes or raises before it waits for anything, so the count stays right.
        self._wanted[pattern] += 1
        if self._wanted[pattern] == 1:
            try:
                await self._hub.want(pattern)  # retained values are not for webhooks
            except BaseException:
                del self._wanted[pattern]
                raise

    def _unwant(self, pattern: str) -> None:
        self._wanted[pattern] -= 1
        if not self._wanted[pattern]:
            del self._wanted[pattern]
            self._hub.unwant(pattern)

    async def _finish(self, change: Coroutine[Any, Any, T]) -> T:
        """Await a change that goes on to its end even if the caller is cancelled.

        Otherwise the ledger could hold a subscription that the hub does not know.
        """
        return await asyncio.shield(self._begin_change(change))

    def _begin_change(self, change: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    async def _sweep(self) -> None:
        """Close connections that were idle for long, and the oldest ones of too many."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            idle = [
                (delivery.idle_at, subscriber)
                for subscriber, delivery in self._deliveries.items()
                if delivery.idle_at is not None
            ]
            idle.sort(reverse=True)
            for position, (idle_at, subscriber) in enumerate(idle):
                if position >= IDLE_CONNECTIONS_MAX or now - idle_at >= IDLE_S:
                    self._begin_change(self._deliveries.pop(subscriber).disconnect())


async def _wait_for(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])  # the task goes on if the caller is cancelled
