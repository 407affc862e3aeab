"""Bus: the public class for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, overload

from jsonbus.core.wire.codec import LETTER_OF_NULL, dumps_plain, find_nan
from jsonbus.frontend.bus import BaseBus
from jsonbus.frontend.checks import check_seconds, countdown
from jsonbus.frontend.limits import CLOSE_S
from jsonbus.frontend.requests import Pong
from jsonbus.frontend.watch import GapEvent, NodeEvent
from jsonbus.sync.loop import Loop
from jsonbus.sync.subscription import Subscription
from jsonbus.sync.watch import Watch
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from typing import Unpack

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

    def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> bool:
        is_reliable = self._is_reliable if reliable is None else reliable
        if retain:
            return self._publish_long(topic, value, reliable=is_reliable, retain=True)
        # The fast path; core/fast_publish.py explains it.
        try:
            prefix = self._reliable_prefix_of(topic) if is_reliable else self._prefix_of(topic)
            payload = dumps_plain(value) if prefix else b""
        except TypeError:
            # An invalid topic, or a value that takes more than one try.
            return self._publish_long(topic, value, reliable=is_reliable)
        if prefix:
            if (
                LETTER_OF_NULL in payload
                and payload.partition(b"null")[1]
                and find_nan(value) is not None
            ):
                return self._publishing.publish(topic, value, reliable=is_reliable)
            fast_publish = self._fast_publish
            if (self._queued or fast_publish.is_flood) and len(payload) <= fast_publish.size_max:
                self._queued.append(prefix + payload)
                if len(self._queued) < fast_publish.limit:
                    return True
                return self._publishing.flush_queued()
            if is_reliable:
                return self._publishing.publish(topic, value, reliable=True)
            if len(prefix) + len(payload) <= fast_publish.whole_max:
                return self._publishing.publish_encoded(prefix, payload)
            if len(payload) <= self._config.value_bytes_max:
                return self._publishing.publish_large(prefix, payload)
        elif prefix is not None:
            next(self._fast_publish.suppressed)
            return False
        return self._publish_long(topic, value, reliable=is_reliable)

    def _publish_long(
        self, topic: str, value: Any, *, reliable: bool, retain: bool = False
    ) -> bool:
        part = self._part_of(topic)
        if part is not None:  # which has a fast path of its own
            return bool(part.publish(topic, value, reliable=reliable, retain=retain))
        return self._publishing.publish(topic, value, reliable=reliable, retain=retain)

    def request(self, topic: str, value: Any = None, timeout: float = 1.0) -> Any:
        timeout_s = check_seconds("timeout", timeout)
        return self._loop_of(topic).requests.request(topic, value, timeout_s)

    def ping(self, timeout: float = 1.0) -> list[Pong]:
        return self._loop.requests.ping(check_seconds("timeout", timeout))

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
        timeout_s = check_seconds("timeout", timeout)
        loop: Loop = self._loop_of(topic)
        return loop.wait_for(lambda node: node.has_subscribers(topic), timeout_s)

    def wait_until_sure(self, timeout: float = 2.0) -> bool:
        left_s = countdown(check_seconds("timeout", timeout))
        return all(
            loop.wait_for(lambda node: node.state == "sure", left_s())
            for loop in self._loop.with_parts
        )

    def flush(self, timeout: float = 2.0) -> bool:
        left_s = countdown(check_seconds("timeout", timeout))
        return all(loop.flush(left_s()) for loop in self._loop.with_parts)

    def close(self, timeout: float = CLOSE_S) -> None:
        """Leave the bus and stop all its threads. Takes at most `timeout` + 0.5 seconds.

        Sends what was published. Iterations end; `get` and `request` that wait raise ClosedError.
        Messages that were not read count as `messages_unread`. Handlers that run have until the
        timeout; a handler may call this itself. A second call waits for the first.
        """
        left_s = countdown(check_seconds("timeout", timeout))
        for loop in reversed(self._loop.with_parts):
            loop.close(left_s())

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, transport: Transport, common: Loop | None) -> None:
        loop = Loop(self._node, transport, self._config, common)
        loop.start()
        self._loop = loop
        self._publishing = loop.publishing

    def _make_part(self) -> Bus:
        return Bus.__new__(Bus)

    def _make_channels(self) -> Channels:
        from jsonbus.sync.channels import Channels  # most programs have none

        return self._loop.have_channels(lambda: Channels(self._loop, self))
