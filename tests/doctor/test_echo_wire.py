"""Echoes: of the size that is asked for, and nothing to a node."""

from __future__ import annotations

import pytest

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX
from jsonbus.doctor.echo_wire import encode_echo, encode_echoed
from tests.core.link import Link


def echo(size_bytes: int = 200, echo_id: int = 1) -> bytes:
    stamp = Stamp("stranger", 1)
    stamp.counter = echo_id - 1
    return encode_echo(stamp, 1, 0, echo_id=echo_id, size_bytes=size_bytes)


def echoed(size_bytes: int = 200, to: str = "asker", name: str = "") -> bytes:
    return encode_echoed(
        Stamp("stranger", 1),
        1,
        0,
        to=to,
        echo_id=3,
        heard=2,
        repeated=1,
        name=name,
        size_bytes=size_bytes,
    )


@pytest.mark.parametrize("size_bytes", [200, 1_400, 1_472, DATAGRAM_BYTES_MAX])
@pytest.mark.parametrize("make", [echo, echoed])
def test_an_echo_and_its_answer_are_as_large_as_asked(make: object, size_bytes: int) -> None:
    assert callable(make)
    data = make(size_bytes)
    assert len(data) == size_bytes
    assert list(codec.loads(data)) == ["topic", "payload", "jb"]
    decode(data)


def test_an_echo_that_cannot_be_so_small_is_as_small_as_it_can_be() -> None:
    assert codec.loads(echo(size_bytes=1))["payload"] == ""


@pytest.mark.parametrize("mode", ["basic", "master", "delayed"])
def test_a_node_ignores_echoes_without_a_word(mode: str) -> None:
    link = Link(1)
    node = link.add("a", mode=mode, is_master=mode == "master")
    link.subscribe(node, "**")
    link.run(3)
    before, state = node.view.stats(), node.state
    link.forget_sent()
    link.events["a"].clear()
    for data in (echo(), echo(65_000, echo_id=2), echoed(), echoed(to="stranger", name="desk")):
        link.inject(data)
    after = node.view.stats()
    assert {key for key in after if after[key] != before.get(key)} == {
        "datagrams_received",
        "bytes_received",
    }
    assert node.state == state
    assert link.events["a"] == [] and link.sent == [] and link.values("a") == []
    assert [info.name for info in node.view.nodes(link.now)] == ["a"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"p": -1, "to": "x", "got": [1, 1]},
        {"p": 1, "to": "", "got": [1, 1]},
        {"p": 1, "to": "x", "got": [1]},
        {"p": 1, "to": "x", "got": [1, "2"]},
        {"p": 1, "to": "x", "got": [1, 2], "name": "\x1b[2J"},
    ],
)
def test_an_answer_with_wrong_fields_is_bad_input(fields: dict[str, object]) -> None:
    link = Link(1)
    node = link.add("a")
    header = {"n": "stranger", "i": 1, "q": 1, "m": 1, "t": 1}
    body = {"topic": "jsonbus.echoed", "payload": "", "jb": {**header, **fields}}
    link.inject(codec.dumps(body))
    assert node.view.stats()["rejected_bad_fields"] == 1
