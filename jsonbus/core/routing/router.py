"""Router: finds the destinations of a topic's messages, once per topic.

A route holds everything that publish and receive need to know about a topic: its text as JSON, the
local subscriptions, and whether another node wants it. When any subscription changes
(`Router.generation`), each route is filled again at its next use.

A bus may carry some topics only, if it is sealed with a key for these, or with one for all others.
A message of another topic is *misplaced*. Its route has one inbox, which counts, and no subscriber:
so whether a topic belongs here is asked once, and messages that do cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.limits import ROUTES_MAX
from jsonbus.core.message import Message
from jsonbus.core.routing.subscriptions import Interest, SubscriptionStore
from jsonbus.core.wire.codec import dumps
from jsonbus.core.wire.frames import Entry
from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.core.wire.topics import check_topic, is_valid_topic

#: Called with how many misplaced messages came, and how many of them were counted as delivered.
Refuse = Callable[[int, int], None]


class Inbox:
    """The messages for one sink since the front end last took them."""

    __slots__ = ("is_passive", "messages", "patterns", "sink")

    def __init__(self, sink: object, *, is_passive: bool = False) -> None:
        self.sink = sink
        #: A passive inbox gets messages that travel for others anyway; no other node knows of it.
        self.is_passive = is_passive
        #: How many patterns the sink has subscribed to.
        self.patterns = 0
        self.messages: list[Message] = []


class Deliveries:
    """Inboxes that hold messages, in the order in which they got their first one."""

    __slots__ = ("touched",)

    def __init__(self) -> None:
        self.touched: list[Inbox] = []

    def add(self, inbox: Inbox, message: Message) -> None:
        if not inbox.messages:
            self.touched.append(inbox)
        inbox.messages.append(message)

    def open(self, inbox: Inbox) -> Callable[[Message], None]:
        """Return a function that adds to the inbox. Call it at least once, and before `take`."""
        if not inbox.messages:
            self.touched.append(inbox)
        return inbox.messages.append

    def add_to_all(self, inboxes: tuple[Inbox, ...], message: Message) -> None:
        for inbox in inboxes:
            if not inbox.messages:
                self.touched.append(inbox)
            inbox.messages.append(message)

    def add_many(self, inboxes: tuple[Inbox, ...], messages: list[Message]) -> None:
        for inbox in inboxes:
            if not inbox.messages:
                self.touched.append(inbox)
            inbox.messages += messages

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


class _Refused:
    """In place of an inbox's messages: keeps none. It is never empty: nobody comes to take any."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse

    def append(self, message: Message) -> None:
        self._refuse(1, 1)

    def __iadd__(self, messages: list[Message]) -> _Refused:
        self._refuse(len(messages), len(messages))
        return self


class Route:
    """A valid topic, and the subscriptions that want it."""

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
        #: The first bytes of its messages in a batch: `["topic",`.
        self.prefix = b"[%b," % dumps(topic)
        self.generation = -1
        #: The local inboxes that get its messages: subscribers, then onlookers.
        self.inboxes: tuple[Inbox, ...] = ()
        self.only: Inbox | None = None  # if there is just one
        #: Inboxes of ordinary subscriptions: other nodes know of them, and losses are repaired for
        #: them.
        self.subscribers: tuple[Inbox, ...] = ()
        #: Inboxes of passive subscriptions.
        self.onlookers: tuple[Inbox, ...] = ()
        self.is_wanted_elsewhere = False


class Router:
    """Routes by topic. `interest` is built when first needed, because many nodes never publish."""

    def __init__(
        self,
        others: Callable[[], Iterable[Entry]],
        fast_publish: FastPublish,
        carries: Callable[[str], bool] | None = None,
        refuse: Refuse = lambda count, counted: None,
    ) -> None:
        """`carries` tells whether a topic belongs here; None: all do."""
        #: Messages for local inboxes, until the front end takes them.
        self.deliveries = Deliveries()
        self.local: SubscriptionStore[Inbox] = SubscriptionStore()
        #: Subscriptions that no other node knows of.
        self.passive: SubscriptionStore[Inbox] = SubscriptionStore()
        #: Incremented whenever a subscription changes anywhere: older routes have to be filled
        #: again.
        self.generation = 0
        #: Routes by topic, for the hot paths. Looked up with any received value; only topics are
        #: keys.
        self.routes: dict[Any, Route] = {}
        #: Both are valid until subscriptions change: routes that need no filling; and of large
        #: messages that no local subscription wants, by the first bytes of their datagram and its
        #: sender, the node.
        self.current: dict[Any, Route] = {}
        self.unwanted: dict[tuple[bytes, tuple[str, int]], str] = {}
        self._fast_publish = fast_publish
        self._others = others
        self._interest: Interest | None = None
        self._basic: set[str] = set()
        self._served: dict[str, int] = {}
        self._carries = carries
        self._refuse = refuse
        self._refusing = Inbox(None)
        self._refusing.messages = cast("list[Message]", _Refused(refuse))

    def route(self, topic: object) -> Route:
        """Return the route of a topic to publish to; raise InvalidTopicError if invalid."""
        topic = check_topic(topic)
        route = self.routes.get(topic)
        if route is None:
            route = self._add(topic)
        if route.generation != self.generation:
            self._fill(route)
        return route

    def find(self, topic: object) -> Route | None:
        """Return the route of a received topic; None if it is not a valid topic."""
        try:
            route = self.routes.get(topic)
        except TypeError:
            return None  # a list or an object in place of a topic
        if route is None:
            if not isinstance(topic, str) or not is_valid_topic(topic):
                return None
            route = self._add(topic)
        if route.generation != self.generation:
            self._fill(route)
        return route

    def entry_changed(self, old: Entry | None, new: Entry | None) -> None:
        """Note that another node's entry changed."""
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
        """Drop all cached results, because subscriptions changed."""
        self.generation += 1
        self.current.clear()
        self.unwanted.clear()
        self._fast_publish.forget()

    def refuse_misplaced(self, topic: str) -> None:
        """Count something without an inbox, if its topic does not belong here."""
        if self._is_misplaced(topic):
            self._refuse(1, 0)

    @property
    def has_basic_nodes(self) -> bool:
        """True if a node is here that does not share what it wants or serves."""
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

    def _is_misplaced(self, topic: str) -> bool:
        return self._carries is not None and not self._carries(topic)

    def _add(self, topic: str) -> Route:
        if len(self.routes) >= ROUTES_MAX:
            self.routes.clear()
            self.forget()
        route = self.routes[topic] = Route(topic)
        return route

    def _fill(self, route: Route) -> None:
        route.subscribers = self.local.subscribers_of(route.topic)
        route.onlookers = self.passive.subscribers_of(route.topic)
        inboxes = route.subscribers + route.onlookers
        if self._is_misplaced(route.topic):
            route.subscribers, route.onlookers, inboxes = (), (), (self._refusing,)
        route.inboxes = inboxes
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
        """Count the patterns of one node in or out; served topics separately."""
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
