"""Sealed datagrams: the format, and the sealing half; opener.py has the other one.

    1 byte     0xB5, with which no JSON text begins
    1 byte     version, 1
    4 bytes    key id (KeyRing.wire_id)
    16 bytes   sender salt, drawn at random when the node opened
    8 bytes    counter of the sender, from 1, big endian
    …          what was sealed, encrypted with AES-256-GCM
    16 bytes   tag

The key is HKDF-SHA256 of the secret with the sender salt as salt; the info is "jsonbus sealed 1",
the name of the bus and the id of the key, each of the two after its length in two bytes. The nonce
is the twelve bytes before the ciphertext, the associated data all thirty. A counter is used once,
whatever the key, and a salt by one node, once: so no nonce comes twice under one key, and nothing
about it has to be remembered from one start to the next.

What was sealed is a datagram as core/wire/format.py describes it, or one of the two with which
nodes find out whether another one, with another time, is really there:

    00 "?", 16 bytes salt, 16 bytes nonce        challenge: who has this salt answers
    00 "!", 16 bytes nonce, 8 bytes instant      answer, with the clock of who answers: microseconds
                                                 since 1970, big endian
"""

from __future__ import annotations

from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from jsonbus.core.wire.names import SEALED_START
from jsonbus.sealed.derivation import derive
from jsonbus.sealed.keys import Key, KeyRing

VERSION = b"\x01"
SALT_BYTES = 16
TAG_BYTES = 16
NONCE_BYTES = 12

#: Where the parts of a datagram end.
START_END = 2
KEY_END = START_END + 4
SALT_END = KEY_END + SALT_BYTES
HEAD_END = SALT_END + 8

#: Where the nonce begins: its last four bytes of salt tell nobody more, and nothing is joined.
NONCE_START = HEAD_END - NONCE_BYTES

#: What sealing adds to a datagram.
SEAL_BYTES = HEAD_END + TAG_BYTES

#: What is not a datagram of the wire format begins with this, which no JSON text does.
CONTROL = b"\0"
_CHALLENGE = CONTROL + b"?"
_ANSWER = CONTROL + b"!"
_CHALLENGE_NONCE_BYTES = 16


class Challenge(NamedTuple):
    """Who has this salt: answer."""

    salt: bytes
    nonce: bytes

    def encode(self) -> bytes:
        return _CHALLENGE + self.salt + self.nonce


class Answer(NamedTuple):
    """I am here, and it is this late, in seconds since 1970."""

    nonce: bytes
    wall: float

    def encode(self) -> bytes:
        return _ANSWER + self.nonce + int(self.wall * 1_000_000).to_bytes(8, "big")


def decode_control(data: bytes) -> Challenge | Answer | None:
    """Return what was sealed, if it begins with CONTROL and this version knows it."""
    kind, rest = data[:2], data[2:]
    if kind == _CHALLENGE and len(rest) == SALT_BYTES + _CHALLENGE_NONCE_BYTES:
        return Challenge(rest[:SALT_BYTES], rest[SALT_BYTES:])
    if kind == _ANSWER and len(rest) == _CHALLENGE_NONCE_BYTES + 8:
        instant_us = int.from_bytes(rest[_CHALLENGE_NONCE_BYTES:], "big")
        return Answer(rest[:_CHALLENGE_NONCE_BYTES], instant_us / 1_000_000)
    return None


def sending_cipher(ring: KeyRing, key: Key, salt: bytes) -> AESGCM:
    """Return the cipher of the node with that salt, under a key of the ring."""
    parts = ring.bus.encode(), key.id.encode()
    return AESGCM(derive(key.secret, salt, b"jsonbus sealed 1", *parts))


class Sealer:
    """Seals the datagrams of one node. For one thread at a time.

    `salt` must be fresh from a source of randomness: never two sealers have the same.
    """

    def __init__(self, ring: KeyRing, key: Key, salt: bytes) -> None:
        self._salt = salt
        self._counter = 0
        self.use(ring, key)

    def use(self, ring: KeyRing, key: Key) -> None:
        """Seal with this key from now on; the counter goes on."""
        #: The key in use.
        self.key = key
        self._head = SEALED_START + VERSION + ring.wire_id(key) + self._salt
        self._encrypt = sending_cipher(ring, key, self._salt).encrypt

    def seal(self, data: bytes) -> bytes:
        self._counter = counter = self._counter + 1
        head = self._head + counter.to_bytes(8, "big")
        return head + self._encrypt(head[NONCE_START:], data, head)
