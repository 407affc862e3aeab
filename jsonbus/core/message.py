"""Message: what handlers and readers receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # With a default, `Message` alone means `Message[Any]`. Python supports that from 3.13 on.
    V_co = TypeVar("V_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    V_co = TypeVar("V_co", covariant=True)


@dataclass(slots=True, eq=False, repr=False)
class Origin:
    """The facts that all messages of one datagram have in common. Made once per datagram.

    `Message` has properties of the same names (`retained` for `is_retained`). A program that
    handles very many messages may read them here, once for all messages with the same `origin`.
    """

    node: str
    name: str
    incarnation: int
    sent_at: float
    received_at: float
    is_retained: bool = False


class Message(Generic[V_co]):
    """A value that was published to a topic.

    `Message[Reading]` is a message whose value is a Reading, as `subscribe(…, as_type=Reading)`
    delivers them; `Message` alone is a message of any JSON value.
    """

    # One instance is made for every message received. So it has few attributes, reads the rest from
    # `origin`, and has no `__init__`, whose call would double the cost: see `make_message`.

    # `_position` stays unset except where the message is of a reliable topic.
    __slots__ = ("_position", "origin", "sequence", "topic", "value")

    #: The topic it was published to.
    topic: str
    #: The JSON value, or the instance that `as_type` asks for.
    value: V_co
    #: The publisher's count of its messages. (node, incarnation, sequence) identifies a message
    #: permanently. None for a plain datagram, and for a message that never left this process.
    sequence: int | None
    #: What all messages of its datagram have in common; the same object for all of them.
    origin: Origin
    _position: int

    @property
    def node(self) -> str:
        """The id of the publisher; "plain:ADDRESS:PORT" for a plain sender."""
        return self.origin.node

    @property
    def name(self) -> str:
        """The name of the publisher, or its id if the name is not known."""
        return self.origin.name

    @property
    def incarnation(self) -> int:
        """When the publisher started, in milliseconds since 1970; 0 for a plain sender."""
        return self.origin.incarnation

    @property
    def sent_at(self) -> float:
        """When it was sent, in seconds since 1970 by the publisher's clock.

        For a plain sender, the same as `received_at`.
        """
        return self.origin.sent_at

    @property
    def received_at(self) -> float:
        """When it arrived, in seconds since 1970 by this machine's clock."""
        return self.origin.received_at

    @property
    def retained(self) -> bool:
        """True for a retained value that was published before this subscription began."""
        return self.origin.is_retained

    @property
    def position(self) -> int | None:
        """Its number among the reliable messages of its node and topic; None for others."""
        return getattr(self, "_position", None)

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, value={self.value!r}, node={self.node!r})"


def set_position(message: Message, position: int) -> None:
    """Note the number of a reliable message."""
    message._position = position


def make_message(topic: str, value: Any, sequence: int | None, origin: Origin) -> Message[Any]:
    """Return a new message."""
    message: Message[Any] = Message()
    message.topic = topic
    message.value = value
    message.sequence = sequence
    message.origin = origin
    return message
