"""Keys from secrets, by the vectors of RFC 5869 and by our own."""

from __future__ import annotations

import pytest

from jsonbus.sealed.derivation import derive, hkdf

LONG = bytes(range(0x50)), bytes(range(0x60, 0xB0)), bytes(range(0xB0, 0x100))


@pytest.mark.parametrize(
    ("secret", "salt", "info", "key"),
    [
        (
            b"\x0b" * 22,
            bytes(range(13)),
            bytes(range(0xF0, 0xFA)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            *LONG,
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
            "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
            "cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            b"\x0b" * 22,
            b"",
            b"",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ],
    ids=["A.1", "A.2", "A.3"],
)
def test_keys_are_those_of_the_rfc(secret: bytes, salt: bytes, info: bytes, key: str) -> None:
    assert hkdf(secret, salt, info, len(key) // 2).hex() == key


def test_each_part_comes_after_its_length() -> None:
    info = b"label\x00\x03bus\x00\x00\x00\x02k1"
    assert derive(b"s", b"salt", b"label", b"bus", b"", b"k1") == hkdf(b"s", b"salt", info, 32)


def test_parts_that_are_cut_elsewhere_make_another_key() -> None:
    assert derive(b"s", b"", b"x", b"ab", b"c") != derive(b"s", b"", b"x", b"a", b"bc")


def test_a_key_is_as_long_as_asked_for() -> None:
    assert len(derive(b"s", b"", b"x")) == 32
    assert len(derive(b"s", b"", b"x", length=4)) == 4
