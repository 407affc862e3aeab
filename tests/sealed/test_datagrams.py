"""The format of sealed datagrams, byte by byte, so that other languages can be written against it.

`test_the_bytes_of_a_sealed_datagram` has all that is needed: key, salt, counter, text, and result.
"""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from jsonbus.config import BusConfig
from jsonbus.errors import ConfigError
from jsonbus.sealed import datagrams
from jsonbus.sealed.datagrams import (
    HEAD_END,
    NONCE_START,
    SEAL_BYTES,
    Answer,
    Challenge,
    Sealer,
    decode_control,
    sending_cipher,
)
from jsonbus.sealed.keys import parse_ring
from tests.sealed.material import OTHER_SECRET, SECRET, key, ring

RING = parse_ring(ring())
SALT = bytes(range(0xA0, 0xB0))
TEXT = b'{"topic":"door","payload":"open"}'


def make_sealer() -> Sealer:
    return Sealer(RING, RING.keys[0], SALT)


def test_the_bytes_of_a_sealed_datagram() -> None:
    sealer = make_sealer()
    sealer.seal(b"the first")
    assert sealer.seal(TEXT).hex() == (
        "b501"  # magic, version
        "a2c9565a"  # key id
        "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"  # sender salt
        "0000000000000002"  # counter
        "3e5bdcea946bc45514c107ace6242017bd42e534b4ac965a058b33c5d15a1d5321"
        "dc96a532ba0f0a99379cb0b9b3fc050c"  # tag
    )


def test_the_format_can_be_made_with_a_hash_and_a_cipher_alone() -> None:
    def expand(salt: bytes, info: bytes) -> bytes:
        return hmac.digest(hmac.digest(salt, SECRET, "sha256"), info + b"\x01", hashlib.sha256)

    head = b"\xb5\x01" + expand(b"", b"jsonbus key id 1\x00\x05plant\x00\x02k1")[:4]
    head += SALT + (1).to_bytes(8, "big")
    cipher = AESGCM(expand(SALT, b"jsonbus sealed 1\x00\x05plant\x00\x02k1"))
    assert make_sealer().seal(TEXT) == head + cipher.encrypt(head[18:], TEXT, head)


@pytest.mark.parametrize(
    ("cipher_key", "nonce", "text", "associated", "sealed"),
    [
        # The GCM specification, test case 16; NIST's CAVS has the same cipher.
        (
            "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
        # Test case 13: nothing at all.
        ("00" * 32, "00" * 12, "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
    ],
    ids=["16", "13"],
)
def test_the_cipher_is_the_one_of_the_specification(
    cipher_key: str, nonce: str, text: str, associated: str, sealed: str
) -> None:
    cipher = datagrams.AESGCM(bytes.fromhex(cipher_key))
    arguments = bytes.fromhex(nonce), bytes.fromhex(text), bytes.fromhex(associated)
    assert cipher.encrypt(*arguments).hex() == sealed


def test_counters_begin_with_1_and_no_nonce_comes_twice() -> None:
    sealer = make_sealer()
    nonces = [sealer.seal(TEXT)[NONCE_START:HEAD_END] for _ in range(300)]
    assert nonces[0] == SALT[12:] + (1).to_bytes(8, "big")
    assert len(set(nonces)) == 300


def test_the_counter_goes_on_under_another_key_and_under_the_first_again() -> None:
    both = parse_ring(ring(key(), key("k2", OTHER_SECRET)))
    sealer = Sealer(both, both.keys[0], SALT)
    heads = []
    for used in (0, 1, 0):
        sealer.use(both, both.keys[used])
        heads.append(sealer.seal(TEXT)[:HEAD_END])
    assert [head[2:6] for head in heads] == [both.wire_id(both.keys[used]) for used in (0, 1, 0)]
    assert [head[-1] for head in heads] == [1, 2, 3]


@pytest.mark.parametrize(
    "other",
    [ring(bus="shop"), ring(key("k2")), ring(key(secret=OTHER_SECRET))],
    ids=["bus", "id", "secret"],
)
def test_bus_id_and_secret_all_make_another_cipher(other: object) -> None:
    different = parse_ring(other)
    sealed = make_sealer().seal(TEXT)
    cipher = sending_cipher(different, different.keys[0], SALT)
    with pytest.raises(InvalidTag):
        cipher.decrypt(sealed[NONCE_START:HEAD_END], sealed[HEAD_END:], sealed[:HEAD_END])


def test_a_datagram_grows_by_as_much_as_the_settings_leave_room_for() -> None:
    assert len(make_sealer().seal(TEXT)) == len(TEXT) + SEAL_BYTES
    least = 1200 + SEAL_BYTES
    assert BusConfig(key_file=ring(), datagram_bytes_max=least).datagram_bytes_max == least
    with pytest.raises(ConfigError, match=f"from {least} to"):
        BusConfig(key_file=ring(), datagram_bytes_max=least - 1)


def test_challenges_and_answers_have_these_bytes() -> None:
    nonce = bytes(range(16))
    challenge, answer = Challenge(SALT, nonce), Answer(nonce, 1_794_960_000.5)
    assert challenge.encode() == b"\0?" + SALT + nonce
    assert answer.encode() == b"\0!" + nonce + bytes.fromhex("00066081b1374120")
    assert decode_control(challenge.encode()) == challenge
    assert decode_control(answer.encode()) == answer


@pytest.mark.parametrize(
    "data", [b"\0", b"\0?", b"\0?" + bytes(31), b"\0?" + bytes(33), b"\0!" + bytes(23), b"\0x"]
)
def test_what_is_neither_is_for_a_later_version(data: bytes) -> None:
    assert decode_control(data) is None
