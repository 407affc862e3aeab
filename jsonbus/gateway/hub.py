"""Hub: connects the bus with all clients of the gateway.

Theory of operation
-------------------
The gateway is one node with one subscription to all patterns that clients want. Each pattern is
counted: it is subscribed to with its first client and given up with its last. Messages go to every
*sink* (text server, event streams, webhooks) in batches and in order; a sink knows what its clients
want. So a message comes from the bus once, and is matched and encoded once per kind of client,
however many clients there are.

The subscription's mailbox blocks when it is full: while the disk is slow, messages wait in the
kernel, and those of reliable topics are requested again, instead of being dropped here.

Retained values
---------------
The bus gives retained values to a subscription when it begins. A client that comes later to a
subscribed pattern would get none, and adding a pattern repeats the values of overlapping ones. So
`want` opens a second subscription for the newcomer alone, which ends at once: it returns the values
that this node already has. Values that the network brings later come with the other messages. The
hub remembers, within bounds, which values it passed on, and passes each only once. It forgets this
for a pattern that nobody wanted before: a value that the node has lost meanwhile, because its
publisher was away, must pass again.

Publishing
----------
A message goes to the webhooks' backlog first, and to the bus when it is on disk: a client that gets
an error may try again, and nobody gets the message twice. The gateway's own messages come back
through its subscription like those of others; so they reach text clients and event streams.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import jsonbus
from jsonbus.errors import PayloadTooLargeError

from .values import to_json
from .webhooks.ledger import WebhookLedger

logger = logging.getLogger("jsonbus.gateway.hub")

Take = Callable[[list[jsonbus.Message]], Awaitable[None] | None]

#: Messages that wait for the sinks: some milliseconds of a flood.
MAILBOX_MAX = 10_000

#: Topics, and nodes of each, whose retained values are remembered as passed on. Beyond that, which
#: is unusual, values may pass twice.
PASSED_TOPICS_MAX = 10_000
PASSED_NODES_MAX = 100

#: Retained values that a newcomer gets: as many as a node keeps of other nodes.
RETAINED_MAX = 100_000


class Published(NamedTuple):
    """The result of a publish."""

    #: The number of webhooks for which it is stored.
    webhooks: int
    #: Whether somebody else wanted it: a node of the bus, or a client of this gateway.
    is_sent: bool


class Hub:
    """See the head of this file. Use it in the event loop of the bus."""

    def __init__(self, bus: jsonbus.AsyncBus, ledger: WebhookLedger | None = None) -> None:
        self._bus = bus
        self._ledger = ledger
        self._sinks: list[Take] = []
        self._wanted: dict[str, int] = {}
        self._feed: Any = None  # the bus's subscription, once something is wanted
        # Retained values that passed: by topic, of each node when it was published.
        self._passed: OrderedDict[str, dict[str, float]] = OrderedDict()
        self._published = 0
        self._received = 0

    @property
    def node(self) -> str:
        """The id of the gateway's node: the origin of its own messages."""
        return self._bus.id

    @property
    def sealed(self) -> str | None:
        """The name of the bus, if it is sealed."""
        return self._bus.sealed

    def add_sink(self, take: Take) -> None:
        """Hand all messages that clients want to `take`, in batches and in order.

        `take` must not raise. If it returns an awaitable, the hub awaits it before the next batch,
        which delays all clients. All sinks have the present batch by then.
        """
        self._sinks.append(take)

    async def want(self, pattern: str) -> list[jsonbus.Message]:
        """Count one more client of the pattern; return the retained values that the node has.

        They are for that client alone. Raises InvalidTopicError, ClosedError.
        """
        pattern = jsonbus.check_pattern(pattern)
        if pattern not in self._wanted:
            self._subscribe((pattern,))
            self._forget_passed(pattern)  # what the node still has is noted again below
        self._wanted[pattern] = self._wanted.get(pattern, 0) + 1
        try:
            return await self._take_retained(pattern)
        except BaseException:
            self.unwant(pattern)
            raise

    def want_first(self, patterns: Sequence[str]) -> None:
        """Count one client of each pattern; for stored clients at the start, before any `want`.

        All at once, which takes a fraction of the time.
        Without retained values. Raises what `want` raises; then none is wanted.
        """
        assert self._feed is None, "want_first comes before want"
        if patterns:
            self._subscribe(patterns)
            self._wanted.update(dict.fromkeys(patterns, 1))

    def unwant(self, pattern: str) -> None:
        """Count one client less; every `want` has its `unwant`."""
        count = self._wanted[pattern] - 1
        if count:
            self._wanted[pattern] = count
            return
        del self._wanted[pattern]
        if self._feed is not None and not self._bus.is_closed:
            self._feed.remove_pattern(pattern)

    async def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> Published:
        """Give a value to the webhooks that want it, durably, and to the bus.

        Raises InvalidTopicError, PayloadError, PayloadTooLargeError, BacklogFullError, StoreError:
        then it went nowhere. Raises ClosedError, and LocalError if the node retains too much
        already: then it may be stored for webhooks.
        """
        topic = jsonbus.check_topic(topic)
        webhooks = 0
        if self._ledger is not None and self._ledger.wants(topic):
            payload = to_json(value)
            limit_bytes = self._bus.config.value_bytes_max
            if len(payload) > limit_bytes:  # the bus would refuse it after it was stored
                raise PayloadTooLargeError(topic, len(payload), limit_bytes)
            webhooks = await self._ledger.accept(topic, payload)
        is_sent = await self._bus.publish(topic, value, retain=retain, reliable=reliable)
        self._published += 1
        return Published(webhooks, is_sent)

    def stats(self) -> dict[str, int]:
        dropped = 0 if self._feed is None else self._feed.dropped
        return {
            "messages_published": self._published,
            "messages_received": self._received,
            "messages_dropped": dropped,
            "patterns_wanted": len(self._wanted),
        }

    def _subscribe(self, patterns: Sequence[str]) -> None:
        if self._feed is None:
            self._feed = self._bus.subscribe(
                patterns, self._pass_on, maxsize=MAILBOX_MAX, overflow="block", in_batches=True
            )
        else:
            for pattern in patterns:
                self._feed.add_pattern(pattern)

    async def _pass_on(self, messages: list[jsonbus.Message]) -> None:
        self._received += len(messages)
        if any(message.origin.is_retained for message in messages):
            messages = [
                message
                for message in messages
                if not message.origin.is_retained or self._passes_first(message)
            ]
        waiting: list[Awaitable[None]] = []
        for take in self._sinks:  # all of them, before any is awaited
            try:
                taken = take(messages)
            except Exception:  # a bug must not stop the other sinks
                logger.exception("%d messages were not passed on", len(messages))
            else:
                if taken is not None:
                    waiting.append(taken)
        for each in waiting:
            try:
                await each
            except Exception:
                logger.exception("%d messages were not passed on", len(messages))

    async def _take_retained(self, pattern: str) -> list[jsonbus.Message]:
        """Return the retained values for a newcomer to a subscribed pattern.

        Nothing here really waits, so no message can come in between.
        """
        with self._bus.subscribe(pattern, maxsize=RETAINED_MAX) as newcomer:
            pending = newcomer.pending
            messages = await newcomer.get_many(pending, timeout=0) if pending else []
        for message in messages:
            self._passes_first(message)
        return messages

    def _passes_first(self, message: jsonbus.Message) -> bool:
        """Note that a retained value is passed on; return whether this is the first time."""
        passed = self._passed.setdefault(message.topic, {})
        self._passed.move_to_end(message.topic)
        # Not by its sequence: a value that nobody wanted when it was published has none.
        if passed.get(message.node) == message.sent_at:
            return False
        if len(passed) >= PASSED_NODES_MAX:
            passed.clear()
        passed[message.node] = message.sent_at
        if len(self._passed) > PASSED_TOPICS_MAX:
            self._passed.popitem(last=False)
        return True

    def _forget_passed(self, pattern: str) -> None:
        if "*" in pattern:
            for topic in [each for each in self._passed if jsonbus.topic_matches(pattern, each)]:
                del self._passed[topic]
        else:
            self._passed.pop(pattern, None)
