"""What a handler gets."""

from __future__ import annotations

from typing import Any


class Origin:
    """What all messages of one datagram have in common; made once per datagram.

    `Message` offers all of it under the same names (`is_retained` as `retained`). Programs that
    handle very many messages may look here instead: once, while `message.origin` is the same.
    """

    __slots__ = ("incarnation", "is_retained", "name", "node", "received_at", "sent_at")

    def __init__(
        self,
        node: str,
        name: str,
        incarnation: int,
        sent_at: float,
        received_at: float,
        is_retained: bool = False,
    ) -> None:
        self.node = node
        self.name = name
        self.incarnation = incarnation
        self.sent_at = sent_at
        self.received_at = received_at
        self.is_retained = is_retained


class Message:
    """A value that was published under a topic.

    Made for every message received, so: few attributes, what a datagram's messages share behind
    `origin`, and no `__init__`, whose call would double the cost. `make_message` makes one.
    """

    __slots__ = ("origin", "sequence", "topic", "value")

    topic: str
    value: Any
    #: The publisher's own count of its messages: (node, incarnation, sequence) names a message
    #: for ever. None for a plain datagram, and for a message that never left this process.
    sequence: int | None
    #: What the messages of its datagram have in common: one object for all of them.
    origin: Origin

    @property
    def node(self) -> str:
        """The publisher's id; of a plain sender, "plain:ADDRESS:PORT"."""
        return self.origin.node

    @property
    def name(self) -> str:
        """The publisher's name as far as known, else its id."""
        return self.origin.name

    @property
    def incarnation(self) -> int:
        """When the publisher started, milliseconds since 1970; 0 for a plain sender."""
        return self.origin.incarnation

    @property
    def sent_at(self) -> float:
        """Seconds since 1970 by the publisher's clock; of a plain sender, `received_at`."""
        return self.origin.sent_at

    @property
    def received_at(self) -> float:
        """Seconds since 1970 by this machine's clock."""
        return self.origin.received_at

    @property
    def retained(self) -> bool:
        """Whether it was published before this subscription, and given to it as the last value."""
        return self.origin.is_retained

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, value={self.value!r}, node={self.node!r})"


def make_message(topic: str, value: Any, sequence: int | None, origin: Origin) -> Message:
    message = Message()
    message.topic = topic
    message.value = value
    message.sequence = sequence
    message.origin = origin
    return message
