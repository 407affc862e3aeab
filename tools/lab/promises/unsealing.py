"""Unsealing: opens whatever is sent on a sealed bus, late datagrams and repeats, too."""

from __future__ import annotations

from pathlib import Path

from jsonbus.sealed.datagrams import (
    CONTROL,
    HEAD_END,
    KEY_END,
    NONCE_START,
    SALT_END,
    START_END,
    sending_cipher,
)
from jsonbus.sealed.keys import read_ring
from jsonbus.sealed.opener import Decrypt


class Unsealing:
    """What holders of the keys in a file have sealed, opened."""

    def __init__(self, key_file: str) -> None:
        self._ring = read_ring(Path(key_file))
        self._senders: dict[bytes, Decrypt] = {}

    def unseal(self, sealed: bytes) -> bytes:
        """Return the datagram in it; nothing if it is one of those that are about clocks alone.

        Fails if it was not sealed with these keys: on a sealed bus nobody sends anything else.
        """
        sender = sealed[:SALT_END]
        decrypt = self._senders.get(sender)
        if decrypt is None:
            key = self._ring.find(sender[START_END:KEY_END])
            assert key is not None, f"this was not sealed with a key of the bus: {sealed!r}"
            decrypt = sending_cipher(self._ring, key, sender[KEY_END:]).decrypt
            self._senders[sender] = decrypt
        inside = decrypt(sealed[NONCE_START:HEAD_END], sealed[HEAD_END:], sealed[:HEAD_END])
        return b"" if inside[:1] == CONTROL else inside
