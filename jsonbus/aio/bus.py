"""AsyncBus: the public class for programs with asyncio."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self, overload

from jsonbus.aio.loop import Loop
from jsonbus.aio.publishing import PUBLISHED_MAX
from jsonbus.aio.requests import Requests
from jsonbus.aio.subscription import Subscription
from jsonbus.aio.watch import Watch
from jsonbus.core.wire.codec import dumps_plain
from jsonbus.errors import LocalError
from jsonbus.frontend.bus import BaseBus
from jsonbus.frontend.checks import check_seconds
from jsonbus.frontend.limits import CLOSE_S
from jsonbus.frontend.requests import Pong
from jsonbus.frontend.watch import GapEvent, NodeEvent
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import UnionType
    from typing import Literal, Unpack, _SpecialForm

    from jsonbus.aio.channel import Channel
    from jsonbus.aio.channels import Binding, Channels  # noqa: F401 - in the base class
    from jsonbus.core.message import Message
    from jsonbus.frontend.bus import T
    from jsonbus.frontend.subscription import Handler, SubscribeKeywords


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
    _may_be_async = True
    _loop: Loop
    _requests: Requests

    if TYPE_CHECKING:

        @overload
        def subscribe(
            self,
            pattern: str | Sequence[str],
            handler: Callable[[Message[T]], Any] | None = None,
            *,
            as_type: type[T],
            in_batches: Literal[False] = False,
            **options: Unpack[SubscribeKeywords],
        ) -> Subscription[T]: ...
        @overload
        def subscribe(
            self,
            pattern: str | Sequence[str],
            handler: Callable[[list[Message[T]]], Any],
            *,
            as_type: type[T],
            in_batches: Literal[True],
            **options: Unpack[SubscribeKeywords],
        ) -> Subscription[T]: ...
        @overload
        def subscribe(
            self,
            pattern: str | Sequence[str],
            handler: Handler | None = None,
            *,
            as_type: UnionType | _SpecialForm | None = None,
            in_batches: bool = False,
            **options: Unpack[SubscribeKeywords],
        ) -> Subscription[Any]: ...
        def subscribe(self, *arguments: Any, **options: Any) -> Any: ...

    async def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> bool:
        """Send a value to all subscribers of a topic.

            await bus.publish("sensors/kitchen", {"temp": 21.5})

        Args:
            topic: levels separated by `/`, without wildcards.
            value: anything that JSON can express.
            retain: keep the value, and deliver it, flagged as retained, to nodes that
                subscribe later. The next retained value replaces it; None as value removes it.
            reliable: repair losses, and deliver in order with the topic's other reliable messages.
                None means as the bus was opened.

        Returns True if the message was sent, is held until this node knows all subscribers, went to
        a subscription of this bus, or is retained; False if nobody wants it and nothing was sent.

        A single message is sent at once. Messages published soon after one another are batched, and
        leave in the same turn of the event loop or the next. Waits while the network takes less
        than is published; while a subscription of this bus with overflow="block" is full and
        another task reads it; a reliable message also while so many repairs are requested that it
        would push out messages that are still needed. Cancelling the wait does not take the message
        back. If the network is down, nothing is raised: the loss is logged and counted.

        Raises InvalidTopicError, PayloadError (also PayloadTooLargeError), ClosedError.
        """
        if retain or (self._is_reliable if reliable is None else reliable):
            is_reliable = self._is_reliable if reliable is None else reliable
            return await self._publish_flagged(topic, value, reliable=is_reliable, retain=retain)
        # The fast path; core/fast_publish.py explains it. It compares the thread: asking for
        # the running event loop costs as much as encoding a small value. Another loop runs in this
        # thread only while the bus's own has stopped: messages that are queued then leave when that
        # one goes on, and once a datagram is full the next message is refused.
        publishing, fast_publish = self._publishing, self._fast_publish
        prefix, payload, is_wanted = None, b"", True
        if get_ident() == self._thread:
            try:
                prefix = self._prefix_of(topic)
                if prefix:
                    payload = dumps_plain(value)
            except TypeError:
                prefix = None  # an invalid topic, or a value that takes more than one try
        limit = fast_publish.limit
        if limit and prefix and len(payload) <= fast_publish.size_max:
            queued = self._queued
            queued.append(prefix + payload)
            if len(queued) < limit:
                return True
            publishing.flush_queued()
        elif prefix and len(prefix) + len(payload) <= fast_publish.whole_max:
            publishing.publish_encoded(prefix, payload)
        elif prefix and len(payload) <= self._config.value_bytes_max:
            publishing.publish_large(prefix, payload)
        elif prefix == b"" and self._is_running():
            if next(fast_publish.suppressed) % PUBLISHED_MAX:
                return False
            publishing.must_wait = True
            is_wanted = False
        else:
            is_wanted = publishing.publish(topic, value)
        if publishing.must_wait:
            await publishing.wait_for_room()
        return is_wanted

    async def _publish_flagged(
        self, topic: str, value: Any, *, reliable: bool, retain: bool
    ) -> bool:
        publishing = self._publishing
        if reliable:
            await publishing.wait_for_history(topic)
        is_wanted = publishing.publish(topic, value, is_reliable=reliable, is_retained=retain)
        if publishing.must_wait:
            await publishing.wait_for_room()
        return is_wanted

    async def request(
        self,
        topic: str,
        value: Any = None,
        timeout: float = 1.0,  # noqa: ASYNC109 - as in Bus
    ) -> Any:
        """Send a request to the node that serves a topic, and return its answer.

        Waits at most `timeout` seconds. Raises NobodyServesError as soon as that is known,
        RequestFailedError if the serving handler raised, RequestTimeoutError; LocalError in a
        handler that would wait for itself; and what `publish` raises.
        """
        return await self._requests.request(topic, value, check_seconds("timeout", timeout))

    async def ping(self, timeout: float = 1.0) -> list[Pong]:  # noqa: ASYNC109 - as in Bus
        """Ping all nodes, wait for `timeout` seconds, and return the answers, nearest first."""
        return await self._requests.ping(check_seconds("timeout", timeout))

    async def connect(
        self,
        node: str,
        port: str | int,
        timeout: float = 1.0,  # noqa: ASYNC109 - as in Bus
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

    async def wait_for_subscribers(
        self,
        topic: str,
        timeout: float = 1.0,  # noqa: ASYNC109 - as in Bus
    ) -> bool:
        """Wait until a node is known to subscribe to the topic; False if the time is over first."""
        timeout_s = check_seconds("timeout", timeout)
        return await self._loop.wait_for(lambda node: node.has_subscribers(topic), timeout_s)

    async def wait_until_sure(self, timeout: float = 2.0) -> bool:  # noqa: ASYNC109 - as in Bus
        """Wait until this node knows all subscriptions; False if the time is over first.

        Until then, it holds the messages that it publishes.
        """
        timeout_s = check_seconds("timeout", timeout)
        return await self._loop.wait_for(lambda node: node.state == "sure", timeout_s)

    async def flush(self, timeout: float = 2.0) -> bool:  # noqa: ASYNC109 - as in Bus
        """Wait until everything published so far was sent; False if the time is over first.

        This includes messages that are held while joining. A message that nobody turns out to want
        counts as sent.
        """
        return await self._loop.flush(check_seconds("timeout", timeout))

    async def close(self, timeout: float = CLOSE_S) -> None:  # noqa: ASYNC109 - as in Bus
        """Leave the bus and stop all its tasks. Takes at most `timeout` + 0.5 seconds.

        Sends what was published. Iterations end; `get` and `request` that wait raise ClosedError.
        Messages that were not read are dropped and counted. Handlers that run have until the
        timeout, then they are cancelled; a handler may call this itself. A second call waits for
        the first.
        """
        await self._loop.close(check_seconds("timeout", timeout))

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

    def _start(self, transport: Transport) -> None:
        event_loop = asyncio.get_running_loop()
        loop = Loop(self._node, transport, self._config, event_loop)
        loop.start()
        self._loop = loop
        self._thread = get_ident()
        self._is_running = event_loop.is_running
        self._publishing = loop.publishing
        self._requests = Requests(loop, self._config.workers)

    def _make_channels(self) -> Channels:
        from jsonbus.aio.channels import Channels  # most programs have none

        return self._loop.have_channels(lambda: Channels(self._loop, self._node.settings, self))
