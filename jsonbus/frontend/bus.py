"""BaseBus: the methods that `Bus` and `AsyncBus` have in common.

These are plain calls in both: none of them waits. The methods that wait or publish are in
sync/bus.py and aio/bus.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from jsonbus.config import BusConfig, BusSettings, load
from jsonbus.core.mailbox import Overflow
from jsonbus.core.message import Message
from jsonbus.errors import LocalError
from jsonbus.frontend.lifetime import closed_error
from jsonbus.frontend.limits import MAXSIZE_DEFAULT
from jsonbus.frontend.loop import BaseLoop
from jsonbus.frontend.opening import load_keys, make_node, open_transport, seal
from jsonbus.frontend.options import Handler, MailboxKeywords, Patterns, SubscribeOptions, T
from jsonbus.frontend.subscription import BaseSubscription
from jsonbus.frontend.watch import GAPS, NODES, BaseWatch, EventHandler, GapEvent, NodeEvent
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from types import UnionType
    from typing import _SpecialForm

    from jsonbus.core.views import Explanation, NodeInfo

#: The types of a front end: its subscriptions, its watches of nodes and of gaps, its channels and
#: bindings.
S = TypeVar("S", bound=BaseSubscription[Any])
NodeWatch = TypeVar("NodeWatch", bound=BaseWatch[NodeEvent])
GapWatch = TypeVar("GapWatch", bound=BaseWatch[GapEvent])
C = TypeVar("C")
B = TypeVar("B")
H = TypeVar("H", bound=Handler)
R = TypeVar("R")  # the result of a handler


class BaseBus(Generic[S, NodeWatch, GapWatch, C, B]):
    """The base of `Bus` and `AsyncBus`."""

    _subscription_type: type[S]
    _watch_type: type[Any]
    _loop: BaseLoop[S, Any]

    def __init__(self, **settings: Unpack[BusSettings]) -> None:
        self._check_event_loop()
        config = load(**settings)
        self._open(config, open_transport(config))

    @classmethod
    def over(cls, transport: Transport, **settings: Unpack[BusSettings]) -> Self:
        """Open a bus over a transport that is open already, such as one in memory.

        The bus owns the transport from then on, and closes it.
        """
        bus = cls.__new__(cls)
        bus._check_event_loop()
        config = load(**settings)
        keys = load_keys(config)
        bus._open(config, transport if keys is None else seal(transport, keys))
        return bus

    def _open(self, config: BusConfig, transport: Transport) -> None:
        self._config = config
        self._is_reliable = config.reliable
        self._is_entered = False
        self._node = make_node(config, transport.describe().queue_bytes_max)
        self._start(transport)
        # For `publish`, which has no time to look them up.
        self._fast_publish = self._node.fast_publish
        self._queued = self._fast_publish.queued
        self._prefix_of = self._fast_publish.prefixes.get
        self._reliable_prefix_of = self._fast_publish.reliable_prefixes.get

    @property
    def name(self) -> str:
        """The name of this node, for people; several nodes may have the same name."""
        return self._node.settings.name

    @property
    def id(self) -> str:
        """Globally unique id of this node."""
        return self._node.settings.node

    @property
    def config(self) -> BusConfig:
        """The settings that the bus was opened with."""
        return self._config

    @property
    def sealed(self) -> str | None:
        """The name of the sealed bus, from its key file; None if everybody may read and write."""
        found = self._loop.transport.describe().seal
        return None if found is None else found.bus

    @property
    def state(self) -> str:
        """The state of this node.

        joining: it does not know all subscriptions yet, so it holds the messages that it publishes.
        sure: it knows them, and sends only what somebody wants. doubting: it may have missed some,
        so it sends everything. closed: after `close`.
        """
        return "closed" if self._loop.is_closed else self._node.state

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._loop.is_closed

    def subscribe(
        self,
        pattern: str | Sequence[str],
        handler: Handler | None = None,
        *,
        maxsize: int = MAXSIZE_DEFAULT,
        overflow: Overflow = "drop_oldest",
        as_type: Any = None,
        in_batches: bool = False,
        passive: bool = False,
    ) -> S:
        """Receive the messages to a topic, or to all topics that match a pattern.

            bus.subscribe("sensors/*", handler=print)
            alarms = bus.subscribe("alarm/**")      # iterate, or call get()

        Args:
            pattern: a topic or a pattern, or several of them. `*` stands for one level, `**`
                for any number. A message that several patterns match arrives once.
            handler: a function of one message. Workers call it for one message after the other;
                if it raises, the error is logged, and it is called with the next message.
                `AsyncBus` also takes async functions. Without a handler, iterate over the
                subscription, or call its `get`.
            maxsize: how many messages may wait for the handler or reader.
            overflow: what happens when more messages arrive. "drop_oldest" and "drop_newest" drop
                and count them. "error" makes `get` raise QueueFullError at the place where messages
                are missing. "block" stops receiving for the whole bus until there is room: what the
                kernel drops meanwhile is in stats() as kernel_drops, and replies are late, too.
            as_type: a dataclass, TypedDict, NamedTuple, attrs class, msgspec Struct or pydantic
                model, or a type of their fields; `message.value` is then an instance of it, and
                type checkers know. Messages that do not fit are dropped, counted, and logged once
                with the path of the field. Needs the extra `typed`.
            in_batches: call the handler with a list of at least one message: all that arrived
                together. Use it when handling a batch is cheaper than handling messages one by one.
            passive: only look on. Messages arrive if they are sent for another subscriber anyway.
                No other node learns of this subscription, so nothing is sent because of it, lost
                messages of reliable topics are not repaired, and no retained values are delivered.

        Returns the subscription: close it to unsubscribe.

        Raises InvalidTopicError, ConfigError, ClosedError.
        """
        if handler is not None:
            self._loop.prepare_handler(handler)
        options = SubscribeOptions(
            pattern, handler, maxsize, overflow, as_type, in_batches, passive
        )
        return self._subscribe(options)

    @overload
    def on(
        self, pattern: Patterns, *, as_type: type[T], **options: Unpack[MailboxKeywords]
    ) -> Callable[[Callable[[Message[T]], R]], Callable[[Message[T]], R]]: ...
    @overload
    def on(
        self,
        pattern: Patterns,
        *,
        as_type: UnionType | _SpecialForm | None = None,
        **options: Unpack[MailboxKeywords],
    ) -> Callable[[H], H]: ...
    def on(
        self,
        pattern: str | Sequence[str],
        *,
        maxsize: int = MAXSIZE_DEFAULT,
        overflow: Overflow = "drop_oldest",
        as_type: Any = None,
    ) -> Any:
        """Subscribe the decorated function; see `subscribe`.

        @bus.on("alarm/**")
        def alarm(message): ...
        """

        def decorate(handler: H) -> H:
            self.subscribe(pattern, handler, maxsize=maxsize, overflow=overflow, as_type=as_type)
            return handler

        return decorate

    def on_node(self, handler: EventHandler[NodeEvent]) -> NodeWatch:
        """Call a handler with a NodeEvent whenever a node joins, leaves or expires.

            @bus.on_node
            def seen(event): print(event.kind, event.name)

        The nodes that are already known are reported first, as joined, so none is missed. This node
        itself is not reported. "left" means that the node said goodbye, "expired" that it was
        silent for too long: it crashed, or the network failed. A node that was only cut off joins
        again.

        The handler runs like those of subscriptions, for one event after the other; if it raises,
        the error is logged. If more than 10,000 events wait for it, the oldest are dropped and
        counted in stats() as node_events_dropped. Close the result to stop.

        Raises ConfigError, ClosedError.
        """
        watch: NodeWatch = self._make_watch(NODES, handler)
        return watch

    def on_gap(self, handler: EventHandler[GapEvent]) -> GapWatch:
        """Call a handler with a GapEvent whenever messages of a reliable topic are lost for good.

        These are messages that this bus subscribes to and that were requested again in vain: their
        publisher no longer has them, or has left. Subscriptions go on with the messages that
        follow. The handler runs independently of theirs, so it may be called earlier or later.
        Losses of topics that are not reliable are only counted.

        Everything else is as with `on_node`. Dropped events are counted as gap_events_dropped.

        Raises ConfigError, ClosedError.
        """
        watch: GapWatch = self._make_watch(GAPS, handler)
        return watch

    def serve(self, topic: str, handler: Handler) -> S:
        """Answer requests to a topic with the handler's result.

            bus.serve("math/double", lambda request: 2 * request.value)

        Requests are answered side by side, by as many workers as the bus has (`workers`: one unless
        a Bus asks for more, 100 in an AsyncBus).

        If the handler raises, `request` raises RequestFailedError at the node that asked. Requests
        whose asker has stopped waiting are dropped before the handler runs. Close the result to
        stop serving.

        Raises InvalidTopicError, ClosedError; LocalError if this bus serves the topic already.
        """
        self._loop.prepare_handler(handler)
        answer = self._loop.requests.make_service(handler)
        return self._subscribe(SubscribeOptions(topic, answer, is_service=True))

    def bind(
        self,
        port: str | int,
        on_accept: Callable[[C], Any] | None = None,
        *,
        exclusive: bool = False,
    ) -> B:
        """Let other nodes open channels to a port of this node, a name or a number.

        `on_accept` is called with each new channel, by the workers that call handlers of
        subscriptions. Without it, call `accept` of the binding, or iterate over it. `exclusive`
        allows one channel at a time.

        Raises ConfigError, ClosedError, TransportError; LocalError if the port is bound already.
        """
        binding: B = self._make_channels().bind(port, on_accept, exclusive=exclusive)
        return binding

    # Each front end implements these: with threads they block, with tasks they are awaited.

    def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> Any:
        """Send a value to all subscribers of a topic.

            bus.publish("sensors/kitchen", {"temp": 21.5})      # await it with AsyncBus

        Args:
            topic: levels separated by `/`, without wildcards.
            value: anything that JSON can express.
            retain: keep the value, and deliver it, flagged as retained, to nodes that
                subscribe later. The next retained value replaces it; None as value removes it.
            reliable: repair losses, and deliver in order with the topic's other reliable messages.
                None means as the bus was opened.

        Returns True if the message was sent, is held until this node knows all subscribers, went to
        a subscription of this bus, or is retained; False if nobody wants it and nothing was sent.

        A single message is sent at once. Messages published soon after one another are batched:
        they leave about a millisecond later, or with AsyncBus in the same turn of the event loop or
        the next. Waits while the network takes less than is published; while a subscription of this
        bus with overflow="block" is full and another thread or task reads it; a reliable message
        also while so many repairs are requested that it would push out messages that are still
        needed. Cancelling the wait does not take the message back. If the network is down, nothing
        is raised: the loss is logged and counted.

        Raises InvalidTopicError, PayloadError (also PayloadTooLargeError), ClosedError.
        """

    def request(self, topic: str, value: Any = None, timeout: float = 1.0) -> Any:
        """Send a request to the node that serves a topic, and return its answer.

        Waits at most `timeout` seconds. Raises NobodyServesError as soon as that is known,
        RequestFailedError if the serving handler raised, RequestTimeoutError; LocalError in a
        handler that would wait for itself; and what `publish` raises.
        """

    def ping(self, timeout: float = 1.0) -> Any:
        """Ping all nodes, wait for `timeout` seconds, and return the answers, nearest first."""

    def wait_for_subscribers(self, topic: str, timeout: float = 1.0) -> Any:
        """Wait until a node is known to subscribe to the topic; False if the time is over first."""

    def wait_until_sure(self, timeout: float = 2.0) -> Any:
        """Wait until this node knows all subscriptions; False if the time is over first.

        Until then, it holds the messages that it publishes.
        """

    def flush(self, timeout: float = 2.0) -> Any:
        """Wait until everything published so far was sent; False if the time is over first.

        This includes messages that are held while joining. A message that nobody turns out to want
        counts as sent.
        """

    def has_subscribers(self, topic: str) -> bool:
        """Return whether any node, this one included, is known to subscribe to the topic."""
        return self._loop.look(lambda node, now: node.has_subscribers(topic))

    def explain(self, topic: str) -> Explanation:
        """Return why a publish to the topic would be sent, held or suppressed now."""
        return self._loop.look(lambda node, now: node.view.explain(topic))

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes known to be on the bus, this one included."""
        return self._loop.look(lambda node, now: node.view.nodes(now))

    def subscriptions(self) -> dict[str, list[str]]:
        """Return all known patterns, each with the ids of the nodes that subscribe to it."""
        return self._loop.look(lambda node, now: node.view.subscriptions())

    def stats(self) -> dict[str, int]:
        """Return counters of messages sent, received, suppressed, lost, dropped and refused."""
        return self._loop.stats()

    def __repr__(self) -> str:
        kind, config = type(self).__name__, self._config
        return f"<{kind} {self.name} {config.group}:{config.port} {self.state}>"

    def __del__(self) -> None:
        # Opening may have failed: then there is no loop.
        loop: Any = getattr(self, "_loop", None)
        if loop is not None and not loop.is_closed:
            # Not close(): the thread in which this happens may hold the lock.
            loop.abandon()
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    # For the front ends:

    def _check_event_loop(self) -> None:
        """Raise LocalError if no bus can be opened here."""

    def _start(self, transport: Transport) -> None:
        """Make the loop and join the bus."""
        raise NotImplementedError

    def _make_channels(self) -> Any:
        """Return all about channels, made with the first one: most programs have none."""
        raise NotImplementedError

    def _enter(self) -> None:
        """Begin a `with` block."""
        self._loop.check_here()
        if self._loop.is_closed:
            raise closed_error()
        if self._is_entered:
            raise LocalError("this bus is in a with block already: open another one")
        self._is_entered = True

    def _subscribe(self, options: SubscribeOptions) -> S:
        subscription = self._subscription_type(options, self._loop, self)
        self._loop.attach(subscription)
        return subscription

    def _make_watch(self, subject: Any, handler: EventHandler[Any]) -> Any:
        self._loop.prepare_handler(handler)
        watch = self._watch_type(subject, handler, self._loop, self)
        self._loop.begin_watch(watch)
        return watch
