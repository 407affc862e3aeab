"""Bus: what an application with threads opens."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from jsonbus.config import BusConfig, BusSettings, load
from jsonbus.core.node import Node
from jsonbus.core.wire.codec import dumps_plain
from jsonbus.errors import LocalError
from jsonbus.frontend.checks import check_handler, check_seconds
from jsonbus.frontend.events import Pong
from jsonbus.frontend.lifetime import closed_error
from jsonbus.frontend.opening import make_node, open_transport
from jsonbus.frontend.subscription import MAXSIZE_DEFAULT
from jsonbus.sync.loop import CLOSE_S, Loop
from jsonbus.sync.requests import Requests
from jsonbus.sync.subscription import Handler, Subscription
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from jsonbus.core.views import Explanation, NodeInfo
    from jsonbus.frontend.gaps import GapEvent
    from jsonbus.frontend.presence import NodeEvent
    from jsonbus.sync.channel import Channel
    from jsonbus.sync.channels import Binding, Channels
    from jsonbus.sync.watch import EventHandler, Watch

H = TypeVar("H", bound=Handler)


class Bus:
    """A node of the bus, open from its making until `close`.

        with jsonbus.Bus(name="kitchen") as bus:
            bus.subscribe("alarm/**", handler=print)
            bus.publish("sensors/kitchen", {"temp": 21.5})

    Keywords are those of `BusSettings`; each has a `JSONBUS_…` environment variable. Raises
    ConfigError for wrong settings and TransportError if the network refuses.

    Every method may be called from any thread, handlers included, but not from a signal handler,
    which may interrupt a call that holds the lock: raise, or set a flag, there. After `close`,
    methods raise ClosedError, except for those that only look. In a process forked after the bus
    was opened they raise ForkedError.
    """

    def __init__(self, **settings: Unpack[BusSettings]) -> None:
        config = load(**settings)
        self._open(config, open_transport(config))

    @classmethod
    def over(cls, transport: Transport, **settings: Unpack[BusSettings]) -> Bus:
        """A bus over a transport that is open already, such as one in memory; closes it, too."""
        bus = cls.__new__(cls)
        bus._open(load(**settings), transport)
        return bus

    def _open(self, config: BusConfig, transport: Transport) -> None:
        self._config = config
        self._node = make_node(config, transport.describe().queue_bytes_max)
        self._is_entered = False
        self._is_reliable = config.reliable
        loop = Loop(self._node, transport, config)
        loop.start()
        self._loop = loop
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

    def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> bool:
        """Send a value to all who subscribed to the topic.

        True: it was sent, or is held until this node knows who is there, or went to a subscription
        of this bus, or is retained. False: nobody wants it, so nothing was sent.

        `reliable`: whoever misses it gets it again, in order with the topic's other reliable ones;
        None is as the bus was opened. `retain`: it is given, flagged as retained, to whoever
        subscribes later, until the next one is; None as value ends that.

        Sends from the calling thread, at once unless another thread is sending or another message
        has just left: then messages share datagrams, which leave about a millisecond later. Blocks
        while the network takes less than is published, and while a subscription of this bus with
        overflow="block" is full and another thread reads it; a reliable message also while
        subscribers ask for so much again that it would be lost. A network that is down raises
        nothing: the loss is logged and counted.

        Raises InvalidTopicError, PayloadError (also PayloadTooLargeError), ClosedError.
        """
        if retain or (self._is_reliable if reliable is None else reliable):
            is_reliable = self._is_reliable if reliable is None else reliable
            return self._publishing.publish_kept(topic, value, reliable=is_reliable, retain=retain)
        # The short way; core/express.py explains it.
        try:
            lane = self._lane_of(topic)
            payload = dumps_plain(value) if lane else b""
        except TypeError:
            # A topic that is none, or a value that takes more than one try.
            return self._publishing.publish(topic, value)
        if lane:
            express = self._express
            if (self._gathered or express.is_flood) and len(payload) <= express.size_max:
                self._gathered.append(lane + payload)
                if len(self._gathered) < express.limit:
                    return True
                return self._publishing.attend()
            if len(lane) + len(payload) <= express.whole_max:
                return self._publishing.publish_encoded(lane, payload)
            if len(payload) <= self._config.value_bytes_max:
                return self._publishing.publish_large(lane, payload)
        elif lane is not None:
            next(self._express.suppressed)
            return False
        return self._publishing.publish(topic, value)

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

        With a handler, workers call it for one message after the other; what it raises is logged.
        Without, iterate over the subscription or `get` from it.

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

        The handler runs as those of subscriptions do, for one event after the other; what it
        raises is logged. Should more than 10,000 events wait for it, the oldest are dropped, and
        counted in stats() as node_events_dropped. Close what this returns to be told no more. Also
        a decorator: `@bus.on_node`.

        Raises ConfigError, ClosedError.
        """
        from jsonbus.frontend.presence import NODES

        check_handler(handler, may_be_async=False)
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

        check_handler(handler, may_be_async=False)
        return self._loop.make_watch(GAPS, handler, self._end_watch)

    def serve(self, topic: str, handler: Handler) -> Subscription:
        """Answer requests to a topic with what the handler returns; close the result to stop.

        What it raises becomes a RequestFailedError where the request came from.
        Raises InvalidTopicError, ClosedError, LocalError if this bus serves the topic already.
        """
        check_handler(handler, may_be_async=False)
        answer = partial(self._requests.answer, handler)
        service = self._make_subscription(topic, answer, self._stop_serving, _refuse_change)
        self._loop.attach(service, partial(self._requests.serve, service))
        return service

    def request(self, topic: str, value: Any = None, timeout: float = 1.0) -> Any:
        """Ask whoever serves the topic, and wait for the answer.

        Raises NobodyServesError as soon as that is known, RequestFailedError if serving failed,
        RequestTimeoutError; LocalError in a handler that would wait for itself. And what publish
        raises.
        """
        return self._requests.request(topic, value, check_seconds("timeout", timeout))

    def ping(self, timeout: float = 1.0) -> list[Pong]:
        """Who answers within the time, nearest first; waits for all of it."""
        return self._requests.ping(check_seconds("timeout", timeout))

    def bind(
        self,
        port: str | int,
        on_accept: Callable[[Channel], Any] | None = None,
        *,
        exclusive: bool = False,
    ) -> Binding:
        """Let other nodes open channels to a port of this one, a name or a number.

        `on_accept` is called with each channel, as handlers of subscriptions are; without it,
        `accept` from the binding, or iterate over it. `exclusive`: one channel at a time.

        Raises ConfigError, ClosedError, TransportError; LocalError if the port is bound already.
        """
        return self._make_channels().bind(port, on_accept, exclusive=exclusive)

    def connect(
        self,
        node: str,
        port: str | int,
        timeout: float = 1.0,
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
        return self._make_channels().connect(node, port, timeout, retry=retry, wait=wait)

    def has_subscribers(self, topic: str) -> bool:
        """Whether anybody, this bus included, is known to want the topic."""
        return self._loop.look(lambda node, now: node.has_subscribers(topic))

    def wait_for_subscribers(self, topic: str, timeout: float = 1.0) -> bool:
        """Whether anybody wanted the topic in time."""
        timeout_s = check_seconds("timeout", timeout)
        return self._loop.wait_for(lambda node: node.has_subscribers(topic), timeout_s)

    def wait_until_sure(self, timeout: float = 2.0) -> bool:
        """Whether this node knew in time who is there; until then, it holds what it publishes."""
        timeout_s = check_seconds("timeout", timeout)
        return self._loop.wait_for(lambda node: node.state == "sure", timeout_s)

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

    def flush(self, timeout: float = 2.0) -> bool:
        """Whether everything published so far left in time, messages held while joining included.

        One that nobody turns out to want counts as left.
        """
        return self._loop.flush(check_seconds("timeout", timeout))

    def close(self, timeout: float = CLOSE_S) -> None:
        """Say goodbye and end everything, within `timeout` seconds and a half.

        Sends what was published. Ends iterations; blocked get() and request() raise ClosedError.
        Messages that were not read yet are dropped and counted. Handlers get the time to finish;
        a handler may call this itself. A second call waits for the first.
        """
        self._loop.close(check_seconds("timeout", timeout))

    def __enter__(self) -> Bus:
        if self._loop.is_closed:
            raise closed_error()
        if self._is_entered:
            raise LocalError("this bus is in a with block already: open another one")
        self._is_entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Bus {self.name} {self._config.group}:{self._config.port} {self.state}>"

    def __del__(self) -> None:
        # Opening may have failed: then there is none.
        loop: Loop | None = getattr(self, "_loop", None)
        if loop is not None and not loop.is_closed:
            # Not close(): whichever thread this happens in may hold the lock.
            loop.abandon()
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    def _make_channels(self) -> Channels:
        """All about channels, from the first one on: most programs have none."""
        from jsonbus.sync.channels import Channels

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
            check_handler(handler, may_be_async=False)
            self._loop.workers.start_workers()
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
            schedule=self._loop.workers.schedule,
            will_wait=self._loop.workers.will_wait,
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


def _refuse_change(service: Subscription, pattern: str, is_wanted: bool) -> bool:
    raise LocalError(f"{service.pattern!r} is served: serve another topic with another call")
