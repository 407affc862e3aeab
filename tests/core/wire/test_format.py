"""The format both ways, and what can be told of a datagram without parsing it."""

from __future__ import annotations

import pytest

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import CAUSES, decode, peek_header, peek_topic
from jsonbus.core.wire.encode_messages import Stamp, encode_message
from jsonbus.core.wire.frames import Frame, ListFrame, MessagesFrame
from jsonbus.core.wire.names import HEADER_PEEK_BYTES, INTEGER_MAX, NODE_ID_BYTES_MAX
from tests.core.wire.samples import HEADER, JB, SAMPLE_IDS, SAMPLES, encode_frame


@pytest.mark.parametrize(("frame", "data"), SAMPLES, ids=SAMPLE_IDS)
def test_each_frame_has_exactly_these_bytes(frame: Frame, data: bytes) -> None:
    assert encode_frame(frame) == data


@pytest.mark.parametrize(("frame", "data"), SAMPLES, ids=SAMPLE_IDS)
def test_each_datagram_decodes_to_exactly_this_frame(frame: Frame, data: bytes) -> None:
    assert decode(data) == frame


@pytest.mark.parametrize("data", [data for _, data in SAMPLES], ids=SAMPLE_IDS)
def test_every_datagram_is_an_object_with_topic_first_and_payload_second(data: bytes) -> None:
    assert list(codec.loads(data))[:2] == ["topic", "payload"]


@pytest.mark.parametrize(("frame", "data"), SAMPLES, ids=SAMPLE_IDS)
def test_what_later_versions_may_add_is_ignored(frame: Frame, data: bytes) -> None:
    body = codec.loads(data)
    body["later"] = [1]
    body["jb"]["later"] = {"x": 1}
    for key in ("dig", "r", "re"):
        if key in body["jb"]:
            body["jb"][key].append("later")
    for fields in body["jb"].get("subs", {}).values():
        fields.append("later")
        fields[4] |= 1 << 40
    for pair in body["jb"].get("sus", ()):
        pair.append("later")
    assert decode(codec.dumps(body)) == frame


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b'{"topic":"hello","payload":1}', MessagesFrame(None, [["hello", 1]])),
        (b' {"payload": null, "topic": "a"}\n', MessagesFrame(None, [["a", None]])),
        (
            b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","hello","time"]}',
            ListFrame(None, ["hello", "time"], [], None, None, None, (0, 1), False),
        ),
        (
            # The second name nobody can publish under, the third only a node can ask for.
            b'{"topic":"jsonbus.topics","payload":["a","/b","jsonbus.request/c"]}',
            ListFrame(None, ["a"], [], None, None, None, (0, 1), False),
        ),
    ],
)
def test_plain_datagrams_are_understood(data: bytes, frame: Frame) -> None:
    assert decode(data) == frame


@pytest.mark.parametrize(("frame", "data"), SAMPLES, ids=SAMPLE_IDS)
def test_a_peek_tells_what_decoding_tells(frame: Frame, data: bytes) -> None:
    topic = codec.loads(data)["topic"]
    assert peek_topic(data) in (topic.encode(), None)
    assert peek_header(data) in (HEADER, None)


@pytest.mark.parametrize("value", [1, None, "x" * 60_000, [{"a": "\n"}] * 100, {"jb": {"n": 1}}])
def test_a_peek_at_a_message_of_ours_tells_topic_and_header(value: object) -> None:
    data = encode_frame(MessagesFrame(HEADER, [["sensors/küche", value]]))
    assert peek_topic(data) == "sensors/küche".encode()
    assert peek_header(data) == HEADER


def test_a_peek_finds_the_longest_header_that_we_write() -> None:
    stamp = Stamp("n" * NODE_ID_BYTES_MAX, INTEGER_MAX)
    stamp.counter = INTEGER_MAX - 1
    data = encode_message(stamp, b'"a"', b"1" * HEADER_PEEK_BYTES, INTEGER_MAX, INTEGER_MAX)
    header = peek_header(data)
    assert header is not None
    assert header.sent_us == INTEGER_MAX


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"topic":"',
        b'{"topic":"a',
        b'{"topic":"","payload":1}',
        b'{"topic":1,"payload":1}',
        b'{ "topic":"a","payload":1}',
        b'{"payload":1,"topic":"a"}',
        b'{"topic":"a\\"b","payload":1}',
        b'{"topic":"\\u0061","payload":1}',
        # The last of repeated keys counts, however it is spelt and wherever blanks are.
        b'{"topic":"a","payload":1,"topic":"b"}',
        b'{"topic":"a","payload":1, "topic" :"b"}',
        b'{"topic":"a","payload":1,"\\u0074opic":"b"}',
        b'{"topic":"a","payload":1,"t\\u006fpi\\u0063":"b"}',
    ],
)
def test_a_topic_that_only_parsing_can_tell_is_not_guessed(data: bytes) -> None:
    assert peek_topic(data) is None


_JB = codec.dumps(JB)
_FORGED = codec.dumps({**JB, "n": "forged"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"topic":"a","payload":1}',
        # A payload may hold whatever looks like a header.
        b'{"topic":"a","payload":{"x":1,"jb":%b}}' % _FORGED,
        b'{"topic":"a","payload":[{"x":1,"jb":%b}]}' % _FORGED,
        b'{"topic":"a","jb":%b,"payload":{"x":1,"jb":%b}}' % (_JB, _FORGED),
        b'{"topic":"a","payload":%b}' % codec.dumps(f',"jb":{_FORGED.decode()}'),
        # So may the header, and the rest of the datagram.
        b'{"topic":"a","payload":1,"jb":{"x":1,"jb":%b}}' % _FORGED,
        b'{"topic":"a","payload":1,"jb":%b,"later":{"x":1,"jb":%b}}' % (_JB, _FORGED),
        # A repeated key replaces the header.
        b'{"topic":"a","payload":1,"jb":%b,"jb":1}' % _FORGED,
        b'{"topic":"a","payload":1,"jb":%b,"j\\u0062":%b}' % (_FORGED, _JB),
        # What is unusual is left to decode.
        b'{"topic":"a","payload":1,"jb":%b} ' % _JB,
        b'{"topic":"a","payload":1, "jb": %b}' % _JB,
        b'{"topic":"a","payload":1,"jb":%b}' % codec.dumps({**JB, "later": "x" * 300}),
        b'{"topic":"a","payload":1,"jb":%b' % _JB,
        b'{"topic":"a","payload":1,"jb":%b]' % _JB,
        b'{"topic":"a","payload":1,"jb":{}}',
        b'{"topic":"a","payload":1,"jb":%b}' % codec.dumps({**JB, "q": -1}),
    ],
)
def test_a_header_that_only_parsing_can_tell_is_not_guessed(data: bytes) -> None:
    assert peek_header(data) is None


def test_of_two_headers_a_peek_tells_the_one_that_counts() -> None:
    data = b'{"topic":"a","payload":1,"jb":%b,"jb":%b}' % (_FORGED, _JB)
    assert peek_header(data) == HEADER
    assert decode(data) == MessagesFrame(HEADER, [["a", 1]])


def test_every_cause_of_refusal_is_named_once() -> None:
    assert len(set(CAUSES)) == len(CAUSES) == 11
