"""Every request of wire.py, with good fields and with bad ones, over a real connection."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_bridge import fields, wire
from tests.helpers import wait_until
from tests.spark_bridge.log.log_rows import SECOND_US, make_row
from tests.spark_bridge.raw_client import RawClient, open_client
from tests.spark_bridge.served_log import ServedLog

MANY = 10**30


@pytest.fixture
def served(serve: Callable[..., ServedLog]) -> ServedLog:
    """A log of two partitions, with ten rows in the first."""
    opened = serve(seal_rows=4)
    opened.publish(range(10))
    return opened


@pytest.fixture
def client(served: ServedLog) -> Iterator[RawClient]:
    with open_client(served.address) as opened:
        yield opened


def make_stream(rows: int = 3, topic: str = "out") -> bytes:
    batch = pa.record_batch({"topic": [topic] * rows, "value": [str(each) for each in range(rows)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def values(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["value"]) for row in rows]


STAGE: dict[str, Any] = {"op": "stage", "query": "q", "batch": 0, "partition": 0, "attempt": 7}
READ: dict[str, Any] = {"op": "read", "partition": 0, "start": 0, "end": 10}


@pytest.mark.parametrize(
    "bad",
    [
        {"op": "poll", "known": "all"},
        {"op": "poll", "known": [1, "2"]},
        {"op": "poll", "known": [-1, 0]},
        {"op": "poll", "wait_ms": -1},
        {"op": "poll", "wait_ms": fields.WAIT_MS_MAX + 1},
        {"op": "poll", "wait_ms": 1.5},
        {"op": "poll", "wait_ms": True},
        {"op": "find"},
        {"op": "find", "time_us": "now"},
        {"op": "find", "time_us": 1e15},
        {"op": "find", "time_us": 1 << 63},
        {"op": "limit", "start": [0, 0], "end": [10, 0]},
        {"op": "limit", "start": [0], "end": [10, 0], "max_bytes": 1},
        {"op": "limit", "start": [0, 0], "end": [10, True], "max_bytes": 1},
        {"op": "limit", "start": [0, 0], "end": [10, MANY], "max_bytes": 1},
        {"op": "limit", "start": [0, 0], "end": {"0": 10}, "max_bytes": 1},
        {**READ, "partition": 2},
        {**READ, "partition": -1},
        {**READ, "partition": "0"},
        {**READ, "start": None},
        {**READ, "end": MANY},
        {**READ, "start": 5, "end": 4},
        {**READ, "topics": []},
        {**READ, "topics": "**"},
        {**READ, "topics": [5]},
        {**READ, "topics": [["a"]]},
        {**READ, "topics": ["a", ""]},
        {**READ, "topics": ["a**"]},
        {**READ, "topics": ["a"] * (fields.PATTERNS_MAX + 1)},
        {"op": "commit", "group": "g"},
        {"op": "commit", "group": "", "offsets": [0, 0]},
        {"op": "commit", "group": 5, "offsets": [0, 0]},
        {"op": "commit", "group": "g" * 201, "offsets": [0, 0]},
        {"op": "commit", "group": "\ud800", "offsets": [0, 0]},
        {"op": "commit", "group": "g", "offsets": [0, 0, 0]},
        {"op": "commit", "group": "g", "offsets": [0, -1]},
        {"op": "note", "group": "g"},
        {"op": "note", "group": "g", "misfits": -1},
        {"op": "note", "misfits": 1},
        {**STAGE, "query": ""},
        {**STAGE, "query": ""},
        {**STAGE, "query": 7},
        {**STAGE, "query": "q" * 201},
        {**STAGE, "batch": -1},
        {**STAGE, "partition": True},
        {**STAGE, "attempt": 1.5},
        {**STAGE, "partition": None},
        {**STAGE, "attempt": MANY},
        {**STAGE, "part": "first"},
        {**STAGE, "run": 5},
        {**STAGE, "query": "\udfff"},
        {**STAGE, "bytes": 0},
        {"op": "publish", "query": "q", "batch": 0},
        {"op": "publish", "query": "q", "batch": 0, "partitions": [0, 7]},
        {"op": "publish", "query": "q", "batch": 0, "partitions": [[0, 7, 8]]},
        {"op": "publish", "query": "q", "batch": 0, "partitions": [[0, -7]]},
        {"op": "publish", "query": "q", "batch": 0, "partitions": [[0, 7]]},
        {"op": "publish", "query": None, "batch": 0, "partitions": []},
        {"op": "discard", "query": "q"},
        {"op": "discard", "batch": 0},
        {"op": "explode"},
        {"op": None},
        {"op": ["poll"]},
        {"op": "x" * 10_000},
        {"op": "hello", "version": wire.VERSION},
        {},
    ],
    ids=lambda bad: str(bad)[:60],
)
def test_a_bad_field_is_refused_and_the_connection_goes_on(
    client: RawClient, served: ServedLog, bad: dict[str, Any]
) -> None:
    reply = client.ask(bad)
    assert (reply["ok"], reply["error"]) == (False, "bad_request"), reply
    assert 0 < len(reply["message"]) < 300
    assert client.ask({"op": "poll"})["end"] == [10, 0]
    assert values(client.read(0, 0, 10)) == list(range(10))
    assert served.stats()["connections_hostile"] == 0


def test_hello_tells_what_is_served(served: ServedLog) -> None:
    with RawClient(served.address) as client:
        welcome = client.hello()
    assert welcome["ok"] is True
    assert welcome["version"] == wire.VERSION
    assert (welcome["log"], welcome["partitions"]) == (served.log.id, 2)


def test_poll_tells_the_ends_at_once_if_they_are_news(client: RawClient) -> None:
    asked = {"op": "poll", "known": None, "wait_ms": fields.WAIT_MS_MAX}
    assert client.ask(asked) == {"ok": True, "first": [0, 0], "end": [10, 0]}
    assert client.ask({**asked, "known": [9, 0]})["end"] == [10, 0]
    # Of a log that was replaced by one with other partitions.
    assert client.ask({**asked, "known": [10, 0, 0]})["end"] == [10, 0]
    assert client.ask({"op": "poll", "known": [10, 0]})["end"] == [10, 0]  # no time to wait


def test_a_long_poll_is_answered_when_rows_come(client: RawClient, served: ServedLog) -> None:
    request = {"op": "poll", "known": [10, 0], "wait_ms": fields.WAIT_MS_MAX}
    client.socket.sendall(wire.encode(request))
    assert wait_until(lambda: served.stats()["requests"] == 1)
    served.publish(["new"], partition=1)
    assert client.receive()["end"] == [10, 1]


def test_a_long_poll_goes_on_if_it_is_woken_for_nothing(
    client: RawClient, served: ServedLog
) -> None:
    client.socket.sendall(wire.encode({"op": "poll", "known": [10, 0], "wait_ms": 60_000}))
    assert wait_until(lambda: served.stats()["requests"] == 1)
    served.wake()
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(60)
    served.publish([1])
    assert client.receive()["end"] == [11, 0]


def test_a_long_poll_ends_when_its_time_is_over(client: RawClient) -> None:
    asked = {"op": "poll", "known": [10, 0], "wait_ms": 50}
    assert client.ask(asked) == {"ok": True, "first": [0, 0], "end": [10, 0]}


def test_read_gives_any_range(client: RawClient, served: ServedLog) -> None:
    for start in range(11):
        for end in range(start, 11):
            rows = client.read(0, start, end)
            assert values(rows) == list(range(start, end))
            assert [row["offset"] for row in rows] == list(range(start, end))
    assert client.read(1, 0, 0) == []


def test_read_filters_by_patterns_and_leaves_gaps_out_unless_asked(
    client: RawClient, served: ServedLog
) -> None:
    served.append(
        1,
        [
            make_row("1", "sensors/a"),
            make_row("2", "other"),
            make_row(None, None, gap=5),
            make_row(None, "sensors/b", gap=6),
            make_row("3", "sensors/b"),
        ],
    )

    def offsets(**wanted: Any) -> list[int]:
        return [row["offset"] for row in client.read(1, 0, 5, **wanted)]

    assert offsets() == [0, 1, 4]
    assert offsets(topics=None) == offsets(topics=["**"]) == [0, 1, 4]
    assert offsets(topics=["sensors/*"]) == [0, 4]
    assert offsets(topics=["sensors/a", "other", "other"]) == [0, 1]
    assert offsets(topics=["nothing"]) == []
    assert offsets(topics=["sensors/*"], gaps=True) == [0, 2, 3, 4]
    assert offsets(gaps=True) == [0, 1, 2, 3, 4]
    assert offsets(gaps="yes") == [0, 1, 4]


@pytest.mark.parametrize(("start", "end", "offset"), [(0, 11, 11), (11, 11, 11), (5, 99, 99)])
def test_a_range_beyond_the_log_is_refused_with_the_facts(
    client: RawClient, start: int, end: int, offset: int
) -> None:
    reply = client.ask({**READ, "start": start, "end": end})
    assert reply.pop("message")
    assert reply == {
        "ok": False,
        "error": "out_of_range",
        "partition": 0,
        "offset": offset,
        "first": 0,
        "end": 10,
    }
    assert values(client.read(0, 0, 10)) == list(range(10))


def test_a_range_that_retention_deleted_is_refused_with_the_facts(
    serve: Callable[..., ServedLog],
) -> None:
    served = serve(partitions=1, seal_rows=4, segment_bytes=1, retention_bytes=1)
    for number in range(5):
        served.publish(range(number * 4, number * 4 + 4))
    (first,) = served.log.first()
    assert first > 0
    with open_client(served.address) as client:
        reply = client.ask({**READ, "start": 0, "end": 20})
        assert reply["error"] == "out_of_range"
        assert (reply["offset"], reply["first"], reply["end"]) == (0, first, 20)
        assert client.ask({"op": "poll"})["first"] == [first]
        assert values(client.read(0, first, 20)) == list(range(first, 20))


def test_a_range_is_read_whole_while_the_log_grows(serve: Callable[..., ServedLog]) -> None:
    served = serve(partitions=1, seal_rows=50)
    stopping = threading.Event()

    def grow() -> None:
        number = 0
        while not stopping.is_set():
            served.publish(range(number, number + 7))
            number += 7

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        with open_client(served.address) as client:
            known, done = None, 0
            while done < 2_000:
                reply = client.ask({"op": "poll", "known": known, "wait_ms": 10_000})
                known = reply["end"]
                assert values(client.read(0, done, known[0])) == list(range(done, known[0]))
                done = known[0]
    finally:
        stopping.set()
        thread.join()


def test_damage_in_the_middle_of_a_range_ends_the_stream_with_its_reason(
    serve: Callable[..., ServedLog], caplog: pytest.LogCaptureFixture
) -> None:
    served = serve(partitions=1, seal_rows=4, segment_bytes=1)
    for start in range(0, 16, 4):
        served.publish(range(start, start + 4))
    path = max(served.log.directory.glob("partition-0/0*.log"))
    with open(path, "r+b") as file:
        file.seek(-16, os.SEEK_END)
        file.write(os.urandom(16))
    with open_client(served.address) as client:
        # The last block is to be cut, so it has to be looked into; those before are not.
        reply = client.ask({**READ, "end": 15})
        assert reply == {"ok": True}
        chunks = [client.receive_chunk() for _ in range(4)]
        assert [kind for kind, _ in chunks] == [wire.BLOCKS] * 3 + [wire.BROKEN]
        _, body = chunks[-1]
        refusal = wire.decode(body)
        assert (refusal["ok"], refusal["error"]) == (False, "failed")
        assert "checksum" in refusal["message"]
        assert client.receive_end() == b""
    with open_client(served.address) as client:
        # Nothing was sent yet: this is a plain refusal, and the connection goes on.
        reply = client.ask({**READ, "start": 13, "end": 15})
        assert (reply["ok"], reply["error"]) == (False, "failed")
        assert values(client.read(0, 0, 12)) == list(range(12))
    assert "a request failed" in caplog.text


def test_find_answers_though_the_clock_was_set_back(serve: Callable[..., ServedLog]) -> None:
    served = serve(partitions=2, seal_rows=2)
    seconds = [100, 101, 102, 50, 51, 103, 104, 20]
    for number, second in enumerate(seconds):
        served.append(0, [make_row(str(number), at_us=second * SECOND_US)])
    with open_client(served.address) as client:

        def find(second: float) -> list[int]:
            reply = client.ask({"op": "find", "time_us": round(second * SECOND_US)})
            assert reply["ok"]
            offsets: list[int] = reply["offsets"]
            return offsets

        for second in (-1, 0, 20, 50, 100, 102, 103.5, 104, 1e9):
            offset, empty = find(second)
            assert empty == 0
            # Nobody who asks for a time misses a row that was received then or later.
            assert all(each < second for each in seconds[:offset])
        assert find(1e9)[0] == len(seconds)
        assert find(0)[0] == 0
        assert find(103)[0] == 5


def test_limit_gives_at_least_a_row_and_at_most_the_ends(client: RawClient) -> None:
    asked = {"op": "limit", "start": [0, 0], "end": [10, 0]}
    assert client.ask({**asked, "max_bytes": 0})["offsets"] == [1, 0]
    assert client.ask({**asked, "max_bytes": 1 << 40})["offsets"] == [10, 0]
    assert client.ask({**asked, "end": [11, 0], "max_bytes": 1})["error"] == "out_of_range"


def test_commit_and_note_tell_how_far_a_group_is(client: RawClient, served: ServedLog) -> None:
    assert client.ask({"op": "commit", "group": "g", "offsets": [4, 0]}) == {"ok": True}
    assert client.ask({"op": "note", "group": "g", "misfits": 2}) == {"ok": True}
    told = served.groups.describe(served.log.end(), 1e9)["g"]
    assert (told["lag"], told["misfits"], told["offsets"]) == (6, 2, [4, 0])


def test_rows_are_staged_published_once_and_discarded(client: RawClient, served: ServedLog) -> None:
    stream = make_stream()
    stage = {**STAGE, "bytes": len(stream)}
    publish = {"op": "publish", "query": "q", "batch": 0, "partitions": [[0, 7]]}
    assert client.ask(stage, stream) == {"ok": True, "rows": 3}
    assert client.ask({"op": "discard", "query": "q", "batch": 0}) == {"ok": True}
    assert client.ask(publish)["error"] == "bad_request"
    assert client.ask(stage, stream) == {"ok": True, "rows": 3}
    assert client.ask(publish) == {"ok": True, "published": 3, "repeated": False}
    assert client.ask(publish) == {"ok": True, "published": 0, "repeated": True}
    assert served.published == [("out", 0), ("out", 1), ("out", 2)]


def test_two_clients_that_stage_one_batch_do_not_mix(served: ServedLog) -> None:
    """Two attempts of one task: the one that the driver names goes out, the other does not."""
    first, second = make_stream(2, "first"), make_stream(3, "second")
    with open_client(served.address) as one, open_client(served.address) as other:
        assert one.ask({**STAGE, "bytes": len(first)}, first)["rows"] == 2
        assert other.ask({**STAGE, "attempt": 8, "bytes": len(second)}, second)["rows"] == 3
        # The same attempt again, as after a reply that was lost: it replaces itself.
        assert one.ask({**STAGE, "bytes": len(first)}, first)["rows"] == 2
        publish = {"op": "publish", "query": "q", "batch": 0, "partitions": [[0, 8]]}
        assert other.ask(publish)["published"] == 3
        assert one.ask({**STAGE, "bytes": len(first)}, first)["rows"] == 2  # decided: forgotten
        assert one.ask({**publish, "partitions": [[0, 7]]})["repeated"] is True
    assert {topic for topic, _ in served.published} == {"second"}


def test_rows_that_are_no_arrow_stream_are_refused(client: RawClient) -> None:
    reply = client.ask({**STAGE, "bytes": 100}, os.urandom(100))
    assert (reply["ok"], reply["error"]) == (False, "bad_request")
    assert client.ask({"op": "poll"})["ok"]
