"""Webhooks: subscribers that get their messages by POST. Ties hub, ledger and deliveries together.

Messages come from the ledger in batches (`begin`) and go to the subscriber's delivery; messages of
other nodes come from the hub (`take`) and go into the ledger. Those of this gateway's own clients
do not: the hub has stored them before it published them. Other clients get messages of the bus
through the same hub, so it need not wait for the disk until much is on its way there: then it does,
rather than let what the bus brings pile up.

The hub is asked once for each pattern, however many webhooks want it; `_wishes` counts them, and
`_granted` are those that the hub has room for: a stored one may be among too many at a start.
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
from jsonbus.errors import ClosedError, LocalError, PayloadError

from ..hub import Hub
from ..values import to_json
from .bodies import Bodies
from .delivery import Delivery, DeliveryContext
from .ledger import Batch, Subscribed, WebhookLedger
from .post import make_tls_context
from .targets import Targets

logger = logging.getLogger("jsonbus.gateway.webhooks.webhooks")

T = TypeVar("T")

#: Requests at a time, of all subscribers: each has a file descriptor, and clients need some, too.
#: Half of those that a process may have, often 1,024, is the default.
CONNECTIONS_MAX = max(64, min(4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
#: Connections that are kept though nothing is sent, and for how long.
IDLE_CONNECTIONS_MAX = 100
IDLE_S = 60.0
SWEEP_S = 5.0
#: So long a request may still run when the gateway ends: most receivers answer sooner, and are
#: spared a repeat.
GRACE_S = 1.0
#: So long it waits for deliveries and changes in all; only a disk that hangs needs it.
CLOSE_S = 10.0
#: So long a subscription waits for the look-up of its url, to refuse at once what is not allowed.
LOOK_UP_S = 2.0
#: Messages of the bus on their way to the disk, and their bytes, before the hub has to wait. Far
#: less than a webhook's backlog, of which they are a part: a disk that hangs should hold up the
#: bus, which repeats what is reliable, rather than fill the backlog and have the rest dropped.
STORING_MAX = 2_000
STORING_BYTES_MAX = 16 << 20


class Webhooks:
    """See the head of this file. Everything in the event loop.

    `own_node` is the id of the gateway's node. `tls` is for receivers with certificates that this
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
        self._deliveries: dict[str, Delivery] = {}  # by the subscriber's name
        self._wishes: Counter[str] = Counter()
        self._granted: set[str] = set()
        self._changes: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closed = False
        self._unwritable = 0
        self._storing = self._storing_bytes = 0

    async def start(self) -> None:
        """Ask the hub for what the stored webhooks want; the ledger must be open."""
        for view in self._ledger.subscribers():
            self._wishes.update(view.patterns)
        missed = await self._ask_for(list(self._wishes))
        if missed:
            # They stay wanted: what is published through this gateway arrives.
            logger.error(
                "webhooks miss what other nodes publish to %d topics or patterns, %r the first of"
                " them: a node cannot announce so many; use patterns with wildcards",
                len(missed),
                missed[0],
            )
        self._sweeper = asyncio.create_task(self._sweep(), name="webhook connections")

    def begin(self, batch: Batch) -> None:
        """Deliver a batch; called by the ledger for each one that it cuts."""
        if self._is_closed:
            return  # it is on disk
        delivery = self._deliveries.get(batch.name)
        if delivery is None or delivery.subscriber != batch.subscriber:
            if delivery is not None:  # gone, and subscribed anew under the same name
                self._begin_change(delivery.stop())
            delivery = self._deliveries[batch.name] = Delivery(
                batch.subscriber, batch.name, self._context
            )
        delivery.give(batch)

    def take(self, messages: list[jsonbus.Message]) -> Awaitable[None] | None:
        """The hub's sink: keep what webhooks want of what other nodes published."""
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
        return _wait_for(storing)  # the ledger stores in order: nothing is on its way then

    async def subscribe(self, name: str, pattern: str, url: str) -> Subscribed:
        """Deliver what is published to the pattern to the url, from now on and for ever.

        A subscriber has one url: another one moves all that it is subscribed to. Raises ValueError
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
        """End a subscription, or all of a subscriber; returns the patterns ended.

        With the last one, what waits for the subscriber goes, and a request is broken off. Raises
        InvalidTopicError, StoreError, ClosedError.
        """
        if pattern is not None:
            pattern = jsonbus.check_pattern(pattern)
        return await self._finish(self._unsubscribe(name, pattern))

    async def close(self) -> None:
        """Deliver no more; bounded, even while receivers hang. The ledger must still be open."""
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
        """Gauges of now, and counts since the start."""
        counts = self._context.counts
        deliveries = self._deliveries.values()
        return {
            "batches_delivered": counts.batches_delivered,
            "messages_delivered": counts.messages_delivered,
            "attempts": counts.attempts,
            "attempts_failed": counts.attempts_failed,
            "connections_opened": counts.connections.opened,
            "connections_kept": sum(delivery.is_open for delivery in deliveries),
            "delivering": sum(delivery.idle_at is None for delivery in deliveries),
            "messages_unwritable": self._unwritable,
            "messages_storing": self._storing,
            "bodies_bytes": self._context.bodies.bytes,
            "bodies_loaded": self._context.bodies.loaded,
        }

    async def _ask_for(self, patterns: list[str]) -> list[str]:
        """Have the hub want stored patterns; returns those for which there is no room."""
        count = len(patterns)
        while count:
            try:
                self._hub.want_first(patterns[:count])
                break
            except LocalError:
                count = count * 9 // 10
        self._granted.update(patterns[:count])
        for position in range(count, len(patterns)):
            try:
                await self._hub.want(patterns[position])
            except LocalError:
                return patterns[position:]
            self._granted.add(patterns[position])
        return []

    async def _store(self, messages: Sequence[tuple[str, bytes]], size_bytes: int) -> None:
        try:
            await self._ledger.accept_from_bus(messages)
        except ClosedError:
            pass  # the gateway ends while the bus still brings something
        finally:
            self._storing -= len(messages)
            self._storing_bytes -= size_bytes

    async def _subscribe(self, name: str, pattern: str, url: str) -> Subscribed:
        # The wish comes first: what is published once the subscription is on disk must not miss.
        await self._wish(pattern)
        try:
            subscribed = await self._ledger.subscribe(name, pattern, url)
        except BaseException:
            self._unwish(pattern)
            raise
        if not subscribed.is_new:
            self._unwish(pattern)
        delivery = self._deliveries.get(name)
        if subscribed.has_moved and delivery is not None:
            delivery.move()
        return subscribed

    async def _unsubscribe(self, name: str, pattern: str | None) -> list[str]:
        ended = await self._ledger.unsubscribe(name, pattern)
        for each in ended:
            self._unwish(each)
        delivery = self._deliveries.get(name)
        if delivery is not None and self._ledger.url_of(delivery.subscriber) is None:
            del self._deliveries[name]
            await delivery.stop()
        return ended

    async def _wish(self, pattern: str) -> None:
        # The hub subscribes, or raises, before it waits for anything: the count is right by then.
        self._wishes[pattern] += 1
        if pattern not in self._granted:
            self._granted.add(pattern)
            try:
                await self._hub.want(pattern)  # retained values are for those who come to look
            except BaseException:
                self._granted.discard(pattern)
                self._forget(pattern)
                raise

    def _unwish(self, pattern: str) -> None:
        if self._forget(pattern) and pattern in self._granted:
            self._granted.discard(pattern)
            self._hub.unwant(pattern)

    def _forget(self, pattern: str) -> bool:
        """One wish less; whether it was the last."""
        self._wishes[pattern] -= 1
        if self._wishes[pattern] > 0:
            return False
        del self._wishes[pattern]
        return True

    async def _finish(self, change: Coroutine[Any, Any, T]) -> T:
        """Await a change that goes on to its end even if the caller is cancelled.

        Otherwise the ledger would hold a subscription of which the hub does not know.
        """
        return await asyncio.shield(self._begin_change(change))

    def _begin_change(self, change: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    async def _sweep(self) -> None:
        """Close connections that nobody needs: those idle for long, and the oldest of too many."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            idle = [
                (delivery.idle_at, name)
                for name, delivery in self._deliveries.items()
                if delivery.idle_at is not None
            ]
            idle.sort(reverse=True)
            for position, (idle_at, name) in enumerate(idle):
                if position >= IDLE_CONNECTIONS_MAX or now - idle_at >= IDLE_S:
                    self._begin_change(self._deliveries.pop(name).disconnect())


async def _wait_for(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])  # which goes on if whoever waits is cancelled
