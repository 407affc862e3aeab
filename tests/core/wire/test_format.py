"""The format both ways, and what can be told of a datagram without parsing it."""

from __future__ import annotations

import pytest

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import CAUSES, decode
from jsonbus.core.wire.frames import Frame, ListFrame, MessagesFrame
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


def test_of_two_headers_the_last_one_counts() -> None:
    forged = codec.dumps({**JB, "n": "forged"})
    data = b'{"topic":"a","payload":1,"jb":%b,"jb":%b}' % (forged, codec.dumps(JB))
    assert decode(data) == MessagesFrame(HEADER, [["a", 1]])


def test_every_cause_of_refusal_is_named_once() -> None:
    assert len(set(CAUSES)) == len(CAUSES) == 12
