"""Where a topic's messages go, found once per topic.

A route holds everything that publish and receive need to know of a topic: its text as JSON, the
local subscriptions, and whether another node wants it. Routes are kept until subscriptions change
anywhere (`Router.generation`); then each is filled again when it is next used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.limits import ROUTES_MAX
from jsonbus.core.message import Message
from jsonbus.core.routing.subscriptions import Interest, SubscriptionStore
from jsonbus.core.routing.topics import check_topic, is_valid_topic
from jsonbus.core.wire.codec import dumps
from jsonbus.core.wire.frames import Entry
from jsonbus.core.wire.names import SERVED_PREFIX


class Inbox:
    """The messages for one sink since the front end last took them."""

    __slots__ = ("is_passive", "messages", "sink")

    def __init__(self, sink: object, *, is_passive: bool = False) -> None:
        self.sink = sink
        #: It gets what travels for others anyway, and asks nobody for it.
        self.is_passive = is_passive
        self.messages: list[Message] = []


class Deliveries:
    """Inboxes with something in them, in the order in which they got it."""

    __slots__ = ("touched",)

    def __init__(self) -> None:
        self.touched: list[Inbox] = []

    def add(self, inbox: Inbox, message: Message) -> None:
        if not inbox.messages:
            self.touched.append(inbox)
        inbox.messages.append(message)

    def open(self, inbox: Inbox) -> Callable[[Message], None]:
        """What adds to an inbox, from now until `take`: at least one message has to follow."""
        if not inbox.messages:
            self.touched.append(inbox)
        return inbox.messages.append

    def add_to_all(self, inboxes: tuple[Inbox, ...], message: Message) -> None:
        for inbox in inboxes:
            if not inbox.messages:
                self.touched.append(inbox)
            inbox.messages.append(message)

    def take(self) -> list[tuple[object, list[Message]]]:
        touched = self.touched
        if not touched:
            return []
        self.touched = []
        deliveries = []
        for inbox in touched:
            deliveries.append((inbox.sink, inbox.messages))
            inbox.messages = []
        return deliveries


class Route:
    """A topic that may be published, and who wants it."""

    __slots__ = (
        "generation",
        "inboxes",
        "is_wanted_elsewhere",
        "prefix",
        "only",
        "onlookers",
        "subscribers",
        "topic",
    )

    def __init__(self, topic: str) -> None:
        self.topic = topic
        #: How its messages begin in a batch: `["topic",`.
        self.prefix = b"[%b," % dumps(topic)
        self.generation = -1
        #: Whoever here gets what is sent: subscribers, then onlookers.
        self.inboxes: tuple[Inbox, ...] = ()
        self.only: Inbox | None = None  # if there is just one
        #: Those that asked for it: the others know, and what is missed is asked for again.
        self.subscribers: tuple[Inbox, ...] = ()
        #: Those that are passive.
        self.onlookers: tuple[Inbox, ...] = ()
        self.is_wanted_elsewhere = False


class Router:
    """Routes by topic. `interest` is built when first needed: many nodes never publish."""

    __slots__ = (
        "_basic",
        "_fast_publish",
        "_interest",
        "_others",
        "_served",
        "current",
        "deliveries",
        "generation",
        "local",
        "passive",
        "routes",
        "wanted",
    )

    def __init__(self, others: Callable[[], Iterable[Entry]], fast_publish: FastPublish) -> None:
        #: Messages for local inboxes, until the front end takes them.
        self.deliveries = Deliveries()
        self.local: SubscriptionStore[Inbox] = SubscriptionStore()
        #: Subscriptions that no other node knows of.
        self.passive: SubscriptionStore[Inbox] = SubscriptionStore()
        #: Raised whenever a subscription changes anywhere: routes of before have to be filled anew.
        self.generation = 0
        #: By topic, for the hot paths to look in; keyed by whatever comes, found only if a topic.
        self.routes: dict[Any, Route] = {}
        #: Until subscriptions change: routes that need no filling, and the first bytes of datagrams
        #: whose one message somebody here wants.
        self.current: dict[Any, Route] = {}
        self.wanted: set[bytes] = set()
        self._fast_publish = fast_publish
        self._others = others
        self._interest: Interest | None = None
        self._basic: set[str] = set()
        self._served: dict[str, int] = {}

    def route(self, topic: object) -> Route:
        """The route of a topic to publish to; raises InvalidTopicError."""
        topic = check_topic(topic)
        route = self.routes.get(topic)
        if route is None:
            route = self._add(topic)
        if route.generation != self.generation:
            self._fill(route)
        return route

    def find(self, topic: object) -> Route | None:
        """The route of a topic that was received; None if it is no valid topic."""
        try:
            route = self.routes.get(topic)
        except TypeError:
            return None  # a list or an object where a topic should stand
        if route is None:
            if not isinstance(topic, str) or not is_valid_topic(topic):
                return None
            route = self._add(topic)
        if route.generation != self.generation:
            self._fill(route)
        return route

    def entry_changed(self, old: Entry | None, new: Entry | None) -> None:
        """Another node's entry changed."""
        if new is not None and new.mode == "basic":
            self._basic.add(new.node)
        elif old is not None:
            self._basic.discard(old.node)
        if (old.patterns if old else ()) == (new.patterns if new else ()):
            return
        self.forget()
        if self._interest is None:
            return
        if new is not None:
            self._count(new.patterns, 1)
        if old is not None:
            self._count(old.patterns, -1)

    def forget(self) -> None:
        """Subscriptions changed: nothing that was found out before holds."""
        self.generation += 1
        self.current.clear()
        self.wanted.clear()
        self._fast_publish.forget()

    @property
    def has_basic_nodes(self) -> bool:
        """Whether a node is here that tells nobody what it wants or serves."""
        return bool(self._basic)

    def is_wanted_elsewhere(self, topic: str) -> bool:
        interest = self._interest
        if interest is None:
            interest = self._build_interest()
        return interest.wants(topic)

    def is_served_elsewhere(self, topic: str) -> bool:
        if self._interest is None:
            self._build_interest()
        return SERVED_PREFIX + topic in self._served

    def _add(self, topic: str) -> Route:
        if len(self.routes) >= ROUTES_MAX:
            self.routes.clear()
            self.forget()
        route = self.routes[topic] = Route(topic)
        return route

    def _fill(self, route: Route) -> None:
        route.subscribers = self.local.subscribers_of(route.topic)
        route.onlookers = self.passive.subscribers_of(route.topic)
        inboxes = route.inboxes = route.subscribers + route.onlookers
        route.only = inboxes[0] if len(inboxes) == 1 else None
        route.is_wanted_elsewhere = self.is_wanted_elsewhere(route.topic)
        route.generation = self.generation
        self.current[route.topic] = route

    def _build_interest(self) -> Interest:
        self._interest = Interest()
        for entry in self._others():
            self._count(entry.patterns, 1)
        return self._interest

    def _count(self, patterns: tuple[str, ...], by: int) -> None:
        """Note patterns of one more node, or of one less; served topics apart."""
        assert self._interest is not None
        wanted = []
        for pattern in patterns:
            if not pattern.startswith(SERVED_PREFIX):
                wanted.append(pattern)
                continue
            count = self._served.get(pattern, 0) + by
            if count:
                self._served[pattern] = count
            else:
                del self._served[pattern]
        if by > 0:
            self._interest.add(wanted)
        else:
            self._interest.remove(wanted)
