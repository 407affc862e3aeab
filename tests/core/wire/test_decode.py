"""Everything that decoding refuses, and why."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from typing import Any

import pytest

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import CAUSES, LIST_KEPT_BYTES_MAX, decode
from jsonbus.core.wire.frames import ListFrame, MessagesFrame
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX, INTEGER_MAX, NESTING_LEVELS_MAX
from jsonbus.errors import DatagramError
from tests.core.wire.samples import HEADER, JB


def datagram(topic: Any, payload: Any, **fields: Any) -> bytes:
    """Any datagram with a header, also wrong ones; a field that is ... is left out."""
    jb = {key: value for key, value in {**JB, **fields}.items() if value is not ...}
    return codec.dumps({"topic": topic, "payload": payload, "jb": jb})


def listing(payload: Any = ("jsonbus.topics", "a", "b"), **fields: Any) -> bytes:
    return datagram("jsonbus.topics", payload, **{"subs": {}, **fields})


def entry(**changes: Any) -> dict[str, Any]:
    """`subs` with one entry of which some fields are changed."""
    fields = {"i": 1, "v": 2, "age": 3, "name": "x", "flags": 0, "patterns": [1], **changes}
    return {fields.pop("node", "k3v9"): list(fields.values())}


presence = {"v": 1, "name": "x", "mode": "basic"}

BAD_DATAGRAMS = [
    ("not_json", b""),
    ("not_json", b"\x00\x01\x02"),
    ("not_json", b'{"topic":"a","payload":1'),
    ("sealed", b"\xb5\x01" + bytes(60)),
    ("not_json", b'{"topic":"a","payload":NaN}'),
    ("not_json", b'{"topic":"\xff","payload":1}'),
    ("not_json", '{"topic":"a","payload":1}'.encode("utf-16")),
    ("not_object", b"1"),
    ("not_object", b"null"),
    ("not_object", b'"topic"'),
    ("not_object", b'["topic","payload"]'),
    ("no_topic", b"{}"),
    ("no_topic", b'{"payload":1}'),
    ("no_payload", b'{"topic":"a"}'),
    ("bad_topic", b'{"topic":1,"payload":1}'),
    ("bad_topic", b'{"topic":null,"payload":1}'),
    ("bad_topic", b'{"topic":["a"],"payload":1}'),
    ("too_large", b'{"topic":"a","payload":1}'.ljust(DATAGRAM_BYTES_MAX + 1)),
    ("unknown_reserved", datagram("jsonbus.later", 1)),
    ("unknown_reserved", b'{"topic":"jsonbus.","payload":1}'),
    ("unknown_reserved", datagram("jsonbus.request/add", 1)),
    ("bad_header", b'{"topic":"jsonbus.batch","payload":[]}'),
    ("bad_header", b'{"topic":"jsonbus.presence","payload":null}'),
    ("bad_header", b'{"topic":"a","payload":1,"jb":null}'),
    ("bad_header", b'{"topic":"a","payload":1,"jb":[]}'),
    ("bad_header", b'{"topic":"a","payload":1,"jb":"n"}'),
    ("bad_header", b'{"topic":"a","payload":1,"jb":{}}'),
    *[("bad_header", datagram("a", 1, **{key: ...})) for key in JB],
    *[("bad_header", datagram("a", 1, **{key: None})) for key in JB],
    *[("bad_header", datagram("a", 1, **{key: True})) for key in JB],
    *[("bad_header", datagram("a", 1, **{key: 1.5})) for key in JB],
    *[("bad_header", datagram("a", 1, **{key: -1})) for key in JB],
    *[("bad_header", datagram("a", 1, **{key: INTEGER_MAX + 1})) for key in JB],
    ("bad_header", datagram("a", 1, n="")),
    ("bad_header", datagram("a", 1, n="x" * 65)),
    ("bad_header", datagram("a", 1, n="ü")),
    ("bad_header", datagram("a", 1, n="a\x1b[2J")),
    ("bad_header", datagram("a", 1, n="plain:10.0.0.7:2416")),
    ("bad_fields", datagram("jsonbus.batch", {})),
    ("bad_fields", datagram("jsonbus.batch", None)),
    ("bad_list", b'{"topic":"jsonbus.topics","payload":"hello"}'),
    ("bad_list", b'{"topic":"jsonbus.topics","payload":["hello",1]}'),
    ("bad_list", listing(payload=None)),
    ("bad_list", listing(payload=["jsonbus.topics", 1])),
    ("bad_list", listing(payload=["jsonbus.topics", "a//b"])),
    ("bad_list", listing(payload=["jsonbus.topics", "jsonbus.topics"])),
    ("bad_list", listing(subs=...)),
    ("bad_list", listing(subs=[])),
    ("bad_list", listing(subs={"k3v9": None})),
    ("bad_list", listing(subs={"k3v9": [1, 2, 3, "x", 0]})),
    ("bad_list", listing(subs=entry(node=""))),
    ("bad_list", listing(subs=entry(node="plain:"))),
    ("bad_list", listing(subs=entry(node="plain:" + "1" * 60))),
    ("bad_list", listing(subs=entry(node="a\nb"))),
    ("bad_list", listing(subs=entry(i=-1))),
    ("bad_list", listing(subs=entry(v=True))),
    ("bad_list", listing(subs=entry(age=1.5))),
    ("bad_list", listing(subs=entry(name=None))),
    ("bad_list", listing(subs=entry(name="ü" * 128))),
    ("bad_list", listing(subs=entry(name="a\x1b[2J"))),
    ("bad_list", listing(subs=entry(name="a\x9b2J"))),
    ("bad_list", listing(subs=entry(flags="left"))),
    ("bad_list", listing(subs=entry(flags=4 | 8))),
    ("bad_list", listing(subs=entry(patterns="a"))),
    ("bad_list", listing(subs=entry(patterns=["a"]))),
    ("bad_list", listing(subs=entry(patterns=[True]))),
    ("bad_list", listing(subs=entry(patterns=[0]))),
    ("bad_list", listing(subs=entry(patterns=[3]))),
    ("bad_list", listing(subs=entry(patterns=[-1]))),
    ("bad_list", listing(subs=entry(patterns=[1, 1]))),
    ("bad_list", listing(payload=["jsonbus.topics", "a", "a"], subs=entry(patterns=[1, 2]))),
    ("bad_list", listing(dig=12)),
    ("bad_list", listing(dig=[12])),
    ("bad_list", listing(dig=[-1, "0" * 16])),
    ("bad_list", listing(dig=[1, 0])),
    ("bad_list", listing(dig=[1, "0" * 15])),
    ("bad_list", listing(dig=[1, "0" * 14 + "  "])),
    ("bad_list", listing(dig=[1, "0x" + "0" * 14])),
    ("bad_list", listing(sum=0)),
    ("bad_list", listing(sum="")),
    ("bad_list", listing(sum="ü")),
    ("bad_list", listing(sum="!" * 684)),
    ("bad_list", listing(sum=b64encode(bytes(511)).decode())),
    ("bad_list", listing(sum=b64encode(bytes(513)).decode())),
    ("bad_list", listing(sum=b64encode(bytes(512)).decode() + "\n")),
    ("bad_list", listing(cov="some")),
    ("bad_list", listing(cov=1)),
    ("bad_list", listing(cov="g" * 64)),
    ("bad_list", listing(part=0)),
    ("bad_list", listing(part=[0])),
    ("bad_list", listing(part=[0, 0])),
    ("bad_list", listing(part=[2, 2])),
    ("bad_list", listing(part=[0, 65_536])),
    ("bad_list", listing(part=[0, 1.0])),
    ("bad_list", listing(u=2)),
    ("bad_list", listing(u=True)),
    ("bad_fields", datagram("jsonbus.presence", None)),
    *[("bad_fields", datagram("jsonbus.presence", None, **{**presence, k: ...})) for k in presence],
    *[("bad_fields", datagram("jsonbus.presence", None, **{**presence, k: []})) for k in presence],
    ("bad_fields", datagram("jsonbus.presence", None, **{**presence, "mode": "fast"})),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, ms="yes")),
    *[
        ("bad_fields", datagram("jsonbus.presence", None, **presence, rb=size))
        for size in (-1, 1.5, True, "1", [1], 2**53 + 1)
    ],
    *[
        (cause, make(**{key: text}))
        for cause, make in (
            ("bad_list", listing),
            ("bad_fields", partial(datagram, "jsonbus.presence", None, **presence)),
            ("bad_fields", partial(datagram, "jsonbus.pong", None, p=1, to="k3v9")),
        )
        for key, text in (
            *(("host", text) for text in ("", "x" * 65, "ü" * 33, "a\x1b[2J", "a\x9b2J", 1, ["a"])),
            *(("sw", text) for text in ("", "x" * 33, "ü" * 17, "1\n2", 0.2, True, {})),
            *(("ch", port) for port in (0, -1, 65_536, 2**60, 1.5, True, "80", [80])),
        )
    ],
    ("bad_list", listing(rb=-1)),
    ("bad_list", listing(rb="all")),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, dig=1)),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, sum="")),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, sus={})),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, sus=["k3v9"])),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, sus=[["k3v9"]])),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, sus=[["", 1]])),
    ("bad_fields", datagram("jsonbus.presence", None, **presence, sus=[["k3v9", "1"]])),
    ("bad_fields", datagram("jsonbus.bye", None)),
    ("bad_fields", datagram("jsonbus.bye", None, v="1")),
    ("bad_fields", datagram("jsonbus.request", 1)),
    ("bad_fields", datagram("jsonbus.request", 1, r=["add", 1])),
    ("bad_fields", datagram("jsonbus.request", 1, r=["a/*", 1, 1000])),
    ("bad_fields", datagram("jsonbus.request", 1, r=[1, 1, 1000])),
    ("bad_fields", datagram("jsonbus.request", 1, r=["add", -1, 1000])),
    ("bad_fields", datagram("jsonbus.request", 1, r=["add", 1, 1.5])),
    ("bad_fields", datagram("jsonbus.reply", 1)),
    ("bad_fields", datagram("jsonbus.reply", 1, re=["k3v9"])),
    ("bad_fields", datagram("jsonbus.reply", 1, re=[1, 1])),
    ("bad_fields", datagram("jsonbus.reply", 1, re=["k3v9", "1"])),
    ("bad_fields", datagram("jsonbus.reply", 1, re=["k3v9", 1], er=1)),
    ("bad_fields", datagram("jsonbus.reply", 1, re=["k3v9", 1], er="x" * 251)),
    ("bad_fields", datagram("jsonbus.ping", None)),
    ("bad_fields", datagram("jsonbus.ping", None, p="1")),
    ("bad_fields", datagram("jsonbus.pong", None, p=1)),
    ("bad_fields", datagram("jsonbus.pong", None, to="k3v9")),
    ("bad_fields", datagram("jsonbus.where", None)),
    *[
        ("bad_fields", datagram("jsonbus.where", None, who=who))
        for who in ("", "ü" * 128, "a\x1b[2J", "a\x9b2J", 1, True, None, ["a"], {"a": 1})
    ],
]


@pytest.mark.parametrize(("cause", "data"), BAD_DATAGRAMS, ids=[each[0] for each in BAD_DATAGRAMS])
def test_a_bad_datagram_is_refused_with_its_cause(cause: str, data: bytes) -> None:
    with pytest.raises(DatagramError) as caught:
        decode(data)
    assert caught.value.cause == cause


def test_every_cause_happens() -> None:
    assert {cause for cause, _ in BAD_DATAGRAMS} | {"too_deep"} == set(CAUSES)


def test_the_largest_datagram_is_understood() -> None:
    data = b'{"topic":"a","payload":1}'.ljust(DATAGRAM_BYTES_MAX)
    assert decode(data) == MessagesFrame(None, [["a", 1]])


def test_the_largest_numbers_are_understood() -> None:
    frame = decode(datagram("a", 1, i=INTEGER_MAX, q=INTEGER_MAX, m=INTEGER_MAX, t=0))
    assert frame.header is not None
    assert frame.header.incarnation == INTEGER_MAX


def test_a_refusal_shows_no_control_characters_of_the_sender() -> None:
    with pytest.raises(DatagramError) as caught:
        decode(datagram("jsonbus.\x1b[2J" + "x" * 1000, 1))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def nested(levels: int) -> bytes:
    """Arrays and objects in turns."""
    openings = [b'{"a":', b"["] * levels
    closings = [b"}", b"]"] * levels
    return b"".join(openings[:levels]) + b"1" + b"".join(reversed(closings[:levels]))


HEADER_JSON = codec.dumps(JB)


@pytest.mark.parametrize(
    "form",
    [
        b'{"topic":"a","payload":%b}',
        b'{"topic":"a","payload":%%b,"jb":%b}' % HEADER_JSON,
        b'{"topic":"jsonbus.batch","payload":[["a",1],["a",%%b]],"jb":%b}' % HEADER_JSON,
        b'{"topic":"jsonbus.request","payload":%%b,"jb":%b,"r":["add",1,1]}}' % HEADER_JSON[:-1],
        b'{"topic":"jsonbus.reply","payload":%%b,"jb":%b,"re":["k3v9",1]}}' % HEADER_JSON[:-1],
    ],
    ids=["plain", "message", "batch", "request", "reply"],
)
def test_a_value_is_refused_if_it_could_not_be_published_again(form: bytes) -> None:
    decode(form % nested(NESTING_LEVELS_MAX))
    for levels in (NESTING_LEVELS_MAX + 1, 1000, 5000):
        with pytest.raises(DatagramError) as caught:
            decode(form % nested(levels))
        assert caught.value.cause == "too_deep"


def test_brackets_side_by_side_are_not_deep() -> None:
    value: list[Any] = [[], {}] * 1000
    assert decode(datagram("a", value)) == MessagesFrame(HEADER, [["a", value]])
    batch = datagram("jsonbus.batch", [["a", value]])
    assert decode(batch) == MessagesFrame(HEADER, [["a", value]])


def test_brackets_in_strings_are_not_deep() -> None:
    value = "[{" * 1000
    assert decode(datagram("a", value)) == MessagesFrame(HEADER, [["a", value]])


@pytest.mark.parametrize("payload", [b'[1,{"a":%b}]', b'{"a":%b}'])
def test_a_deep_batch_is_refused_even_if_it_holds_no_messages(payload: bytes) -> None:
    payload %= nested(NESTING_LEVELS_MAX)
    with pytest.raises(DatagramError) as caught:
        decode(b'{"topic":"jsonbus.batch","payload":%b,"jb":%b}' % (payload, HEADER_JSON))
    assert caught.value.cause == "too_deep"


def test_the_items_of_a_batch_are_left_as_they_came() -> None:
    items: list[Any] = [["a", 1], 2, ["jsonbus.bye", 3], ["a"], [], {"a": 1}, ["a", 1, 7]]
    assert decode(datagram("jsonbus.batch", items)) == MessagesFrame(HEADER, items)


def test_who_left_or_is_gone_wants_nothing() -> None:
    for flag in (1, 2):
        frame = decode(listing(subs=entry(flags=flag, patterns=[1, 2])))
        assert isinstance(frame, ListFrame)
        assert [each.patterns for each, _ in frame.entries] == [()]


def test_defaults_may_also_be_spelt_out() -> None:
    spelt_out = listing(u=0, part=[0, 1], dig=None, sum=None, cov=None)
    assert decode(spelt_out) == decode(listing())


def test_a_list_is_decoded_once_for_all_nodes_of_a_process() -> None:
    data = listing(subs=entry())
    assert decode(data) is decode(bytes(bytearray(data)))
    assert decode(listing(subs=entry(age=4))) != decode(data)
    for _ in range(2):
        with pytest.raises(DatagramError):
            decode(listing(subs=entry(node="")))


def test_lists_that_no_datagram_should_fill_are_not_kept() -> None:
    data = listing(payload=["jsonbus.topics", *(f"topic/{number}" for number in range(200))])
    assert len(data) > LIST_KEPT_BYTES_MAX
    assert decode(data) == decode(data)
    assert decode(data) is not decode(data)
