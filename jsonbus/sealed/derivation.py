"""Keys made from secrets: HKDF-SHA256, RFC 5869."""

from __future__ import annotations

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF with SHA-256, extract and expand; an empty salt is the same as none."""
    return HKDF(SHA256(), length, salt, info).derive(secret)


def derive(secret: bytes, salt: bytes, info_label: bytes, *parts: bytes, length: int = 32) -> bytes:
    """Return `length` bytes that only a holder of the secret can make.

    The info is the label, then each part after its length in two bytes, big endian. So no two
    different lists of parts make the same info.
    """
    info = b"".join((info_label, *(len(part).to_bytes(2, "big") + part for part in parts)))
    return hkdf(secret, salt, info, length)
