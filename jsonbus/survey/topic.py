"""What a survey remembers of one topic."""

from __future__ import annotations

from collections import deque

import orjson

import jsonbus

#: This many sequence numbers per publisher distinguish a message that came twice from a late one.
#: The bus itself drops repeats; the rest come from several subscriptions in one survey.
RECENT = 16

#: Prefix of a plain sender's id. It is in no list of nodes, so it is considered present until this
#: many samples of the survey, about as many seconds, have passed without a message from it.
PLAIN_PREFIX = "plain:"
PLAIN_SAMPLES = 60


class Publisher:
    """A node as a publisher of one topic."""

    __slots__ = ("grace", "heard_in", "incarnation", "name", "node", "recent", "sequence")

    def __init__(self, origin: jsonbus.Origin) -> None:
        self.node = origin.node
        self.name = origin.name
        #: The number of the sample after which it was last heard, and for how many more it is
        #: considered present.
        self.heard_in = 0
        self.grace = PLAIN_SAMPLES if origin.node.startswith(PLAIN_PREFIX) else 1
        self.start(origin.incarnation)

    def start(self, incarnation: int) -> None:
        """Handle a (re)start: its sequence begins again."""
        self.incarnation = incarnation
        self.sequence = -1
        self.recent: deque[int] = deque(maxlen=RECENT)


class Topic:
    """One topic. Compared by identity: forgotten and seen again, it is another one."""

    __slots__ = (
        "bytes",
        "duplicates",
        "generation",
        "heard_in",
        "held",
        "late",
        "message",
        "messages",
        "name",
        "publishers",
        "size",
        "stride",
        "subscribers",
        "unmeasured",
    )

    def __init__(self, message: jsonbus.Message) -> None:
        self.name = message.topic
        #: The last message; if its value was too large to be kept, a copy without it.
        self.message = message
        self.messages = 0
        #: Bytes as JSON, of the messages measured so far and those they stand for.
        self.bytes = 0
        #: Bytes of the last message measured.
        self.size = 0
        #: One message in so many is measured; the others count as the same size.
        self.stride = 1
        self.unmeasured = 0
        #: What the last value takes of the room for large values; -1 if it found none.
        self.held = 0
        self.publishers: dict[str, Publisher] = {}
        self.duplicates = 0
        self.late = 0
        #: The number of the sample after which it was last heard.
        self.heard_in = 0
        #: Who wants it, as of this generation of subscription lists.
        self.subscribers: tuple[str, ...] = ()
        self.generation = -1


def without_value(message: jsonbus.Message) -> jsonbus.Message:
    """Return the message without its value."""
    copy = jsonbus.Message()
    copy.topic = message.topic
    copy.value = None
    copy.sequence = message.sequence
    copy.origin = message.origin
    return copy


def size_of(value: object) -> int:
    """Return the size of a value as compact JSON, in bytes; 0 if it has no JSON form.

    A value from the network always has one. A value that a program published to itself may have
    keys that are not strings.
    """
    try:
        return len(orjson.dumps(value))
    except TypeError:
        try:
            return len(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
        except TypeError:
            return 0
