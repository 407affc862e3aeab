"""The bytes of a channel: one TCP connection between two nodes, version 1.

Both directions are sequences of frames. A frame is a prefix of five bytes, the length of its body
(four, big endian) and its kind (one), and then the body:

    H   hello: who connects, and to what.   {"v":1,"n":node,"i":incarnation,"name":name,"to":node
        that is meant,"port":name of the port,"max":bytes of a message that it takes at most,
        "quiet":seconds without a byte that it bears, 7 if it does not say}
    W   welcome: you are connected.   {"v":1,"n":node,"i":incarnation,"name":name,"max":bytes,
        "quiet":seconds}
    R   refused.   {"v":1,"n":node,"name":name,"why":reason,"text":more about it}; reasons are those
        of errors.ChannelRefusedError that a node can give: unbound, taken, version, busy, and
        "gone" if another node was meant
    J   a message: JSON in UTF-8
    B   a message: bytes
    -   a beat: I am here.   empty
    C   close: you have got all that I send, and I take no more.   empty
    E   end: I have read your C, and with it everything before.   empty

The connecting side sends H first and then nothing until the other has answered with W or R. The
listener is at the TCP port that a node announces in its presence as `ch`. A side that sends C goes
on reading, and discards what it reads, until E comes; a side that reads C sends E, and no message
any more. Both may send C at once: then both send E.

Bodies of H, W and R have at most 4,096 bytes, those of messages as many as the other side announced
as "max". The receiver skips a longer message, and the channel goes on. Unknown keys and kinds are
ignored; `v` grows when a node of an older version would misunderstand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from jsonbus.core.channel.limits import (
    DETAIL_CHARACTERS_MAX,
    GREETING_BYTES_MAX,
    PORT_BYTES_MAX,
)
from jsonbus.core.wire import codec
from jsonbus.core.wire.fields import read_integer, read_name, read_node
from jsonbus.core.wire.names import is_short_text

VERSION = 1

HELLO, WELCOME, REFUSED = ord("H"), ord("W"), ord("R")
JSON, BYTES = ord("J"), ord("B")
BEAT, CLOSE, END = ord("-"), ord("C"), ord("E")

MESSAGES = frozenset({JSON, BYTES})

#: How many seconds without a byte a side bears that does not say: one before version 0.7.
OLD_SILENCE_S = 7

#: The kind given out for a message that was skipped; its body is its size in decimal digits. No
#: byte has that value, so nobody can send it.
SKIPPED = 256

PREFIX = struct.Struct(">IB")
PREFIX_BYTES = PREFIX.size
BEAT_FRAME = PREFIX.pack(0, BEAT)

REASONS = frozenset({"unbound", "taken", "gone", "version", "busy"})

FrameItem = tuple[int, bytes]  # kind and body


class Hello(NamedTuple):
    """Who connects, and to what."""

    node: str
    incarnation: int
    name: str
    to: str
    port: str
    message_bytes_max: int
    silence_s: int = OLD_SILENCE_S
    version: int = VERSION


class Welcome(NamedTuple):
    """Who was connected to."""

    node: str
    incarnation: int
    name: str
    message_bytes_max: int
    silence_s: int = OLD_SILENCE_S


class Refusal(NamedTuple):
    """Who refused, and why."""

    node: str
    name: str
    reason: str
    detail: str = ""


class FrameReader:
    """Parses frames from bytes that come in pieces of any size.

    A body longer than `body_bytes_max` is not
    kept: a message is given out as SKIPPED, another frame without its body.
    """

    __slots__ = ("_begun", "_kind", "_missing", "_size", "body_bytes_max", "is_skipping")

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._kind = -1  # of the frame whose body is being read; -1: within a prefix
        self._size = 0
        self._missing = PREFIX_BYTES
        #: True while a body is read that is not kept. Decided when it begins, because the limit may
        #: change.
        self.is_skipping = False
        # Not a list of pieces: for a sender of single bytes, each would be kept as an object.
        self._begun = bytearray()

    @property
    def is_between_frames(self) -> bool:
        return self._kind < 0 and not self._begun

    @property
    def held_bytes(self) -> int:
        """Number of bytes held of an incomplete frame."""
        return len(self._begun)

    def feed(self, data: memoryview) -> Iterator[FrameItem]:
        """Return the frames that these bytes complete; the rest is copied."""
        at, end = 0, len(data)
        while at < end:
            # The usual case first: a whole frame lies ahead.
            if self._kind < 0 and not self._begun and end - at >= PREFIX_BYTES:
                size, kind = PREFIX.unpack_from(data, at)
                body_at = at + PREFIX_BYTES
                if end - body_at >= size and size <= self.body_bytes_max:
                    at = body_at + size
                    yield kind, bytes(data[body_at:at])
                else:
                    self._begin_body(size, kind)
                    at = body_at
                continue
            taken = min(self._missing, end - at)
            frame = self._take(data[at : at + taken])
            at += taken
            if frame is not None:
                yield frame

    def _take(self, piece: memoryview) -> FrameItem | None:
        """Continue the prefix or body that has begun; return the frame if it is complete."""
        self._missing -= len(piece)
        if self._missing:
            if not self.is_skipping:
                self._begun += piece
            return None
        whole = b"" if self.is_skipping else b"".join((self._begun, piece))
        self._begun = bytearray()
        if self._kind < 0:
            self._begin_body(*PREFIX.unpack(whole))
            return None if self._missing else self._end_body(b"")
        return self._end_body(whole)

    def skip_bodies(self) -> None:
        """Keep no bodies from now on, and nothing of one that has begun."""
        self.body_bytes_max = 0
        if self._kind >= 0:
            self._begun = bytearray()
            self.is_skipping = True

    def _begin_body(self, size: int, kind: int) -> None:
        self._kind, self._size, self._missing = kind, size, size
        self.is_skipping = size > self.body_bytes_max

    def _end_body(self, body: bytes) -> FrameItem:
        kind, self._kind, self._missing = self._kind, -1, PREFIX_BYTES
        was_skipped, self.is_skipping = self.is_skipping, False
        if was_skipped and kind in MESSAGES:
            return SKIPPED, b"%d" % self._size
        return kind, body


def encode_frame(kind: int, body: bytes = b"") -> bytes:
    return PREFIX.pack(len(body), kind) + body


def encode_hello(hello: Hello) -> bytes:
    return _encode_greeting(HELLO, hello.version, _HELLO_KEYS, hello[:-1])


def encode_welcome(welcome: Welcome) -> bytes:
    return _encode_greeting(WELCOME, VERSION, _WELCOME_KEYS, welcome)


def encode_refusal(refusal: Refusal) -> bytes:
    cut = refusal._replace(detail=refusal.detail[:DETAIL_CHARACTERS_MAX])
    return _encode_greeting(REFUSED, VERSION, _REFUSAL_KEYS, cut)


def _encode_greeting(
    kind: int, version: int, keys: tuple[str, ...], values: tuple[object, ...]
) -> bytes:
    fields = {"v": version} | dict(zip(keys, values, strict=True))
    return encode_frame(kind, codec.dumps(fields))


def decode_hello(body: bytes) -> Hello:
    """Parse a hello; raises ValueError. Another version may lack everything but its number."""
    fields = _read_fields(body)
    version = read_integer(fields.get("v"), "v")
    if version != VERSION:
        return Hello("", 0, "", "", "", 0, version=version)
    return Hello(*[_READERS[key](fields.get(key)) for key in _HELLO_KEYS])


def decode_welcome(body: bytes) -> Welcome:
    """Parse a welcome; raises ValueError, also for another version, which should have refused."""
    fields = _read_fields(body)
    if read_integer(fields.get("v"), "v") != VERSION:
        raise ValueError("a welcome is in another version than the hello")
    return Welcome(*[_READERS[key](fields.get(key)) for key in _WELCOME_KEYS])


def decode_refusal(body: bytes) -> Refusal:
    """Parse a refusal; raises ValueError. It may have any version: all have these fields."""
    fields = _read_fields(body)
    reason, text = fields.get("why"), fields.get("text", "")
    if type(reason) is not str or type(text) is not str or len(text) > DETAIL_CHARACTERS_MAX:
        raise ValueError("a refusal must say why")
    return Refusal(
        read_node(fields.get("n")),
        read_name(fields.get("name")),
        reason if reason in REASONS else "busy",  # a reason of a later version: it may be temporary
        "".join(char if char.isprintable() else "?" for char in text),
    )


def read_port(value: object) -> str:
    """Read a port's name: 1 to 255 bytes without control characters. Raises ValueError."""
    if value != "" and is_short_text(value, PORT_BYTES_MAX):
        return str(value)
    raise ValueError("a port must be text of 1 to 255 bytes without control characters")


def _read_fields(body: bytes) -> dict[str, Any]:
    assert len(body) <= GREETING_BYTES_MAX
    fields = codec.loads(body)
    if type(fields) is not dict:
        raise ValueError("a greeting must be an object")
    return fields


# The keys of greetings, in the order of the fields of Hello, Welcome and Refusal.
_HELLO_KEYS = ("n", "i", "name", "to", "port", "max", "quiet")
_WELCOME_KEYS = ("n", "i", "name", "max", "quiet")
_REFUSAL_KEYS = ("n", "name", "why", "text")

_READERS: dict[str, Callable[[Any], Any]] = {
    "n": read_node,
    "i": partial(read_integer, what="i"),
    "name": read_name,
    "to": read_node,
    "port": read_port,
    "max": partial(read_integer, what="max"),
    "quiet": lambda value: OLD_SILENCE_S if value is None else read_integer(value, "quiet"),
}
