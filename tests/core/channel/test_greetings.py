"""What two nodes say of themselves before they are connected: both ways, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.channel.limits import DETAIL_CHARACTERS_MAX, GREETING_BYTES_MAX
from jsonbus.core.channel.wire import (
    HELLO,
    REASONS,
    REFUSED,
    WELCOME,
    Hello,
    Refusal,
    Welcome,
    decode_hello,
    decode_refusal,
    decode_welcome,
    encode_hello,
    encode_refusal,
    encode_welcome,
)
from jsonbus.core.wire import codec
from jsonbus.core.wire.names import INTEGER_MAX
from tests.core.channel.channel_pair import read_frames
from tests.core.generated import json_values, unhurried

DECODERS = {HELLO: decode_hello, WELCOME: decode_welcome, REFUSED: decode_refusal}
ENCODERS: dict[type, Any] = {Hello: encode_hello, Welcome: encode_welcome, Refusal: encode_refusal}

SAMPLES: list[tuple[Hello | Welcome | Refusal, bytes]] = [
    (
        Hello("k3v9", 17, "Küche", "m1", "door", 1000, 20),
        '\x00\x00\x00\x57H{"v":1,"n":"k3v9","i":17,"name":"Küche","to":"m1","port":"door",'
        '"max":1000,"quiet":20}'.encode(),
    ),
    (
        Hello("a", 0, "", "b", "0", 0),
        b'\x00\x00\x00\x45H{"v":1,"n":"a","i":0,"name":"","to":"b","port":"0","max":0,"quiet":7}',
    ),
    (
        Welcome("m1", 18, "master", 67_108_864),
        b'\x00\x00\x00\x40W{"v":1,"n":"m1","i":18,"name":"master","max":67108864,"quiet":7}',
    ),
    (
        Refusal("m1", "master", "unbound"),
        b'\x00\x00\x00\x3aR{"v":1,"n":"m1","name":"master","why":"unbound","text":""}',
    ),
    (
        Refusal("m1", "", "gone", "this is m1"),
        b'\x00\x00\x00\x3bR{"v":1,"n":"m1","name":"","why":"gone","text":"this is m1"}',
    ),
]


def decode(data: bytes) -> object:
    ((kind, body),) = read_frames(data)
    return DECODERS[kind](body)


@pytest.mark.parametrize(("greeting", "data"), SAMPLES)
def test_greeting_is_written_and_read_as_the_table_says(
    greeting: Hello | Welcome | Refusal, data: bytes
) -> None:
    assert ENCODERS[type(greeting)](greeting) == data
    assert decode(data) == greeting


def test_who_does_not_say_how_much_silence_it_bears_is_older_and_bears_seven_seconds() -> None:
    hello = b'{"v":1,"n":"a","i":0,"name":"","to":"b","port":"0","max":0}'
    assert decode_hello(hello).silence_s == 7
    assert decode_welcome(b'{"v":1,"n":"a","i":0,"name":"","max":0}').silence_s == 7


def test_longest_greetings_fit() -> None:
    node, name, text = '"' * 64, "\\" * 255, "\x01" * DETAIL_CHARACTERS_MAX
    longest = [
        encode_hello(Hello(node, INTEGER_MAX, name, node, name, INTEGER_MAX)),
        encode_welcome(Welcome(node, INTEGER_MAX, name, INTEGER_MAX)),
        encode_refusal(Refusal(node, name, "unbound", text)),
    ]
    for data in longest:
        assert len(data) <= GREETING_BYTES_MAX
        decode(data)


FIELDS: dict[int, dict[str, Any]] = {
    HELLO: {"v": 1, "n": "k3v9", "i": 17, "name": "k", "to": "m1", "port": "door", "max": 1000},
    WELCOME: {"v": 1, "n": "m1", "i": 18, "name": "master", "max": 1000},
    REFUSED: {"n": "m1", "name": "master", "why": "unbound"},
}
NO_INTEGER: list[Any] = [None, True, -1, 1.0, "1", [1], {}, INTEGER_MAX + 1]
NO_ID: list[Any] = [None, True, 1, "", "x" * 65, "ü", "a\n", "plain:10.0.0.7:2416", ["a"], {}]
NO_NAME: list[Any] = [None, True, 1, "x" * 256, "ü" * 128, "a\x1b[2J", "a\x9b2J", ["a"], {}]
WRONG: dict[str, list[Any]] = {
    "v": NO_INTEGER,
    "n": NO_ID,
    "i": NO_INTEGER,
    "name": NO_NAME,
    "to": NO_ID,
    "port": [*NO_NAME, ""],
    "max": NO_INTEGER,
    "why": [None, True, 1, ["taken"], {}],
}


@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, fields in FIELDS.items() for key in fields]
)
def test_greeting_with_a_field_missing_or_wrong_is_none(kind: int, key: str) -> None:
    fields = FIELDS[kind]
    DECODERS[kind](codec.dumps(fields))
    without = {each: fields[each] for each in fields if each != key}
    for bad in (without, *({**fields, key: value} for value in WRONG[key])):
        with pytest.raises(ValueError):
            DECODERS[kind](codec.dumps(bad))


@pytest.mark.parametrize("text", [None, 1, ["a"], "x" * (DETAIL_CHARACTERS_MAX + 1)])
def test_refusal_with_a_wrong_text_is_none(text: object) -> None:
    with pytest.raises(ValueError):
        decode_refusal(codec.dumps({**FIELDS[REFUSED], "text": text}))


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"null", b'"v"', b"\xff", b"[" * 4000])
def test_greeting_that_is_no_object_is_none(kind: int, body: bytes) -> None:
    with pytest.raises(ValueError):
        DECODERS[kind](body)


@pytest.mark.parametrize("kind", DECODERS)
def test_unknown_keys_are_ignored(kind: int) -> None:
    fields = FIELDS[kind]
    more = {"later": [1, {"v": 2}], **fields, "": None}
    assert DECODERS[kind](codec.dumps(more)) == DECODERS[kind](codec.dumps(fields))


@pytest.mark.slow
@unhurried
@given(st.binary(max_size=200) | json_values.map(codec.dumps).filter(lambda b: len(b) < 4096))
def test_any_body_is_a_greeting_or_none(body: bytes) -> None:
    for decoder in DECODERS.values():
        try:
            decoder(body)
        except ValueError:
            continue


@pytest.mark.slow
@unhurried
@given(st.sampled_from(list(DECODERS)), st.data())
def test_greeting_with_any_value_replaced_is_one_or_none(kind: int, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(list(FIELDS[kind])))
    body = codec.dumps({**FIELDS[kind], key: data.draw(json_values)})
    if len(body) <= GREETING_BYTES_MAX:
        try:
            DECODERS[kind](body)
        except ValueError:
            pass


# --- Versions and refusals -----------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, INTEGER_MAX])
def test_hello_of_another_version_tells_no_more_than_that(version: int) -> None:
    assert decode_hello(codec.dumps({"v": version, "who": "ann"})).version == version
    hello = decode_hello(codec.dumps({**FIELDS[HELLO], "v": version, "port": ["a", "b"]}))
    assert hello == Hello("", 0, "", "", "", 0, version=version)


def test_hello_of_another_version_can_be_written() -> None:
    hello = Hello("k3v9", 17, "k", "m1", "door", 1000, version=2)
    ((_, body),) = read_frames(encode_hello(hello))
    assert codec.loads(body)["v"] == 2


@pytest.mark.parametrize("version", [0, 2])
def test_nobody_is_welcomed_in_another_version(version: int) -> None:
    with pytest.raises(ValueError):
        decode_welcome(codec.dumps({**FIELDS[WELCOME], "v": version}))


def test_refusal_is_understood_in_every_version() -> None:
    fields = {**FIELDS[REFUSED], "why": "version"}
    for version in (0, 1, 2, "three"):
        assert decode_refusal(codec.dumps({**fields, "v": version})).reason == "version"


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_arrives(reason: str) -> None:
    refusal = Refusal("m1", "master", reason, "text")
    assert decode(encode_refusal(refusal)) == refusal


@pytest.mark.parametrize("reason", ["", "closed on Sundays", "unknown", "ambiguous", "x" * 1000])
def test_reason_of_a_later_version_counts_as_one_that_may_pass(reason: str) -> None:
    assert decode_refusal(codec.dumps({**FIELDS[REFUSED], "why": reason})).reason == "busy"


def test_text_of_a_refusal_is_made_printable() -> None:
    fields = {**FIELDS[REFUSED], "text": "no\x1b[2J\nway\x9b \u202eh\u00e4 🙂"}
    text = decode_refusal(codec.dumps(fields)).detail
    assert text == "no?[2J?way? ?h\u00e4 🙂"
    assert text.isprintable()


def test_text_of_a_refusal_is_cut() -> None:
    refusal = decode(encode_refusal(Refusal("m1", "master", "busy", "ü" * 1000)))
    assert refusal == Refusal("m1", "master", "busy", "ü" * DETAIL_CHARACTERS_MAX)
