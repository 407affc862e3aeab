"""Fragments: one message over several datagrams, and back.

Theory of operation. A message that no datagram of the network holds is written as it would stand in
a batch, `["topic",value]`, and that text is cut into *slices*, each the payload of a datagram of
its own, a JSON string. So the message can be read in a packet dump, and the joined strings are its
JSON. The number of the message identifies its slices; each states its index and how many there are.

The text is escaped once, as a whole, and then cut: JSON text has no control characters, so the only
escapes are a backslash before a quote or a backslash. A cut falls neither between those two nor
inside a character of UTF-8.

A receiver keeps slices by message until all are there, in any order; a repeated slice changes
nothing. What is kept is bounded, per sender and in all, and by age: the message that was longest
without a new slice makes room. A sender that is lost in the middle costs memory for a while, and
one that lies about its slices costs no more than one that sends them.

`Fragments` joins texts. `LargeValues` connects it with the node: it drops slices of topics that
nobody here wants, counts, and passes on messages that are whole.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from jsonbus.core.limits import (
    FRAGMENT_AGE_S,
    FRAGMENTS_DONE_MAX,
    FRAGMENTS_OPEN_MAX,
    FRAGMENTS_SENDERS_MAX,
    SLICE_OVERHEAD_BYTES,
)
from jsonbus.core.roster import Peer, Roster
from jsonbus.core.routing.router import Router
from jsonbus.core.wire.codec import dumps_plain, loads, nests_too_deeply
from jsonbus.core.wire.frames import FragmentFrame
from jsonbus.core.wire.names import NESTING_LEVELS_MAX, SLICES_MAX

_BACKSLASH = ord("\\")

Key = tuple[str, int, int]  # node, incarnation, number of the message


def cut(text: bytes, room: int) -> list[bytes]:
    """Cut JSON text into the insides of JSON strings, each of at most `room` bytes."""
    assert room >= 8  # a character of UTF-8, and an escape, have to fit
    escaped = dumps_plain(text.decode())[1:-1]
    end_of_all = len(escaped)
    slices = []
    start = 0
    while end_of_all - start > room:
        end = _last_cut(escaped, start, start + room)
        slices.append(escaped[start:end])
        start = end
    slices.append(escaped[start:])
    return slices


def _last_cut(escaped: bytes, start: int, end: int) -> int:
    """Return the last place up to `end` where the text may be cut."""
    while escaped[end] & 0xC0 == 0x80:
        end -= 1  # inside a character
    before = end
    while before > start and escaped[before - 1] == _BACKSLASH:
        before -= 1
    return end - (end - before) % 2  # an odd one out belongs to what follows it


class _Sender:
    """What is kept of one node's slices."""

    __slots__ = ("done", "open", "size_bytes")

    def __init__(self) -> None:
        self.open = 0  # messages
        self.size_bytes = 0
        #: Messages that were joined or given up: further slices of them are ignored.
        self.done: dict[tuple[int, int], None] = {}


class Assembly:
    """The slices of one message that have come."""

    __slots__ = ("count", "heard_at", "sender", "size_bytes", "slices")

    def __init__(self, count: int, sender: _Sender, now: float) -> None:
        self.count = count
        self.sender = sender
        self.slices: dict[int, str] = {}
        self.size_bytes = 0
        self.heard_at = now

    def missing(self) -> list[int]:
        """Return the indexes of the slices that have not come."""
        return [index for index in range(self.count) if index not in self.slices]

    def missing_bits(self, count_max: int) -> tuple[int, int]:
        """Return the first missing index, and from there on a bit for each missing slice."""
        missing = self.missing()
        start, bits = missing[0], 0
        for index in missing:
            if index - start >= count_max:
                break
            bits |= 1 << (index - start)
        return start, bits

    def join(self) -> str:
        return "".join([self.slices[index] for index in range(self.count)])


class Fragments:
    """Joins slices to messages of at most `value_bytes_max`.

    `bytes_max` bounds what is kept in all; one sender may take twice the bound of a value.
    """

    def __init__(self, value_bytes_max: int, bytes_max: int) -> None:
        # In the order in which they last got a slice: the first is given up first.
        self._assemblies: OrderedDict[Key, Assembly] = OrderedDict()
        self._senders: dict[str, _Sender] = {}
        self._sender_bytes_max = 2 * value_bytes_max
        self._bytes_max = max(bytes_max, self._sender_bytes_max)
        #: Messages that were given up.
        self.dropped = 0
        #: Bytes of all slices, with the overhead of keeping them.
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._assemblies)

    def get(self, key: Key) -> Assembly | None:
        return self._assemblies.get(key)

    def add(self, key: Key, index: int, count: int, text: str, now: float) -> str | None:
        """Take a slice; return the whole text if it was the last one missing.

        Raises ValueError for a slice that contradicts others, or itself.
        """
        assembly = self._assemblies.get(key)
        if assembly is None:
            assembly = self._begin(key, index, count, now)
            if assembly is None:
                return None
        if assembly.count != count or not 0 <= index < count:
            raise ValueError(f"slice {index} of {count}, of a message that has {assembly.count}")
        slices = assembly.slices
        if index in slices:
            return None
        slices[index] = text
        if len(slices) == count:
            self._remove(key, assembly)
            return assembly.join()
        sender, size = assembly.sender, len(text) + SLICE_OVERHEAD_BYTES
        assembly.size_bytes += size
        sender.size_bytes += size
        self.size_bytes += size
        assembly.heard_at = now
        self._assemblies.move_to_end(key)
        if sender.size_bytes > self._sender_bytes_max or sender.open > FRAGMENTS_OPEN_MAX:
            self._give_up(next(each for each in self._assemblies if each[0] == key[0]))
        elif self.size_bytes > self._bytes_max:
            self._give_up(next(iter(self._assemblies)))
        return None

    def _begin(self, key: Key, index: int, count: int, now: float) -> Assembly | None:
        """Begin a message; None if it was joined or given up before."""
        if not 0 <= index < count <= SLICES_MAX:
            raise ValueError(f"slice {index} of {count}")
        node, incarnation, number = key
        sender = self._senders.get(node)
        if sender is None:
            if len(self._senders) >= FRAGMENTS_SENDERS_MAX:
                self.forget(next(iter(self._senders)))
            sender = self._senders[node] = _Sender()
        if (incarnation, number) in sender.done:
            return None
        assembly = self._assemblies[key] = Assembly(count, sender, now)
        sender.open += 1
        return assembly

    def ignore(self, key: Key) -> bool:
        """Keep no slices of this message. False: it was ignored before."""
        if key in self._assemblies:
            self._remove(key, self._assemblies[key])
            return True
        return self.add(key, 0, 1, "", 0.0) is not None

    def forget(self, node: str) -> None:
        """The node is gone: forget its slices."""
        for key in [key for key in self._assemblies if key[0] == node]:
            self._give_up(key)
        self._senders.pop(node, None)

    def drop(self, key: Key) -> None:
        """Give a message up, if it is not complete."""
        if key in self._assemblies:
            self._give_up(key)

    def timer_at(self) -> float:
        """When the oldest message is given up."""
        if not self._assemblies:
            return math.inf
        return next(iter(self._assemblies.values())).heard_at + FRAGMENT_AGE_S

    def handle_timer(self, due: float, now: float) -> None:
        while self.timer_at() <= due:
            self._give_up(next(iter(self._assemblies)))

    def _give_up(self, key: Key) -> None:
        self.dropped += 1
        self._remove(key, self._assemblies[key])

    def _remove(self, key: Key, assembly: Assembly) -> None:
        del self._assemblies[key]
        sender = assembly.sender
        sender.open -= 1
        sender.size_bytes -= assembly.size_bytes
        self.size_bytes -= assembly.size_bytes
        sender.done[key[1:]] = None
        if len(sender.done) > FRAGMENTS_DONE_MAX:
            del sender.done[next(iter(sender.done))]


#: Delivers messages, as `FastReceive.deliver` does.
Deliver = Callable[[list[Any], int, int, Peer, float, int], None]


class LargeValues:
    """See the head of this file.

    `touch(peer, topic, sequence, key, now)` is called when a slice of a reliable message has come;
    its topic is None until the first slice is here.
    """

    def __init__(
        self,
        fragments: Fragments,
        roster: Roster,
        router: Router,
        *,
        deliver: Deliver,
        touch: Callable[[Peer, str | None, int, Key, float], None],
    ) -> None:
        self._fragments = fragments
        self._roster = roster
        self._router = router
        self._counters = roster.counters
        self._deliver = deliver
        self._touch = touch

    def receive(self, frame: FragmentFrame, peer: Peer, now: float) -> None:
        """Take a slice; deliver the message if it was the last one missing."""
        self._counters.fragments_received += 1
        key = (peer.node, peer.incarnation, frame.number)
        if frame.index == 0:
            topic = _topic_of(frame.text)
            route = None if topic is None else self._router.find(topic)
            if route is not None and not route.inboxes:
                if self._fragments.ignore(key):
                    self._roster.count_messages(peer, frame.number, 1)
                    self._counters.messages_received += 1
                    self._counters.messages_unwanted += 1
                return
            self._roster.needs_attention = True  # it may have set a timer
        try:
            whole = self._fragments.add(key, frame.index, frame.count, frame.text, now)
            if whole is None:
                if frame.sequence is not None:
                    assembly = self._fragments.get(key)
                    topic = None if assembly is None else _topic_of(assembly.slices.get(0, ""))
                    self._touch(peer, topic, frame.sequence, key, now)
                return
            item = loads(whole)
        except ValueError as error:
            self._roster.reject("bad_fields", peer.address, str(error))
            return
        self._roster.count_messages(peer, frame.number, 1)
        if _nests_too_deeply(whole, item):
            self._counters.messages_malformed += 1
            self._roster.reject(
                "too_deep", peer.address, f"nested more than {NESTING_LEVELS_MAX} levels"
            )
            return
        self._deliver([item], frame.number, frame.header.sent_us, peer, now, len(whole))


def _topic_of(text: str) -> str | None:
    """Return the topic of a message that begins like this, if it can be seen."""
    start, _, rest = text.partition('",')
    return start[2:] if rest and start.startswith('["') and "\\" not in start else None


def _nests_too_deeply(text: str, item: Any) -> bool:
    # Counting brackets is cheap, and most large values have few.
    if text.count("[") + text.count("{") <= NESTING_LEVELS_MAX:
        return False
    return type(item) is list and len(item) > 1 and nests_too_deeply(item[1])
