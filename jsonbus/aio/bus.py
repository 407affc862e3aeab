"""AsyncBus: what an application with asyncio opens."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from jsonbus.aio.loop import CLOSE_S, Loop
from jsonbus.aio.publishing import PUBLISHED_MAX
from jsonbus.aio.requests import Requests
from jsonbus.aio.subscription import Handler, Subscription
from jsonbus.config import BusConfig, BusSettings, load
from jsonbus.core.node import Node
from jsonbus.core.wire.codec import dumps_plain
from jsonbus.errors import LocalError
from jsonbus.frontend.checks import check_handler, check_seconds
from jsonbus.frontend.events import Pong
from jsonbus.frontend.lifetime import closed_error
from jsonbus.frontend.opening import make_node, open_transport
from jsonbus.frontend.subscription import MAXSIZE_DEFAULT
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from jsonbus.aio.channel import Channel
    from jsonbus.aio.channels import Binding, Channels
    from jsonbus.aio.watch import EventHandler, Watch
    from jsonbus.core.views import Explanation, NodeInfo
    from jsonbus.frontend.gaps import GapEvent
    from jsonbus.frontend.presence import NodeEvent

H = TypeVar("H", bound=Callable[..., Any])


class AsyncBus:
    """A node of the bus in an event loop, open from its making until `close`.

        async with jsonbus.AsyncBus(name="kitchen") as bus:
            bus.subscribe("alarm/**", handler=print)
            await bus.publish("sensors/kitchen", {"temp": 21.5})

    Keywords are those of `BusSettings`; each has a `JSONBUS_…` environment variable. Raises
    ConfigError for wrong settings and TransportError if the network refuses.

    It belongs to the event loop in which it was made; every method may be called from any task
    there, handlers included, and raises LocalError elsewhere. After `close`, methods raise
    ClosedError, except for those that only look. In a process forked after the bus was opened
    they raise ForkedError.
    """

    def __init__(self, **settings: Unpack[BusSettings]) -> None:
        event_loop = _running_loop()
        config = load(**settings)
        self._open(config, open_transport(config), event_loop)

    @classmethod
    def over(cls, transport: Transport, **settings: Unpack[BusSettings]) -> AsyncBus:
        """A bus over a transport that is open already, such as one in memory; closes it, too."""
        bus = cls.__new__(cls)
        bus._open(load(**settings), transport, _running_loop())
        return bus

    def _open(
        self, config: BusConfig, transport: Transport, event_loop: asyncio.AbstractEventLoop
    ) -> None:
        self._config = config
        self._is_reliable = config.reliable
        self._node = make_node(config, transport.describe().queue_bytes_max)
        self._is_entered = False
        loop = Loop(self._node, transport, config, event_loop)
        loop.start()
        self._loop = loop
        self._thread = get_ident()
        self._is_running = event_loop.is_running
        self._publishing = loop.publishing
        self._express = self._node.express
        self._gathered = self._express.gathered
        self._lane_of = self._express.lanes.get
        self._requests = Requests(loop, config.workers)

    @property
    def name(self) -> str:
        """What people call this node; several may have the same name."""
        return self._node.settings.name

    @property
    def id(self) -> str:
        """What names this node among all that ever were."""
        return self._node.settings.node

    @property
    def config(self) -> BusConfig:
        """The settings it was opened with."""
        return self._config

    @property
    def state(self) -> str:
        """joining, sure or doubting; or closed."""
        return "closed" if self._loop.is_closed else self._node.state

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed

    async def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> bool:
        """Send a value to all who subscribed to the topic.

        True: it was sent, or is held until this node knows who is there, or went to a subscription
        of this bus, or is retained. False: nobody wants it, so nothing was sent.

        `reliable`: whoever misses it gets it again, in order with the topic's other reliable ones;
        None is as the bus was opened. `retain`: it is given, flagged as retained, to whoever
        subscribes later, until the next one is; None as value ends that.

        A lone message is sent at once. Those that come soon after one another share datagrams, and
        leave in the same turn of the event loop or the one after. Waits while the network takes
        less than is published, and while a subscription of this bus with overflow="block" is full
        and another task reads it; a reliable message also while subscribers ask for so much again
        that it would be lost. Cancelling that wait does not take the message back. A network
        that is down raises nothing: the loss is logged and counted.

        Raises InvalidTopicError, PayloadError (also PayloadTooLargeError), ClosedError.
        """
        if retain or (self._is_reliable if reliable is None else reliable):
            is_reliable = self._is_reliable if reliable is None else reliable
            return await self._publish_kept(topic, value, reliable=is_reliable, retain=retain)
        # The short way; core/express.py explains it. It asks for the thread, since asking for the
        # running event loop costs as much as encoding a small value. Another loop runs in this
        # thread only while the bus's own has stopped: what is added to messages that gather then
        # leaves when that goes on, and once a datagram is full the next one is refused.
        publishing, express = self._publishing, self._express
        lane, payload, is_wanted = None, b"", True
        if get_ident() == self._thread:
            try:
                lane = self._lane_of(topic)
                if lane:
                    payload = dumps_plain(value)
            except TypeError:
                lane = None  # a topic that is none, or a value that takes more than one try
        limit = express.limit
        if limit and lane and len(payload) <= express.size_max:
            gathered = self._gathered
            gathered.append(lane + payload)
            if len(gathered) < limit:
                return True
            publishing.attend()
        elif lane and len(lane) + len(payload) <= express.whole_max:
            publishing.publish_encoded(lane, payload)
        elif lane and len(payload) <= self._config.value_bytes_max:
            publishing.publish_large(lane, payload)
        elif lane == b"" and self._is_running():
            if next(express.suppressed) % PUBLISHED_MAX:
                return False
            publishing.must_wait = True
            is_wanted = False
        else:
            is_wanted = publishing.publish(topic, value)
        if publishing.must_wait:
            await publishing.wait_for_room()
        return is_wanted

    async def _publish_kept(self, topic: str, value: Any, *, reliable: bool, retain: bool) -> bool:
        publishing = self._publishing
        if reliable:
            await publishing.wait_for_history(topic)
        is_wanted = publishing.publish(topic, value, is_reliable=reliable, is_retained=retain)
        if publishing.must_wait:
            await publishing.wait_for_room()
        return is_wanted

    def subscribe(
        self,
        pattern: str | Sequence[str],
        handler: Handler | None = None,
        *,
        maxsize: int = MAXSIZE_DEFAULT,
        overflow: str = "drop_oldest",
        as_type: Any = None,
        in_batches: bool = False,
        passive: bool = False,
    ) -> Subscription:
        """Get the messages to a topic, or to all topics that a pattern, or one of several, matches.

        A message that several of the patterns match comes once.

        With a handler, plain or async, tasks call it for one message after the other; what it
        raises is logged. Without, iterate over the subscription or `get` from it.

        At most `maxsize` messages wait. When they are not read fast enough, `overflow` decides:
        drop_oldest, drop_newest; error (get() raises QueueFullError where messages are missing);
        block (the whole bus stops receiving until there is room: what the kernel then drops is
        in stats() as kernel_drops, and replies are late, too).

        `in_batches`: the handler gets a list, of at least one message, all that came together; for
        who can do with many at once what costs much for each alone.

        `passive`: get what travels for others anyway, and ask for nothing: no node learns of it,
        so nothing is sent because of it; of a reliable topic nothing that got lost on the way here
        is sent again, and no retained values are given. For who watches the bus.

        `as_type`, a dataclass, makes `message.value` an instance of it; messages that do not fit
        are dropped, counted, and warned of once.

        Raises InvalidTopicError, ConfigError, ClosedError.
        """
        subscription = self._make_subscription(
            pattern,
            handler,
            self._unsubscribe,
            self._change_patterns,
            maxsize=maxsize,
            overflow=overflow,
            as_type=as_type,
            in_batches=in_batches,
            passive=passive,
        )
        self._loop.attach(
            subscription,
            lambda node, now: node.subscribe_all(
                subscription.patterns, subscription, now, is_passive=passive
            ),
        )
        return subscription

    def on(
        self,
        pattern: str | Sequence[str],
        *,
        maxsize: int = MAXSIZE_DEFAULT,
        overflow: str = "drop_oldest",
        as_type: Any = None,
    ) -> Callable[[H], H]:
        """`subscribe` as a decorator of the handler."""

        def decorate(handler: H) -> H:
            self.subscribe(pattern, handler, maxsize=maxsize, overflow=overflow, as_type=as_type)
            return handler

        return decorate

    def on_node(self, handler: EventHandler[NodeEvent]) -> Watch[NodeEvent]:
        """Tell the handler of nodes that join, leave or expire, with a NodeEvent for each.

        The nodes that are known already are reported as joined first, each once: so nobody is
        missed, whenever this is called. This node itself is not reported. "left" said goodbye,
        "expired" was not heard for too long: a crash, or the network. One that was only cut off
        joins again.

        The handler, plain or async, runs as those of subscriptions do, for one event after the
        other; what it raises is logged. Should more than 10,000 events wait for it, the oldest are
        dropped, and counted in stats() as node_events_dropped. Close what this returns to be told
        no more. Also a decorator: `@bus.on_node`.

        Raises ConfigError, ClosedError.
        """
        from jsonbus.frontend.presence import NODES

        check_handler(handler, may_be_async=True)
        return self._loop.make_watch(NODES, handler, self._end_watch)

    def on_gap(self, handler: EventHandler[GapEvent]) -> Watch[GapEvent]:
        """Tell the handler of messages that will not come any more, with a GapEvent for each gap.

        Such are messages of a reliable topic that this bus subscribes to and that were asked for in
        vain: their publisher no longer keeps them, or is no longer there. Subscriptions go on with
        what follows; the handler runs beside theirs, so it may be told earlier or later than they
        are. Losses of other topics are counted only.

        All else is as with `on_node`; what a slow handler drops is counted as gap_events_dropped.

        Raises ConfigError, ClosedError.
        """
        from jsonbus.frontend.gaps import GAPS

        check_handler(handler, may_be_async=True)
        return self._loop.make_watch(GAPS, handler, self._end_watch)

    def serve(self, topic: str, handler: Handler) -> Subscription:
        """Answer requests to a topic with what the handler returns; close the result to stop.

        What it raises becomes a RequestFailedError where the request came from.
        Raises InvalidTopicError, ClosedError, LocalError if this bus serves the topic already.
        """
        check_handler(handler, may_be_async=True)
        answer = partial(self._requests.answer, handler)
        service = self._make_subscription(topic, answer, self._stop_serving, _refuse_change)
        self._loop.attach(service, partial(self._requests.serve, service))
        return service

    async def request(
        self,
        topic: str,
        value: Any = None,
        timeout: float = 1.0,  # noqa: ASYNC109 - as in Bus
    ) -> Any:
        """Ask whoever serves the topic, and wait for the answer.

        Raises NobodyServesError as soon as that is known, RequestFailedError if serving failed,
        RequestTimeoutError; LocalError in a handler that would wait for itself. And what publish
        raises.
        """
        return await self._requests.request(topic, value, check_seconds("timeout", timeout))

    async def ping(self, timeout: float = 1.0) -> list[Pong]:  # noqa: ASYNC109 - as in Bus
        """Who answers within the time, nearest first; waits for all of it."""
        return await self._requests.ping(check_seconds("timeout", timeout))

    def bind(
        self,
        port: str | int,
        on_accept: Callable[[Channel], Any] | None = None,
        *,
        exclusive: bool = False,
    ) -> Binding:
        """Let other nodes open channels to a port of this one, a name or a number.

        `on_accept`, plain or async, is called with each channel, as handlers of subscriptions are;
        without it, `accept` from the binding, or iterate over it. `exclusive`: one channel at a
        time.

        Raises ConfigError, ClosedError, TransportError; LocalError if the port is bound already.
        """
        return self._make_channels().bind(port, on_accept, exclusive=exclusive)

    async def connect(
        self,
        node: str,
        port: str | int,
        timeout: float = 1.0,  # noqa: ASYNC109 - as in Bus
        *,
        retry: bool = False,
        wait: bool = True,
    ) -> Channel:
        """Open a channel to a port of another node, which is named by its name or its id.

        Raises ChannelRefusedError, whose `reason` tells why there is none, as soon as that is
        known; ChannelTimeoutError. With `retry`, tries again until the time is over where that may
        help: the node is not there yet, or nothing is bound, or the port is taken.

        With `wait=False` returns at once: `on_accept` or `on_refused` of the channel are called
        later, and what waits on it waits for that first.
        """
        return await self._make_channels().connect(node, port, timeout, retry=retry, wait=wait)

    def has_subscribers(self, topic: str) -> bool:
        """Whether anybody, this bus included, is known to want the topic."""
        return self._loop.look(lambda node, now: node.has_subscribers(topic))

    async def wait_for_subscribers(
        self,
        topic: str,
        timeout: float = 1.0,  # noqa: ASYNC109 - as in Bus
    ) -> bool:
        """Whether anybody wanted the topic in time."""
        timeout_s = check_seconds("timeout", timeout)
        return await self._loop.wait_for(lambda node: node.has_subscribers(topic), timeout_s)

    async def wait_until_sure(self, timeout: float = 2.0) -> bool:  # noqa: ASYNC109 - as in Bus
        """Whether this node knew in time who is there; until then, it holds what it publishes."""
        timeout_s = check_seconds("timeout", timeout)
        return await self._loop.wait_for(lambda node: node.state == "sure", timeout_s)

    def explain(self, topic: str) -> Explanation:
        """Why a publish to the topic would be sent, held or suppressed now."""
        return self._loop.look(lambda node, now: node.explain(topic, now))

    def nodes(self) -> list[NodeInfo]:
        """The nodes known to be on the bus, this one included."""
        return self._loop.look(Node.nodes)

    def subscriptions(self) -> dict[str, list[str]]:
        """Which nodes, by id, want each pattern; this one included."""
        return self._loop.look(lambda node, now: node.subscriptions())

    def stats(self) -> dict[str, int]:
        """Counters of everything sent, received, suppressed, lost, dropped and refused."""
        return self._loop.stats()

    async def flush(self, timeout: float = 2.0) -> bool:  # noqa: ASYNC109 - as in Bus
        """Whether everything published so far left in time, messages held while joining included.

        One that nobody turns out to want counts as left.
        """
        return await self._loop.flush(check_seconds("timeout", timeout))

    async def close(self, timeout: float = CLOSE_S) -> None:  # noqa: ASYNC109 - as in Bus
        """Say goodbye and end everything, within `timeout` seconds and a half.

        Sends what was published. Ends iterations; blocked get() and request() raise ClosedError.
        Messages that were not read yet are dropped and counted. Handlers get the time to finish,
        then they are cancelled; a handler may call this itself. A second call waits for the first.
        """
        await self._loop.close(check_seconds("timeout", timeout))

    async def __aenter__(self) -> AsyncBus:
        self._loop.check_here()
        if self._loop.is_closed:
            raise closed_error()
        if self._is_entered:
            raise LocalError("this bus is in a with block already: open another one")
        self._is_entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncBus {self.name} {self._config.group}:{self._config.port} {self.state}>"

    def __del__(self) -> None:
        # Opening may have failed: then there is none.
        loop: Loop | None = getattr(self, "_loop", None)
        if loop is not None and not loop.is_closed:
            loop.abandon()
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    def _make_channels(self) -> Channels:
        """All about channels, from the first one on: most programs have none."""
        from jsonbus.aio.channels import Channels

        return self._loop.have_channels(lambda: Channels(self._loop, self._node.settings, self))

    def _make_subscription(
        self,
        pattern: str | Sequence[str],
        handler: Handler | None,
        release: Callable[[Subscription], None],
        change: Callable[[Subscription, str, bool], bool],
        *,
        maxsize: int = MAXSIZE_DEFAULT,
        overflow: str = "drop_oldest",
        as_type: Any = None,
        in_batches: bool = False,
        passive: bool = False,
    ) -> Subscription:
        if handler is not None:
            check_handler(handler, may_be_async=True)
        return Subscription(
            pattern,
            handler,
            maxsize=maxsize,
            overflow=overflow,
            as_type=as_type,
            in_batches=in_batches,
            is_passive=passive,
            log=self._loop.log,
            discards=self._loop.discards,
            event_loop=self._loop.event_loop,
            check_here=self._loop.check_here,
            schedule=self._loop.workers.schedule,
            release=release,
            change=change,
            wake=self._loop.wake,
        )

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._loop.detach(
            subscription,
            lambda node, now: node.unsubscribe_all(subscription.patterns, subscription, now),
        )

    def _change_patterns(self, subscription: Subscription, pattern: str, is_wanted: bool) -> bool:
        def act(node: Node, now: float) -> bool:
            if subscription.has_pattern(pattern) is is_wanted:
                return False
            if is_wanted:
                node.subscribe(pattern, subscription, now, is_passive=subscription.is_passive)
            else:
                node.unsubscribe(pattern, subscription, now)
            subscription.note_pattern(pattern, is_wanted=is_wanted)
            return True

        return self._loop.amend(subscription, act)

    def _end_watch(self, watch: Watch[Any]) -> None:
        self._loop.end_watch(watch)

    def _stop_serving(self, service: Subscription) -> None:
        self._loop.detach(service, partial(self._requests.stop_serving, service))


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise LocalError(
            "an AsyncBus opens in a running event loop: make it in a coroutine, or use Bus"
        ) from None


def _refuse_change(service: Subscription, pattern: str, is_wanted: bool) -> bool:
    raise LocalError(f"{service.pattern!r} is served: serve another topic with another call")
