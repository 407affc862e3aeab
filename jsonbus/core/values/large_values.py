"""Slices that come in: whose are kept, when a message is whole, and what becomes of it.

fragments.py puts texts together; this knows topics, counters, and who wants what.
"""

from __future__ import annotations

from typing import Any, Protocol

from jsonbus.core.counters import Counters
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.roster import Peer
from jsonbus.core.routing.router import Router
from jsonbus.core.values.fragments import Fragments, Key
from jsonbus.core.wire.codec import loads, nests_too_deeply
from jsonbus.core.wire.limits import NESTING_LEVELS_MAX


class Slice:
    """A slice as it came: a message's number, place among the others, text."""

    __slots__ = ("count", "index", "number", "sent_us", "sequence", "text")

    def __init__(
        self, number: int, index: int, count: int, text: str, sequence: int | None, sent_us: int
    ) -> None:
        self.number = number
        self.index = index
        self.count = count
        self.text = text
        self.sequence = sequence
        self.sent_us = sent_us


class Whole(Protocol):
    """What is done with messages, whole or not; the receiver does it."""

    needs_attention: bool

    def count_more(self, peer: Peer, first: int, count: int) -> None: ...

    def receive_messages(
        self, items: list[Any], first: int, sent_us: int, peer: Peer, now: float, size_bytes: int
    ) -> None: ...

    def reject(self, cause: str, sender: tuple[str, int], detail: str) -> None: ...


class LargeValues:
    """See the head of this file."""

    def __init__(
        self, fragments: Fragments, *, router: Router, reliable: Reliable, counters: Counters
    ) -> None:
        self._fragments = fragments
        self._router = router
        self._reliable = reliable
        self._counters = counters

    def receive(self, piece: Slice, peer: Peer, now: float, then: Whole) -> None:
        """Take a slice; `then` gets the message if it was the last one missing."""
        self._counters.fragments_received += 1
        key = (peer.node, peer.incarnation, piece.number)
        if piece.index == 0:
            if self._is_unwanted(piece.text):
                self._ignore(key, peer, then)
                return
            then.needs_attention = True  # it may have set a timer
        try:
            whole = self._fragments.add(key, piece.index, piece.count, piece.text, now)
            if whole is None:
                if piece.sequence is not None:
                    self._touch(key, peer, piece.sequence, now)
                return
            item = loads(whole)
        except ValueError as error:
            then.reject("bad_fields", peer.address, str(error))
            return
        then.count_more(peer, piece.number, 1)
        if _nests_too_deeply(whole, item):
            self._counters.messages_malformed += 1
            then.reject("too_deep", peer.address, f"nested more than {NESTING_LEVELS_MAX} levels")
            return
        then.receive_messages([item], piece.number, piece.sent_us, peer, now, len(whole))

    def _ignore(self, key: Key, peer: Peer, then: Whole) -> None:
        if self._fragments.ignore(key):
            then.count_more(peer, key[2], 1)
            self._counters.messages_received += 1
            self._counters.messages_unwanted += 1

    def _is_unwanted(self, text: str) -> bool:
        topic = _topic_of(text)
        route = None if topic is None else self._router.find(topic)
        return route is not None and not route.inboxes

    def _touch(self, key: Key, peer: Peer, sequence: int, now: float) -> None:
        """Let the stream know that its message is on its way."""
        assembly = self._fragments.get(key)
        topic = None if assembly is None else _topic_of(assembly.slices.get(0, ""))
        self._reliable.touch(peer, topic, sequence, key, now)


def _topic_of(text: str) -> str | None:
    """The topic of a message that begins like this, if that can be seen."""
    start, _, rest = text.partition('",')
    return start[2:] if rest and start.startswith('["') and "\\" not in start else None


def _nests_too_deeply(text: str, item: Any) -> bool:
    # To count brackets is cheap, and most large values have few.
    if text.count("[") + text.count("{") <= NESTING_LEVELS_MAX:
        return False
    return type(item) is list and len(item) > 1 and nests_too_deeply(item[1])
