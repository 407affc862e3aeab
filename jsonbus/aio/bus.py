"""AsyncBus: the public class for programs with asyncio."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self, overload

from jsonbus.aio.loop import Loop
from jsonbus.aio.publishing import PUBLISHED_MAX
from jsonbus.aio.subscription import Subscription
from jsonbus.aio.watch import Watch
from jsonbus.core.wire.codec import LETTER_OF_NULL, dumps_plain, find_nan
from jsonbus.errors import LocalError
from jsonbus.frontend.bus import BaseBus
from jsonbus.frontend.checks import check_seconds, countdown
from jsonbus.frontend.limits import CLOSE_S
from jsonbus.frontend.requests import Pong
from jsonbus.frontend.watch import GapEvent, NodeEvent
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from typing import Unpack

    from jsonbus.aio.channel import Channel
    from jsonbus.aio.channels import Binding, Channels  # noqa: F401 - in the base class
    from jsonbus.frontend.options import (
        Handler,
        OnBatch,
        OnMessage,
        Patterns,
        T,
        Typed,
        TypedBatches,
        Untyped,
    )


class AsyncBus(BaseBus[Subscription[Any], Watch[NodeEvent], Watch[GapEvent], "Channel", "Binding"]):
    """A node of the bus, for programs with asyncio.

        async with jsonbus.AsyncBus(name="kitchen") as bus:
            bus.subscribe("alarm/**", handler=print)
            await bus.publish("sensors/kitchen", {"temp": 21.5})

    It is open from its making until `close`. The keywords are those of
    `jsonbus.config.BusSettings`; each has a `JSONBUS_…` environment variable. Raises ConfigError
    for wrong settings and TransportError if the network refuses.

    It belongs to the event loop in which it was made. Any task there may call any method, also in
    handlers; elsewhere, methods raise LocalError. After `close`, they raise ClosedError, except for
    those that only read. In a process forked after the bus was opened, they raise ForkedError.
    """

    _subscription_type = Subscription
    _watch_type = Watch
    _loop: Loop

    if TYPE_CHECKING:

        @overload
        def subscribe(
            self,
            pattern: Patterns,
            handler: OnMessage[T] | None = None,
            **options: Unpack[Typed[T]],
        ) -> Subscription[T]: ...
        @overload
        def subscribe(
            self, pattern: Patterns, handler: OnBatch[T], **options: Unpack[TypedBatches[T]]
        ) -> Subscription[T]: ...
        @overload
        def subscribe(
            self, pattern: Patterns, handler: Handler | None = None, **options: Unpack[Untyped]
        ) -> Subscription[Any]: ...
        def subscribe(self, *arguments: Any, **options: Any) -> Any: ...

    async def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> bool:
        is_reliable = self._is_reliable if reliable is None else reliable
        if retain:
            return await self._publish_long(topic, value, reliable=is_reliable, retain=True)
        # The fast path; core/fast_publish.py explains it. It compares the thread: asking for
        # the running event loop costs as much as encoding a small value. Another loop runs in this
        # thread only while the bus's own has stopped: messages that are queued then leave when that
        # one goes on, and once a datagram is full the next message is refused.
        publishing, fast_publish = self._publishing, self._fast_publish
        prefix, payload, is_wanted = None, b"", True
        if get_ident() == self._thread:
            try:
                prefix = self._reliable_prefix_of(topic) if is_reliable else self._prefix_of(topic)
                if prefix:
                    payload = dumps_plain(value)
                    if (
                        LETTER_OF_NULL in payload
                        and payload.partition(b"null")[1]
                        and find_nan(value) is not None
                    ):
                        prefix = None
            except TypeError:
                prefix = None  # an invalid topic, or a value that takes more than one try
        limit = fast_publish.limit
        if limit and prefix and len(payload) <= fast_publish.size_max:
            queued = self._queued
            queued.append(prefix + payload)
            if len(queued) < limit:
                return True
            publishing.flush_queued()
        elif is_reliable:
            return await self._publish_long(topic, value, reliable=True, retain=False)
        elif prefix and len(prefix) + len(payload) <= fast_publish.whole_max:
            publishing.publish_encoded(prefix, payload)
        elif prefix and len(payload) <= self._config.value_bytes_max:
            publishing.publish_large(prefix, payload)
        elif prefix == b"" and self._is_running():
            if next(fast_publish.suppressed) % PUBLISHED_MAX:
                return False
            publishing.must_wait = True
            is_wanted = False
        elif self._loop.compartments is not None:
            return await self._publish_long(topic, value, reliable=False, retain=False)
        else:
            is_wanted = publishing.publish(topic, value)
        if publishing.must_wait:
            await publishing.wait_for_room()
        return is_wanted

    async def _publish_long(self, topic: str, value: Any, *, reliable: bool, retain: bool) -> bool:
        part = self._part_of(topic)
        if part is not None:  # which has a fast path of its own
            return bool(await part.publish(topic, value, reliable=reliable, retain=retain))
        publishing = self._publishing
        if reliable:
            await publishing.wait_for_history(topic)
        is_wanted = publishing.publish(topic, value, is_reliable=reliable, is_retained=retain)
        if publishing.must_wait:
            await publishing.wait_for_room()
        return is_wanted

    async def request(self, topic: str, value: Any = None, timeout: float = 1.0) -> Any:
        timeout_s = check_seconds("timeout", timeout)
        return await self._loop_of(topic).requests.request(topic, value, timeout_s)

    async def ping(self, timeout: float = 1.0) -> list[Pong]:
        return await self._loop.requests.ping(check_seconds("timeout", timeout))

    async def connect(
        self,
        node: str,
        port: str | int,
        timeout: float = 1.0,
        *,
        retry: bool = False,
        wait: bool = True,
    ) -> Channel:
        """Open a channel to a port of another node, given by its name or its id.

        Raises ChannelRefusedError, whose `reason` says why, as soon as that is known, and
        ChannelTimeoutError after `timeout` seconds. With `retry`, tries again until then where that
        may help: the node is not there yet, or nothing is bound, or the port is taken.

        With `wait=False`, returns at once: the channel calls its `on_accept` or `on_refused` later,
        and its methods wait for that first.
        """
        return await self._make_channels().connect(node, port, timeout, retry=retry, wait=wait)

    async def wait_for_subscribers(self, topic: str, timeout: float = 1.0) -> bool:
        timeout_s = check_seconds("timeout", timeout)
        loop: Loop = self._loop_of(topic)
        return await loop.wait_for(lambda node: node.has_subscribers(topic), timeout_s)

    async def wait_until_sure(self, timeout: float = 2.0) -> bool:
        left_s = countdown(check_seconds("timeout", timeout))
        for loop in self._loop.with_parts:
            if not await loop.wait_for(lambda node: node.state == "sure", left_s()):
                return False
        return True

    async def flush(self, timeout: float = 2.0) -> bool:
        left_s = countdown(check_seconds("timeout", timeout))
        for loop in self._loop.with_parts:
            if not await loop.flush(left_s()):
                return False
        return True

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Leave the bus and stop all its tasks. Takes at most `timeout` + 0.5 seconds.

        Sends what was published. Iterations end; `get` and `request` that wait raise ClosedError.
        Messages that were not read count as `messages_unread`. Handlers that run have until the
        timeout, then they are cancelled; a handler may call this itself. A second call waits for
        the first.
        """
        left_s = countdown(check_seconds("timeout", timeout))
        try:
            for loop in reversed(self._loop.with_parts):
                await loop.close(left_s())
        except asyncio.CancelledError:
            for loop in self._loop.with_parts:
                loop.end_now()
            raise

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check_event_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise LocalError(
                "an AsyncBus opens in a running event loop: make it in a coroutine, or use Bus"
            ) from None

    def _start(self, transport: Transport, common: Loop | None) -> None:
        event_loop = asyncio.get_running_loop()
        loop = Loop(self._node, transport, self._config, event_loop, common)
        loop.start()
        self._loop = loop
        self._thread = get_ident()
        self._is_running = event_loop.is_running
        self._publishing = loop.publishing

    def _make_part(self) -> AsyncBus:
        return AsyncBus.__new__(AsyncBus)

    def _make_channels(self) -> Channels:
        from jsonbus.aio.channels import Channels  # most programs have none

        return self._loop.have_channels(lambda: Channels(self._loop, self))
