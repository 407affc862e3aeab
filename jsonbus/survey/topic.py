"""Topic and Publisher: the memory of a survey."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import orjson

import jsonbus

#: This many sequence numbers per publisher distinguish a message that came twice from a late one.
#: The bus itself drops repeats; the rest come from several subscriptions in one survey.
RECENT = 16

#: Prefix of a plain sender's id. It is in no list of nodes, so it is considered present until this
#: many samples of the survey, about as many seconds, have passed without a message from it.
PLAIN_PREFIX = "plain:"
PLAIN_SAMPLES = 60


@dataclass(slots=True, eq=False)
class Publisher:
    """A node as a publisher of one topic."""

    node: str
    name: str
    incarnation: int
    #: The number of the sample after which it was last heard.
    heard_in: int = 0
    sequence: int = -1
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def grace(self) -> int:
        """For how many more samples it is considered present."""
        return PLAIN_SAMPLES if self.node.startswith(PLAIN_PREFIX) else 1

    def start(self, incarnation: int) -> None:
        """Handle a restart: its sequence begins again."""
        self.incarnation = incarnation
        self.sequence = -1
        self.recent.clear()


@dataclass(slots=True, eq=False)
class Topic:
    """One topic. Compared by identity: forgotten and seen again, it is another one."""

    name: str
    #: The last message; if its value was too large to be kept, a copy without it.
    message: jsonbus.Message
    messages: int = 0
    #: Bytes as JSON, of the messages measured so far and those they stand for.
    bytes: int = 0
    #: Bytes of the last message measured.
    size: int = 0
    #: One message in so many is measured; the others count as the same size.
    stride: int = 1
    unmeasured: int = 0
    #: What the last value takes of the room for large values; -1 if it found none.
    held: int = 0
    publishers: dict[str, Publisher] = field(default_factory=dict)
    duplicates: int = 0
    late: int = 0
    #: Who wants it, as of this generation of subscription lists.
    subscribers: tuple[str, ...] = ()
    generation: int = -1


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
