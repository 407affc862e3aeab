"""The arguments of `subscribe`, as the front ends pass them on and as type checkers see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Required, TypedDict, TypeVar

from jsonbus.core.mailbox import Overflow
from jsonbus.core.message import Message
from jsonbus.frontend.limits import MAXSIZE_DEFAULT

if TYPE_CHECKING:
    from types import UnionType
    from typing import _SpecialForm

T = TypeVar("T")  # the type of values

#: A topic or a pattern, or several.
Patterns = str | Sequence[str]

#: A function of one message; or, with `in_batches`, of a list of messages. AsyncBus also takes
#: async functions.
Handler = Callable[[Any], Any]
OnMessage = Callable[[Message[T]], Any]
OnBatch = Callable[[list[Message[T]]], Any]


class SubscribeOptions(NamedTuple):
    """The arguments of `subscribe`."""

    pattern: Patterns
    handler: Handler | None = None
    maxsize: int = MAXSIZE_DEFAULT
    overflow: Overflow = "drop_oldest"
    as_type: Any = None
    in_batches: bool = False
    passive: bool = False
    #: Whether it gets the requests to a topic that the bus serves.
    is_service: bool = False


class MailboxKeywords(TypedDict, total=False):
    """The keywords that `subscribe` and `on` have in common, whatever the type of values."""

    maxsize: int
    overflow: Overflow


class _Keywords(MailboxKeywords, total=False):
    passive: bool


class Typed(_Keywords, Generic[T], total=False):
    """The keywords of `subscribe` for values of a type."""

    as_type: Required[type[T]]
    in_batches: Literal[False]


class TypedBatches(_Keywords, Generic[T], total=False):
    """The keywords of `subscribe` for batches of values of a type."""

    as_type: Required[type[T]]
    in_batches: Required[Literal[True]]


class Untyped(_Keywords, total=False):
    """The keywords of `subscribe` for values of any type."""

    as_type: UnionType | _SpecialForm | None
    in_batches: bool
