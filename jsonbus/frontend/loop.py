"""The loop of a bus, as far as it is the same with threads and tasks.

A loop is where transport, clock and core meet: it drives one node. This part keeps what belongs to
the bus: subscriptions, watches, channels, counters, and whether it is closed. How calls reach the
node, and how datagrams, timers and handlers are served, differs: sync/loop.py and aio/loop.py.

`lock` guards the node. With threads it is a lock; with tasks it does nothing, because everything
runs in one thread and between two awaits nothing else does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from jsonbus.config import BusConfig
from jsonbus.core.events import Event, NodeJoined, NodeLeft
from jsonbus.core.node import Node
from jsonbus.errors import ClosedError, LocalError
from jsonbus.frontend.channels.counters import NO_CHANNELS
from jsonbus.frontend.checks import check_handler
from jsonbus.frontend.compartments import Compartments, GapRelay
from jsonbus.frontend.lifetime import closed_error, note_open
from jsonbus.frontend.limits import DEAF_S, INTERFACES_S
from jsonbus.frontend.log import BusLog
from jsonbus.frontend.opening import datagram_bytes, transport_figures
from jsonbus.frontend.subscription import BaseSubscription, DiscardCounter
from jsonbus.frontend.watch import BaseWatch, Watches
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from jsonbus.frontend.channels.channels import BaseChannels
    from jsonbus.frontend.outgoing import BaseOutgoing
    from jsonbus.frontend.requests import BaseRequests

T = TypeVar("T")


class _Workers(Protocol):
    """What runs handlers: threads (sync/thread_pool.py) or tasks (aio/workers.py)."""

    def start_workers(self) -> None:
        """Start what runs handlers, for the first one. Raises TransportError."""

    def schedule(self, handled: Any) -> None:
        """Have the handler of a subscription, watch or channel run."""

    def are_current(self) -> bool:
        """Whether the caller is one of them."""

    def request_stop(self) -> None:
        """Let each end after the handler that it is running."""


S = TypeVar("S", bound=BaseSubscription)
C = TypeVar("C", bound="BaseChannels[Any, Any]")


class BaseLoop(ABC, Generic[S, C]):
    """Drives one node; `S` are its subscriptions, `C` its channels."""

    workers: _Workers
    requests: BaseRequests
    _outgoing: BaseOutgoing
    #: Whether handlers may be async functions.
    takes_async_handlers: ClassVar[bool]
    #: How many handlers may run at once, unless the settings say so.
    workers_default: ClassVar[int]

    def __init__(
        self,
        node: Node,
        transport: Transport,
        config: BusConfig,
        lock: AbstractContextManager[Any],
        channels_lock: AbstractContextManager[Any],
        common: BaseLoop[S, C] | None = None,
    ) -> None:
        """`common` is the loop of the common topics, if this one is for a compartment."""
        self.lock = lock
        self.log: BusLog = BusLog(node.settings.name) if common is None else common.log
        self._is_part = common is not None
        #: The parts of the bus, in the loop of the common topics; None if there are none.
        self.compartments: Compartments[Any] | None = None
        self.discards = DiscardCounter()
        #: The topics that this bus serves.
        self.services: dict[str, S] = {}
        #: Made when the bus is first asked for a channel.
        self.channels: C | None = None
        self.config = config
        self.workers_max = config.workers or self.workers_default
        self.node = node
        self.transport = transport
        self._channels_lock = channels_lock
        self._takes_channels = True
        self._subscriptions: set[S] = set()
        self.watches: Watches = Watches(lock) if common is None else GapRelay(lock, common.watches)
        self._overflowed = 0  # messages for which subscriptions that are closed had no room
        self._figures: dict[str, int] | None = None  # the transport's, once it is closed
        self._looks_at = monotonic() + INTERFACES_S  # for interfaces that came or went
        self._is_closing = False
        self._is_cut_off = False

    @property
    def is_closed(self) -> bool:
        return self._is_closing

    @property
    def with_parts(self) -> tuple[Self, ...]:
        """This loop, and those of the bus's parts."""
        if self.compartments is None:
            return (self,)
        return (self, *[part._loop for part in self.compartments.parts])

    @abstractmethod
    def check_here(self) -> None:
        """Raise unless the bus may be used here: in this process, thread and event loop."""

    @abstractmethod
    def call(self, act: Callable[[Node, float], T]) -> T:
        """Call the node, then send, deliver and report what that caused."""

    @abstractmethod
    def wake(self) -> None:
        """Have the receiver check whether a full mailbox still blocks it."""

    @abstractmethod
    def set_timer(self, at: float) -> None:
        """Have the node's timers served at that time at the latest. Lock held."""

    @abstractmethod
    def tend_soon(self) -> None:
        """Have timers, output and events looked at."""

    @abstractmethod
    def close_at_once(self) -> None:
        """Close the bus without a word to its user: the interpreter ends, or opening failed."""

    @abstractmethod
    def notify(self) -> None:
        """Wake the callers that wait for the node's state to change. Lock held."""

    def prepare_handler(self, handler: Any) -> None:
        """Check a handler, and start what runs it. Raises ConfigError, TransportError."""
        self.check_here()  # first: a forked child must not start workers
        check_handler(handler, may_be_async=self.takes_async_handlers)
        self.workers.start_workers()

    def look(self, see: Callable[[Node, float], T]) -> T:
        """Look something up in the node, or note it there; send nothing. Works when closed."""
        self.check_here()
        with self.lock:
            return see(self.node, monotonic())

    def attach(self, subscription: S) -> None:
        """Subscribe, or serve. Raises InvalidTopicError, ClosedError, LocalError."""

        patterns = self._common_ones(subscription.patterns)

        def act(node: Node, now: float) -> None:
            if subscription.is_service:
                node.requests.serve(subscription.pattern, subscription, now)
                self.services[subscription.pattern] = subscription
            else:
                node.subscribe(patterns, subscription, now, is_passive=subscription.is_passive)
            self._subscriptions.add(subscription)
            self.notify()  # it may be the subscriber that a caller waits for

        self.call(act)
        if not subscription.is_service:
            self._have_followed(subscription, subscription.patterns)
            self.log.warn_of_wildcards(subscription.patterns)

    def change_pattern(self, subscription: S, pattern: str, *, is_wanted: bool) -> bool:
        """Add or remove a pattern of an open subscription; False if nothing changed.

        Raises InvalidTopicError; ClosedError if the subscription has ended; LocalError for a
        service.
        """
        if subscription.is_service:
            raise LocalError(
                f"{subscription.pattern!r} is served: serve another topic with another call"
            )

        patterns = self._common_ones((pattern,))

        def act(node: Node, now: float) -> bool:
            if subscription not in self._subscriptions:
                raise ClosedError(f"the subscription to {subscription.pattern!r} is closed")
            if subscription.has_pattern(pattern) is is_wanted:
                return False
            if is_wanted:
                node.subscribe(patterns, subscription, now, is_passive=subscription.is_passive)
            else:
                node.unsubscribe(patterns, subscription, now)
            subscription.note_pattern(pattern, is_wanted=is_wanted)
            self.notify()
            return True

        has_changed = self.call(act)
        if has_changed:
            self._have_followed(subscription, (pattern,))
        if has_changed and is_wanted:
            self.log.warn_of_wildcards((pattern,))
        return has_changed

    def detach(self, subscription: S) -> None:
        """End a subscription or service. Idempotent."""
        if self._is_cut_off or subscription.is_closed:
            return

        def act(node: Node, now: float) -> bool:
            if subscription not in self._subscriptions:
                return False
            self._subscriptions.remove(subscription)
            if subscription.is_service:
                node.requests.unserve(subscription.pattern, now)
                del self.services[subscription.pattern]
            else:
                node.unsubscribe(subscription.patterns, subscription, now)
            return True

        if self.call(act):
            self._have_followed(subscription, subscription.patterns)
            self._end_subscription(subscription)

    def begin_watch(self, watch: BaseWatch[Any]) -> None:
        """Give a watch the current state of its subject, then all events."""
        self.check_here()
        with self.lock:
            if self._is_closing:
                raise closed_error()
            # Events that were not reported yet happened before: they are for earlier watches.
            events = self._take_events()
            watch.begin(self.node, monotonic())
            self.watches.add(watch)
        watch.schedule()
        self._report(events)

    def end_watch(self, watch: BaseWatch[Any]) -> None:
        """Give a watch no more events. Idempotent."""
        if not (watch.is_closed or self._is_cut_off):
            self.check_here()
            self.watches.end(watch)

    def stats(self) -> dict[str, int]:
        """Return the counters of node, transport, mailboxes, watches and channels."""
        self.check_here()
        with self.lock:
            figures = self.node.view.stats()
            figures |= self._outgoing.figures
            figures["messages_dropped"] = (
                self.discards.dropped
                + self._overflowed
                + sum(subscription.overflowed for subscription in self._subscriptions)
            )
            figures["messages_unread"] = self.discards.unread
            figures |= self.watches.figures()
            figures |= NO_CHANNELS if self.channels is None else self.channels.manager.figures()
            figures |= self._figures or transport_figures(self.transport)
            return figures

    def wake_receivers(self) -> None:
        """Have all receivers of the bus check whether a full mailbox still blocks them."""
        for loop in self.with_parts:
            loop.wake()

    def have_channels(self, make: Callable[[], C]) -> C:
        """Return the channels of the bus; make them first if there are none.

        Raises ClosedError, TransportError.
        """
        self.check_here()
        with self._channels_lock:
            if not self._takes_channels:
                raise closed_error()
            if self.channels is None:
                self.channels = make()
            return self.channels

    def addresses(self) -> list[str]:
        """Return the addresses of this machine by which the node is on the bus."""
        return [each.address for each in self.transport.describe().interfaces]

    def cut_off(self) -> None:
        """Release the descriptors in a forked child (lifetime.py). Takes no lock.

        A thread that does not exist here may hold the lock.
        """
        self._is_cut_off = True
        self._is_closing = True
        self.node.fast_publish.forget()
        for subscription in tuple(self._subscriptions):
            subscription.cut_off()
        self.watches.cut_off()
        if self.channels is not None:
            self.channels.cut_off()
        self.transport.close()

    def _common_ones(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the patterns that this loop's node has to know. Raises InvalidTopicError."""
        return patterns if self.compartments is None else self.compartments.common_ones(patterns)

    def _have_followed(self, subscription: S, patterns: tuple[str, ...]) -> None:
        """Have the parts do what became of these patterns of a subscription here."""
        if self.compartments is not None:
            self.compartments.follow(
                subscription,
                patterns,
                lambda each: subscription in self._subscriptions and subscription.has_pattern(each),
            )

    def _take_events(self) -> list[Event]:
        """Take the node's events, for the caller to `_report`. Lock held.

        Watches get them here, under the lock, so that they are in order whichever thread takes
        them from the node.
        """
        events = self.node.take_events()
        if events:
            self.notify()
            self.watches.put(events)
        return events

    def _report(self, events: list[Event]) -> None:
        """Run watches, hand out answers and log. Lock not held: logging may block."""
        if not events:
            return
        self.watches.schedule()
        if self.channels is not None:
            self.channels.manager.look()
        for event in events:
            is_told = self._is_part and isinstance(event, NodeJoined | NodeLeft)
            if not is_told and not self.requests.give(event):
                self.log.report(event)

    def hear_again(self, deaf_s: float) -> None:
        """Note that the bus reads again after it was blocked."""
        if deaf_s >= DEAF_S:
            reason = f"this node did not listen for {deaf_s:.1f} s"
            with self.lock:
                self.node.doubt_network(reason, monotonic())
            self.tend_soon()

    def _join(self) -> None:
        """Join the bus: the transport is read from now on."""
        note_open(self)
        self.node.outbox.allow_bytes(*datagram_bytes(self.config, self.transport))
        self.call(Node.open)

    def _follow_interfaces(self, now: float) -> None:
        """Now and then: join the group on interfaces that came. Lock not held."""
        if now < self._looks_at or self._is_closing:
            return
        self._looks_at = now + INTERFACES_S
        if self.transport.rejoin():
            with self.lock:
                self.node.outbox.allow_bytes(*datagram_bytes(self.config, self.transport))
                self.node.doubt_network("the network interfaces changed", now)
            if self.channels is not None:
                self.channels.manager.listener.follow_addresses()

    def _end_subscription(self, subscription: S) -> None:
        subscription.end()
        with self.lock:
            self._overflowed += subscription.overflowed

    def _end_all(self) -> None:
        """End everything that waits or runs, without waiting for it. Lock not held."""
        with self.lock:
            subscriptions, self._subscriptions = self._subscriptions, set()
        for subscription in subscriptions:
            self._end_subscription(subscription)
        self.watches.end_all()
        self.requests.give_up()
        self.workers.request_stop()
