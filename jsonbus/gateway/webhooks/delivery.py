"""Delivery: posts the batches of one subscriber, one after the other, until each is taken.

Theory of operation
-------------------
    give(batch) --> attempt --> answer 200 --> settle --> next batch, or idle
                      ^  |
                      |  +----> anything else --> pause, which grows --+
                      +------------------------------------------------+
A Delivery has a task while it has a batch, and none while it is idle. It never has two batches: the
ledger announces the next one when the last is settled. It waits for its own receiver, and for two
things that all deliveries share: `slots`, which bound the connections, and the memory for bodies. A
receiver that hangs holds these for `timeout_s` and then pauses longer and longer, so that hanging
receivers cannot keep all of them. Attempts after a failure also need one of `retry_slots`, fewer
than `slots`: however many receivers hang, those that answer find free slots. The order is retry
slot, body, slot. A delivery with a slot needs nothing more, so no deadlock is possible.

`move` (another url) cuts the request or pause short, and the new url is tried at once. `stop` ends
the delivery: the subscriber is gone, or the gateway ends.

An address that has answered is used again for ADDRESS_FRESH_S without another look-up: its
connection is open anyway, and it was checked. After a failure the name is looked up again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from urllib.parse import quote

import jsonbus
from jsonbus.errors import ClosedError, StoreError

from .backoff import retry_delay_s
from .bodies import Bodies
from .ledger import Batch, WebhookLedger
from .post import NO_TLS, Failure, Header, NotDeliveredError, PostConnection
from .targets import Address, Targets, parse_url

logger = logging.getLogger("jsonbus.gateway.webhooks.webhooks")

ADDRESS_FRESH_S = 30.0
#: The shortest time between two warnings of a receiver that fails and recovers all the time.
WARN_AGAIN_S = 60.0
#: The pause before a store that could not be read is asked again. The store logs the failure.
READ_AGAIN_S = 1.0
#: Bounds the wait for a cancelled delivery, in case a library resists being cancelled.
CANCEL_S = 5.0


COUNTED = (
    "batches_delivered",
    "messages_delivered",
    "attempts",
    "attempts_failed",
    "connections_opened",
)


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """What the deliveries of a gateway share."""

    ledger: WebhookLedger
    targets: Targets
    tls: Callable[[], ssl.SSLContext]
    bodies: Bodies
    slots: asyncio.Semaphore
    retry_slots: asyncio.Semaphore
    random: Random
    timeout_s: float
    retry_s_max: float
    #: Since the start.
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] += number


class Delivery:
    """The deliveries to one subscriber. Use it in one event loop."""

    def __init__(self, subscriber: int, name: str, context: DeliveryContext) -> None:
        self.subscriber = subscriber
        #: Since when it is idle, by the loop's clock; None while it has a batch.
        self.idle_at: float | None = None
        self._name = name
        self._context = context
        self._batch: Batch | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_pausing = False
        self._has_moved = asyncio.Event()
        self._deadline: asyncio.Timeout | None = None  # of the attempt that runs
        self._connection: PostConnection | None = None
        self._fresh: tuple[str, Address, float] | None = None  # url, address, until
        self._headers = _common_headers(name)
        self._is_failing = False
        self._warned_at = -WARN_AGAIN_S

    @property
    def is_open(self) -> bool:
        """True if it has a connection; the receiver may just have closed it."""
        return self._connection is not None

    def give(self, batch: Batch) -> None:
        """Deliver this batch; the one before must be settled, or about to be."""
        if self._is_stopping:
            return  # it stays in the ledger
        self._batch = batch
        self._context.bodies.keep(batch)
        if self._task is None:
            self.idle_at = None
            self._task = asyncio.create_task(self._run(), name=f"webhook {self._name}")

    def move(self) -> None:
        """Leave the old url at once: the subscriber has another one."""
        self._fresh = None
        self._has_moved.set()
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    async def stop(self, grace_s: float = 0.0) -> None:
        """End, and close the connection; a running request may still finish within `grace_s`.

        Batches that are not settled stay in the ledger. Bounded in time.
        """
        self._is_stopping = True
        task = self._task
        if task is not None:
            if grace_s > 0 and not self._is_pausing:
                await asyncio.wait([task], timeout=grace_s)
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_S)
        if self._batch is not None:
            self._context.bodies.drop(self._batch)
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close the connection, if any; the next attempt opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close()
            except Exception:  # the connection is given up anyway
                logger.debug("! a connection to %r was not closed", self._name, exc_info=True)

    async def _run(self) -> None:
        try:
            while not self._is_stopping and (batch := self._batch) is not None:
                try:
                    if not await self._deliver(batch):
                        return
                finally:
                    self._context.bodies.drop(batch)
                self._batch = None  # before settling, during which the next one is given
                await self._context.ledger.settle(batch)
                self._context.count("batches_delivered")
                self._context.count("messages_delivered", batch.count)
        except ClosedError:
            pass  # the ledger is closed: the batch is delivered again after the next start
        except Exception:  # a bug
            logger.exception("deliveries to %r stop until the gateway is restarted", self._name)
        finally:
            self._task = None
            self.idle_at = asyncio.get_running_loop().time()

    async def _deliver(self, batch: Batch) -> bool:
        """Try until the batch is taken; return False if the subscriber or the gateway ended."""
        context = self._context
        attempts = failures = 0
        while not self._is_stopping:
            async with AsyncExitStack() as held:
                if failures:
                    await held.enter_async_context(context.retry_slots)
                try:
                    if not await context.bodies.load(batch):
                        return False
                except StoreError:
                    logger.debug("! %s cannot be read", batch.delivery_id, exc_info=True)
                    await asyncio.sleep(READ_AGAIN_S)
                    continue
                await held.enter_async_context(context.slots)
                self._has_moved.clear()
                url = context.ledger.url_of(self.subscriber)
                if url is None or self._is_stopping:
                    return False
                attempts += 1
                failure = await self._attempt(url, batch, attempts)
            if failure is None:
                self._note_success(url)
                return True
            if self._has_moved.is_set():
                failures = 0
                continue
            if failure.is_stale:  # once: the next connection is a new one
                continue
            failures += 1
            delay_s = retry_delay_s(
                failures, context.retry_s_max, context.random, failure.retry_after_s
            )
            self._note_failure(url, failure.reason, attempts, delay_s)
            context.bodies.drop(batch)
            if not self._is_stopping:
                await self._pause(delay_s)
            if self._has_moved.is_set():
                failures = 0
        return False

    async def _attempt(self, url: str, batch: Batch, number: int) -> Failure | None:
        """Post once, from the look-up to the end of the answer; return None if it was taken."""
        context = self._context
        context.count("attempts")
        try:
            async with asyncio.timeout(context.timeout_s) as self._deadline:
                await self._post(url, batch, number)
            return None
        except NotDeliveredError as error:
            failure = error.failure  # not the error itself, which would keep the body in memory
        except TimeoutError:
            failure = Failure(f"no answer within {context.timeout_s:g} s")
        except Exception:  # a bug must not block the batch for ever
            logger.exception("an attempt to deliver to %r failed", self._name)
            failure = Failure("the gateway failed: see its log")
        finally:
            self._deadline = None
        # The connection may be in any state: begin the next attempt with a new one.
        self._fresh = None
        await self.disconnect()
        return failure

    async def _post(self, url: str, batch: Batch, number: int) -> None:
        now = asyncio.get_running_loop().time()
        fresh = self._fresh
        if fresh is not None and fresh[0] == url and now < fresh[2]:
            address = fresh[1]
        else:
            address = await self._resolve(url)
            fresh = url, address, now + ADDRESS_FRESH_S
        headers = [
            *self._headers,
            (b"Jsonbus-Delivery", batch.delivery_id.encode("ascii")),
            (b"Jsonbus-Attempt", b"%d" % number),
        ]
        connection = await self._connect(address)
        assert batch.body is not None
        await connection.post(address, headers, batch.body, self._context.timeout_s)
        self._fresh = fresh

    async def _resolve(self, url: str) -> Address:
        try:
            return await self._context.targets.resolve(url)
        except ValueError as error:
            raise NotDeliveredError(f"the address is refused: {error}") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise NotDeliveredError(f"the name cannot be looked up: {reason}") from error

    async def _connect(self, address: Address) -> PostConnection:
        if self._connection is not None and not self._connection.is_for(address):
            await self.disconnect()
        if self._connection is None:
            tls = self._context.tls() if address.scheme == "https" else NO_TLS
            self._connection = PostConnection(
                address, tls, lambda: self._context.count("connections_opened")
            )
        return self._connection

    async def _pause(self, delay_s: float) -> None:
        self._is_pausing = True
        try:
            async with asyncio.timeout(delay_s):
                await self._has_moved.wait()
        except TimeoutError:
            pass
        finally:
            self._is_pausing = False

    def _note_success(self, url: str) -> None:
        if self._is_failing:
            self._is_failing = False
            logger.info("%r at %s takes its webhooks again", self._name, _show(url))
        self._context.ledger.note_attempt(self.subscriber, None, None)

    def _note_failure(self, url: str, reason: str, attempts: int, delay_s: float) -> None:
        self._context.count("attempts_failed")
        self._context.ledger.note_attempt(self.subscriber, reason, time.time() + delay_s)
        now = asyncio.get_running_loop().time()
        level = logging.DEBUG
        if not self._is_failing and now - self._warned_at >= WARN_AGAIN_S:
            level, self._warned_at = logging.WARNING, now
        self._is_failing = True
        logger.log(
            level,
            "%r at %s did not take its webhook: %s (attempt %d, the next in %.1f s)",
            self._name,
            _show(url),
            reason,
            attempts,
            delay_s,
        )


def _common_headers(name: str) -> list[Header]:
    # Quoted so that unquoting always gives the name; a plain name stays as it is.
    shown = quote(name, safe="!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
    if shown != shown.strip():
        shown = quote(name, safe="")
    return [
        (b"User-Agent", f"jsonbus/{jsonbus.__version__}".encode("ascii")),
        (b"Accept", b"*/*"),
        (b"Content-Type", b"application/json"),
        (b"Jsonbus-Subscriber", shown.encode("ascii")),
    ]


def _show(url: str) -> str:
    try:
        return str(parse_url(url))
    except ValueError:  # an earlier version allowed it
        return "its url"
