"""Bus: the public class for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, overload

from jsonbus.core.wire.codec import dumps_plain
from jsonbus.frontend.bus import BaseBus
from jsonbus.frontend.checks import check_seconds
from jsonbus.frontend.limits import CLOSE_S
from jsonbus.frontend.requests import Pong
from jsonbus.frontend.watch import GapEvent, NodeEvent
from jsonbus.sync.loop import Loop
from jsonbus.sync.requests import Requests
from jsonbus.sync.subscription import Subscription
from jsonbus.sync.watch import Watch
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import UnionType
    from typing import Literal, Unpack, _SpecialForm

    from jsonbus.core.message import Message
    from jsonbus.frontend.bus import T
    from jsonbus.frontend.subscription import Handler, SubscribeKeywords
    from jsonbus.sync.channel import Channel
    from jsonbus.sync.channels import Binding, Channels  # noqa: F401 - in the base class


class Bus(BaseBus[Subscription[Any], Watch[NodeEvent], Watch[GapEvent], "Channel", "Binding"]):
    """A node of the bus, for programs with threads.

        with jsonbus.Bus(name="kitchen") as bus:
            bus.subscribe("alarm/**", handler=print)
            bus.publish("sensors/kitchen", {"temp": 21.5})

    It is open from its making until `close`. The keywords are those of
    `jsonbus.config.BusSettings`; each has a `JSONBUS_…` environment variable. Raises ConfigError
    for wrong settings and TransportError if the network refuses.

    Any thread may call any method, also in handlers. Do not call them in a signal handler, which
    may interrupt a call that holds the lock: raise, or set a flag, there. After `close`, methods
    raise ClosedError, except for those that only read. In a process forked after the bus was
    opened, they raise ForkedError.
    """

    _subscription_type = Subscription
    _watch_type = Watch
    _may_be_async = False
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

    def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> bool:
        """Send a value to all subscribers of a topic.

            bus.publish("sensors/kitchen", {"temp": 21.5})

        Args:
            topic: levels separated by `/`, without wildcards.
            value: anything that JSON can express.
            retain: keep the value, and deliver it, flagged as retained, to nodes that
                subscribe later. The next retained value replaces it; None as value removes it.
            reliable: repair losses, and deliver in order with the topic's other reliable messages.
                None means as the bus was opened.

        Returns True if the message was sent, is held until this node knows all subscribers, went to
        a subscription of this bus, or is retained; False if nobody wants it and nothing was sent.

        The calling thread sends the message, at once unless another thread is sending or a message
        was sent just before: then messages are batched, and leave about a millisecond later. Blocks
        while the network takes less than is published; while a subscription of this bus with
        overflow="block" is full and another thread reads it; a reliable message also while so many
        repairs are requested that it would push out messages that are still needed. If the network
        is down, nothing is raised: the loss is logged and counted.

        Raises InvalidTopicError, PayloadError (also PayloadTooLargeError), ClosedError.
        """
        if retain or (self._is_reliable if reliable is None else reliable):
            is_reliable = self._is_reliable if reliable is None else reliable
            return self._publishing.publish_flagged(
                topic, value, reliable=is_reliable, retain=retain
            )
        # The fast path; core/fast_publish.py explains it.
        try:
            prefix = self._prefix_of(topic)
            payload = dumps_plain(value) if prefix else b""
        except TypeError:
            # An invalid topic, or a value that takes more than one try.
            return self._publishing.publish(topic, value)
        if prefix:
            fast_publish = self._fast_publish
            if (self._queued or fast_publish.is_flood) and len(payload) <= fast_publish.size_max:
                self._queued.append(prefix + payload)
                if len(self._queued) < fast_publish.limit:
                    return True
                return self._publishing.flush_queued()
            if len(prefix) + len(payload) <= fast_publish.whole_max:
                return self._publishing.publish_encoded(prefix, payload)
            if len(payload) <= self._config.value_bytes_max:
                return self._publishing.publish_large(prefix, payload)
        elif prefix is not None:
            next(self._fast_publish.suppressed)
            return False
        return self._publishing.publish(topic, value)

    def request(self, topic: str, value: Any = None, timeout: float = 1.0) -> Any:
        """Send a request to the node that serves a topic, and return its answer.

        Waits at most `timeout` seconds. Raises NobodyServesError as soon as that is known,
        RequestFailedError if the serving handler raised, RequestTimeoutError; LocalError in a
        handler that would wait for itself; and what `publish` raises.
        """
        return self._requests.request(topic, value, check_seconds("timeout", timeout))

    def ping(self, timeout: float = 1.0) -> list[Pong]:
        """Ping all nodes, wait for `timeout` seconds, and return the answers, nearest first."""
        return self._requests.ping(check_seconds("timeout", timeout))

    def connect(
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
        return self._make_channels().connect(node, port, timeout, retry=retry, wait=wait)

    def wait_for_subscribers(self, topic: str, timeout: float = 1.0) -> bool:
        """Wait until a node is known to subscribe to the topic; False if the time is over first."""
        timeout_s = check_seconds("timeout", timeout)
        return self._loop.wait_for(lambda node: node.has_subscribers(topic), timeout_s)

    def wait_until_sure(self, timeout: float = 2.0) -> bool:
        """Wait until this node knows all subscriptions; False if the time is over first.

        Until then, it holds the messages that it publishes.
        """
        timeout_s = check_seconds("timeout", timeout)
        return self._loop.wait_for(lambda node: node.state == "sure", timeout_s)

    def flush(self, timeout: float = 2.0) -> bool:
        """Wait until everything published so far was sent; False if the time is over first.

        This includes messages that are held while joining. A message that nobody turns out to want
        counts as sent.
        """
        return self._loop.flush(check_seconds("timeout", timeout))

    def close(self, timeout: float = CLOSE_S) -> None:
        """Leave the bus and stop all its threads. Takes at most `timeout` + 0.5 seconds.

        Sends what was published. Iterations end; `get` and `request` that wait raise ClosedError.
        Messages that were not read are dropped and counted. Handlers that run have until the
        timeout; a handler may call this itself. A second call waits for the first.
        """
        self._loop.close(check_seconds("timeout", timeout))

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, transport: Transport) -> None:
        loop = Loop(self._node, transport, self._config)
        loop.start()
        self._loop = loop
        self._publishing = loop.publishing
        self._requests = Requests(loop, self._config.workers)

    def _make_channels(self) -> Channels:
        from jsonbus.sync.channels import Channels  # most programs have none

        return self._loop.have_channels(lambda: Channels(self._loop, self._node.settings, self))
