"""The bytes of a sealed channel: two sides agree on keys, then exchange records. No socket.

Theory of operation. A channel of a sealed bus is one TCP connection. The calling side sends its
*offer*, then the listening side its own. An offer names a key of the bus and has half of a key
agreement; from both offers and the bus's secret follow the keys of this session, one per direction.
Everything after that travels in *records*: the frames of `core/channel/wire.py`, hello and welcome
included, are one stream of bytes in each direction, cut into records anywhere.

    offer    4 bytes    "JBS" and the version, 1
             4          the wire id of a key of the bus (keys.py)
             32         an X25519 public key, new for each connection
             32         random bytes
    record   4          the length of what follows, big endian: 17 to 65,552
             1..65,536  ciphertext, AES-256-GCM
             16         its tag
             The four bytes of the length are the associated data. The nonce is the number of the
             record in its direction, from 0 on, in 12 bytes, big endian.
    keys     HKDF-SHA256(secret = X25519 shared secret, then the secret of the key (32 bytes each),
             salt = SHA-256(offer of the caller, then offer of the listener),
             info = "jsonbus channel 1 >", then the bus and the id of the key, each after its length
             in two bytes), 32 bytes: for records of the caller. With "<" for those of the listener.

**Who has no key** learns nothing. A listener answers only an offer that names one of its keys, and
otherwise closes the connection without a word. Names of keys are no secret: the first record of
each side is the proof that it has the key, and there is no plaintext before it. A caller's first
record, its hello, is short, so a stranger cannot have a listener keep much.

**Who stands in the middle** can only end the channel. It cannot make a record, since the keys of a
session follow from the bus's secret. Repeated, swapped and missing records have the wrong number;
reflected ones have the key of the other direction; those of another session have other keys, since
both sides put new random bytes into them. If it changes an offer, the two sides have different
keys, and the first record fails. A cut between two records is told from a close by the frames C and
E of the channel, which only a side with the key can send.

**Who steals the key** later cannot read what was recorded: the private halves of the agreement are
forgotten as soon as the session begins. A channel that is open stays open when its key is dropped.

A session needs no new keys, however long it lasts: what AES-GCM bounds is 2**64 blocks, or some
10**20 bytes, and a counter of 8 bytes does not wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from jsonbus.errors import TransportError
from jsonbus.sealed.derivation import derive
from jsonbus.sealed.keys import Key, KeyRing

MAGIC = b"JBS\x01"
NAME_BYTES = len(MAGIC) + 4  # with the key's wire id
PUBLIC_BYTES = RANDOM_BYTES = 32
OFFER_BYTES = NAME_BYTES + PUBLIC_BYTES + RANDOM_BYTES

LENGTH = Struct(">I")
LENGTH_BYTES = LENGTH.size
TAG_BYTES = 16

#: The plaintext of a record. Larger ones would not be cheaper, and nothing of a record is given out
#: before all of it has come.
RECORD_BYTES_MAX = 64 << 10

#: What a buffer for reading must hold at least.
SEALED_BYTES_MAX = LENGTH_BYTES + RECORD_BYTES_MAX + TAG_BYTES

#: The plaintext of a caller's first record: a hello, which has at most 4,096 bytes and its prefix.
FIRST_BYTES_MAX = 4096 + 5

Piece = bytes | memoryview


class Offer:
    """What one side brings into the agreement; `data` is what it sends of it.

    `draw` returns so many random bytes. Good for one session.
    """

    __slots__ = ("_key", "_private", "_ring", "data")

    def __init__(self, ring: KeyRing, key: Key, draw: Callable[[int], bytes]) -> None:
        self._ring = ring
        self._key = key
        self._private = X25519PrivateKey.from_private_bytes(draw(32))
        public = self._private.public_key().public_bytes_raw()
        self.data = MAGIC + ring.wire_id(key) + public + draw(RANDOM_BYTES)

    @property
    def key_id(self) -> str:
        return self._key.id

    def agree(self, theirs: bytes, *, is_caller: bool) -> Records:
        """Begin the session that follows from this offer and the other side's.

        Raises TransportError if the other side has offered nothing that is possible.
        """
        check_beginning(theirs, self.data[:NAME_BYTES])
        if theirs == self.data:
            raise TransportError("it sent back what was sent to it")
        public = X25519PublicKey.from_public_bytes(theirs[NAME_BYTES : NAME_BYTES + PUBLIC_BYTES])
        try:
            shared = self._private.exchange(public)
        except ValueError:  # a point that makes the same secret with every key
            raise TransportError("its public key is none") from None
        offers = self.data + theirs if is_caller else theirs + self.data
        secret, salt = shared + self._key.secret, sha256(offers).digest()
        parts = self._ring.bus.encode(), self._key.id.encode()
        of_caller = derive(secret, salt, b"jsonbus channel 1 >", *parts)
        of_listener = derive(secret, salt, b"jsonbus channel 1 <", *parts)
        if is_caller:
            return Records(of_caller, of_listener)
        return Records(of_listener, of_caller, FIRST_BYTES_MAX)


def check_beginning(theirs: bytes, expected: bytes = MAGIC) -> None:
    """Raise TransportError unless an offer begins as expected, as far as it has come."""
    if not expected.startswith(theirs[: len(expected)]):
        raise TransportError("it does not speak to this sealed bus")


def choose_key(ring: KeyRing, theirs: bytes) -> Key:
    """Return the key that a caller has named in its offer; raises TransportError if none is."""
    check_beginning(theirs)
    key = ring.find(theirs[len(MAGIC) : NAME_BYTES])
    if key is None:
        raise TransportError("it has no key of this bus")
    return key


def cut(pieces: Sequence[Piece], skipped_bytes: int = 0) -> Iterator[Piece]:
    """Yield the plaintext of one record after the other, without so many bytes of the first piece.

    No record ends one byte into a piece that it does not begin with: see tcp.py.
    """
    parts: list[Piece] = []
    size = 0
    for piece in pieces:
        rest = memoryview(piece)[skipped_bytes:]
        skipped_bytes = 0
        while size + len(rest) > RECORD_BYTES_MAX:
            taken = RECORD_BYTES_MAX - size
            parts.append(rest[: taken if taken > 1 else 0])
            yield b"".join(parts) if len(parts) > 1 else parts[0]
            rest = rest[len(parts[-1]) :]
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
    if size:
        yield b"".join(parts) if len(parts) > 1 else parts[0]


class Records:
    """Seals what one side sends, and opens what it receives. Two threads may do that at once."""

    __slots__ = ("_held", "_opened", "_opening", "_sealed", "_sealing", "_size_max", "failure")

    def __init__(
        self, sealing_key: bytes, opening_key: bytes, first_bytes_max: int = RECORD_BYTES_MAX
    ) -> None:
        self._sealing = AESGCM(sealing_key)
        self._opening = AESGCM(opening_key)
        self._sealed = self._opened = 0  # records
        self._size_max = first_bytes_max + TAG_BYTES
        self._held = b""  # of a record that has not come whole
        #: Why nothing can be opened any more, in words that follow "is closed: ".
        self.failure = ""

    @property
    def is_proved(self) -> bool:
        """Whether the other side has proved that it has the key: it has sent a record."""
        return self._opened > 0

    @property
    def held_bytes(self) -> int:
        """How much has come of a record that has not come whole."""
        return len(self._held)

    def seal(self, plaintext: Piece) -> bytes:
        """Return the next record, of 1 to RECORD_BYTES_MAX bytes. It has to be sent."""
        number = self._sealed
        self._sealed = number + 1  # before it is used: never twice, whatever interrupts this
        length = LENGTH.pack(len(plaintext) + TAG_BYTES)
        return length + self._sealing.encrypt(number.to_bytes(12, "big"), plaintext, length)

    def resume(self, buffer: memoryview) -> int:
        """Put what is held at the beginning of the buffer: what comes next belongs behind it.

        Returns how many bytes that are; `open` has to be told them, too.
        """
        held = self._held
        if held:
            buffer[: len(held)] = held
        return len(held)

    def open(self, buffer: memoryview, count: int) -> int:
        """Open the records in the first `count` bytes of a buffer, in place.

        Returns how many bytes at the beginning of the buffer are plaintext now. Keeps the rest, a
        record that has not come whole, for `resume`. If a record is not the one that the other side
        has sent, `failure` says so, and what came before it is returned.
        """
        at = plain = 0
        while count - at >= LENGTH_BYTES and not self.failure:
            (size,) = LENGTH.unpack_from(buffer, at)
            if not TAG_BYTES < size <= self._size_max:
                self._fail(f"a record of {size:,} bytes")
                break
            body_at = at + LENGTH_BYTES
            end = body_at + size
            if end > count:
                break
            number, length = self._opened.to_bytes(12, "big"), buffer[at:body_at]
            try:
                text = self._opening.decrypt(number, buffer[body_at:end], length)
            except InvalidTag:
                self._fail("a record that fails verification")
                break
            self._opened += 1
            self._size_max = RECORD_BYTES_MAX + TAG_BYTES
            buffer[plain : plain + len(text)] = text  # shorter than its record, which is read
            plain += len(text)
            at = end
        self._held = bytes(buffer[at:count]) if at < count and not self.failure else b""
        return plain

    def _fail(self, what: str) -> None:
        if self.is_proved:
            self.failure = f"{what} came: it was not sent so, or not at this place"
        else:
            self.failure = f"{what} came first: the other side has not the key it names"
