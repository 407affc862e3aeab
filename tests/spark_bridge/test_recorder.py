"""What a bus brings is recorded: all of it, in order, and soon."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import jsonbus
from jsonbus.core.reliable import gaps
from jsonbus.transport import MemoryNetwork
from spark_bridge import recorder as recorder_module
from spark_bridge import rows as rows_module
from spark_bridge.errors import LogWriteError
from spark_bridge.log.offset_log import OffsetLog
from spark_bridge.recorder import Recorder
from tests.end_to_end import processes
from tests.helpers import find_free_port, wait_until
from tests.spark_bridge.log.log_rows import read_rows
from tests.sync.transports import LosingTransport, all_with

#: So long that no test waits for it.
NEVER_S = 3600.0


class GatedLog(OffsetLog):
    """A disk that takes its time: appending waits while the gate is closed, or fails."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        self.refuses: set[int] = set()
        super().__init__(*args, **options)

    def append(self, batches: dict[int, pa.RecordBatch]) -> None:
        self.waiting += 1
        assert self.gate.wait(60)
        self.waiting -= 1
        refused = self.refuses & batches.keys()
        super().append({each: rows for each, rows in batches.items() if each not in refused})
        if refused:
            raise LogWriteError("the disk is not in the mood", tuple(sorted(refused)))


class Desk:
    """A log, a recorder's bus and a publisher's."""

    def __init__(self, folder: Path, opened: ExitStack, partitions: int) -> None:
        self.port = find_free_port()
        self.log = opened.enter_context(GatedLog(folder / "log", partitions=partitions))
        self.bus = opened.enter_context(jsonbus.Bus(port=self.port, name="recorder"))
        self.publisher = opened.enter_context(jsonbus.Bus(port=self.port, name="publisher"))
        self.appended = 0

    @contextmanager
    def recording(self, *patterns: str, sync_s: float = 0.001) -> Iterator[Recorder]:
        """A recorder that runs; the publisher knows of it."""
        recorder = make_recorder(self.bus, self.log, *patterns, sync_s=sync_s, appended=self._note)
        try:
            assert wait_until(
                lambda: set(patterns or ("**",)) <= self.publisher.subscriptions().keys()
            )
            yield recorder
        finally:
            self.log.gate.set()
            recorder.stop()

    def publish(self, topic: str, *values: Any) -> None:
        for value in values:
            assert self.publisher.publish(topic, value, reliable=True)
        assert self.publisher.flush(30)

    def recorded(self, **options: Any) -> list[tuple[str | None, Any]]:
        """(topic, value), or (topic, missing) of gap records, partition by partition."""
        return [
            (row["topic"], row["gap"] if row["value"] is None else json.loads(row["value"]))
            for partition in range(self.log.partitions)
            for row in read_rows(self.log, partition, gaps=True, **options)
        ]

    def _note(self) -> None:
        self.appended += 1


def make_recorder(bus: jsonbus.Bus, log: OffsetLog, *patterns: str, **options: Any) -> Recorder:
    made = Recorder(bus, log, patterns or ("**",), **options)
    made.start()
    return made


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with ExitStack() as opened:
        yield Desk(tmp_path, opened, partitions=1)


def test_a_lone_message_is_flushed_at_once_and_the_next_ones_wait_for_their_flush(
    desk: Desk,
) -> None:
    with desk.recording(sync_s=NEVER_S) as recorder:
        desk.publish("a", 1)
        assert wait_until(lambda: desk.recorded() == [("a", 1)])
        assert wait_until(lambda: desk.appended == 1)
        desk.publish("a", 2, 3)
        assert wait_until(lambda: recorder.stats()["rows_waiting"] == 2)
        assert recorder.stats()["flushes"] == 1
    assert desk.recorded() == [("a", 1), ("a", 2), ("a", 3)]
    assert recorder.stats()["rows_recorded"] == 3


def test_a_flood_is_flushed_more_rarely(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "FLOOD_ROWS", 20)
    monkeypatch.setattr(recorder_module, "FLOOD_SYNC_S", NEVER_S)
    with desk.recording() as recorder:
        desk.log.gate.clear()
        desk.publish("a", 0)
        assert wait_until(lambda: desk.log.waiting == 1)
        desk.publish("a", *range(1, 21))  # while the disk takes its time
        assert wait_until(lambda: recorder.stats()["rows_waiting"] == 21)
        desk.log.gate.set()
        assert wait_until(lambda: desk.appended == 1)
        desk.publish("a", 21)
        assert wait_until(lambda: recorder.stats()["rows_waiting"] == 21)
        assert recorder.stats()["flushes"] == 1
    assert desk.recorded() == [("a", number) for number in range(22)]


def test_a_lone_message_is_flushed_at_once_after_a_long_silence(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "IDLE_S", 0.01)
    with desk.recording(sync_s=NEVER_S):
        idle = threading.Event()
        assert not idle.wait(0.1)  # ten times that it looks for something else to do
        desk.publish("a", 1)
        assert wait_until(lambda: desk.recorded() == [("a", 1)])


def test_a_row_says_who_published_what_and_when(desk: Desk) -> None:
    with desk.recording():
        desk.publish("a/b", {"text": "ü\n", "list": [1, None, 1.5]})
        assert desk.publisher.publish("a/b", "plain and simple")
        assert wait_until(lambda: len(desk.recorded()) == 2)
    rows = read_rows(desk.log)
    for row in rows:
        assert (row["topic"], row["node"]) == ("a/b", desk.publisher.id)
        assert row["incarnation"] > 1_600_000_000_000
        assert abs(row["received_at"] - row["timestamp"]).total_seconds() < 60
        assert row["retained"] is False
    assert [row["sequence"] for row in rows] == [1, 2]
    assert [json.loads(row["value"]) for row in rows] == [
        {"text": "ü\n", "list": [1, None, 1.5]},
        "plain and simple",
    ]


@pytest.mark.slow
def test_what_this_process_publishes_and_what_was_retained_is_recorded_too(desk: Desk) -> None:
    desk.publisher.publish("kept", "before", retain=True)
    assert desk.publisher.flush(30)
    with desk.recording():
        assert desk.bus.publish("own", {1: "a key that is no string"})
        assert wait_until(lambda: len(desk.recorded()) == 2)
    rows = {row["topic"]: row for row in read_rows(desk.log)}
    assert json.loads(rows["own"]["value"]) == {"1": "a key that is no string"}
    assert rows["own"]["node"] == desk.bus.id
    assert rows["kept"]["retained"] is True


@pytest.mark.slow
def test_overlapping_patterns_record_a_message_once(desk: Desk) -> None:
    with desk.recording("a/*", "a/b", "**/b", "c") as recorder:
        desk.publish("a/b", 1)
        desk.publish("c", 2)
        desk.publish("a/x", 3)
        assert desk.publisher.wait_until_sure(30)
        assert not desk.publisher.publish("elsewhere", 4)  # nobody wants it: it is not even sent
        assert wait_until(lambda: recorder.stats()["rows_recorded"] == 3)
    assert desk.recorded() == [("a/b", 1), ("c", 2), ("a/x", 3)]


FLOOD = """
import sys
import jsonbus

with jsonbus.Bus(reliable=True) as bus:
    assert bus.wait_for_subscribers("flood/0", timeout=60)
    for number in range(int({count})):
        bus.publish(f"flood/{{number % 3}}", number)
    assert bus.flush(60)
    sys.stdin.read()  # whoever missed something may still ask for it
"""


@pytest.mark.slow
def test_a_flood_of_another_process_is_recorded_completely_and_in_order(tmp_path: Path) -> None:
    count = 30_000
    with processes.desk() as desk, OffsetLog(tmp_path, partitions=4) as log:
        with jsonbus.Bus(port=desk.port) as bus:
            made = make_recorder(bus, log, sync_s=0.02, appended=lambda: None)
            flood = desk.start_command(
                [processes.sys.executable, "-c", FLOOD.format(count=count)],
                stdin=processes.subprocess.PIPE,
            )
            assert wait_until(lambda: made.stats()["rows_recorded"] >= count, 120)
            flood.stdin.close()
            flood.expect_exit(0)
            made.stop()
            assert bus.stats()["messages_dropped"] == 0
        rows = [row for partition in range(4) for row in read_rows(log, partition)]
    assert len(rows) == count
    for place in range(3):
        numbers = [int(row["value"]) for row in rows if row["topic"] == f"flood/{place}"]
        assert numbers == list(range(place, count, 3))


def test_stop_records_what_was_received(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what waits in the mailbox, because lots are full and the disk is slow."""
    monkeypatch.setattr(rows_module, "LOT_ROWS_MAX", 50)
    count = 1000
    with desk.recording() as recorder:
        desk.log.gate.clear()
        desk.publish("a", *range(count))
        assert wait_until(lambda: desk.bus.stats()["messages_delivered"] == count)
        threading.Timer(0.05, desk.log.gate.set).start()
        recorder.stop()
        assert desk.recorded() == [("a", number) for number in range(count)]


def test_stop_ends_though_others_go_on_publishing(desk: Desk) -> None:
    stopping = threading.Event()

    def publish() -> None:
        while not stopping.is_set():
            desk.publisher.publish("a", "x" * 50)

    thread = threading.Thread(target=publish)
    with desk.recording() as recorder:
        thread.start()
        try:
            assert wait_until(lambda: recorder.stats()["rows_recorded"] > 1000)
        finally:
            recorder.stop()
            stopping.set()
            thread.join()
    assert len(desk.recorded()) == recorder.stats()["rows_recorded"]


@pytest.mark.slow
def test_a_slow_disk_loses_nothing_and_fills_no_memory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "LOT_ROWS_MAX", 1000)
    monkeypatch.setattr(recorder_module, "MAILBOX_MESSAGES_MAX", 100)
    count = 20_000
    with desk.recording() as recorder:
        desk.log.gate.clear()
        publishing = threading.Thread(target=desk.publish, args=("a", *range(count)))
        publishing.start()
        try:
            # One lot is being flushed, two are full, so is the mailbox, and no datagram is read.
            assert wait_until(lambda: desk.log.waiting == 1)
            assert wait_until(lambda: recorder.stats()["rows_waiting"] > 2000)
            for _ in range(50):
                assert recorder.stats()["rows_waiting"] < 6000
                desk.publisher.stats()
        finally:
            desk.log.gate.set()
            publishing.join()
        assert wait_until(lambda: recorder.stats()["rows_recorded"] >= count, 60)
    assert desk.recorded() == [("a", number) for number in range(count)]
    assert recorder.stats()["rows_unrecorded"] == 0
    assert desk.bus.stats()["messages_dropped"] == 0


def test_large_values_fill_lots_by_their_bytes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LOT_BYTES_MAX", 100_000)
    values = [str(number) * 40_000 for number in range(10)]
    with desk.recording(sync_s=NEVER_S) as recorder:
        desk.publish("a", *values)
        # Not after NEVER_S: the handler waits for room, and that hurries the flusher.
        assert wait_until(lambda: recorder.stats()["rows_recorded"] >= 6, 60)
    assert desk.recorded() == [("a", value) for value in values]


@pytest.mark.slow
def test_a_gap_of_the_bus_becomes_a_gap_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "HISTORY_AGE_S", 0.5)
    network = MemoryNetwork()
    transport = LosingTransport(network, all_with("gone", "likewise"))
    with ExitStack() as opened:
        log = opened.enter_context(OffsetLog(tmp_path, partitions=1))
        publisher = opened.enter_context(jsonbus.Bus.over(transport, name="kitchen"))
        bus = opened.enter_context(jsonbus.Bus.over(network.open()))
        made = make_recorder(bus, log, sync_s=0.001, appended=lambda: None)
        opened.callback(made.stop)
        assert publisher.wait_for_subscribers("t", timeout=30)
        for value in ("first", "gone", "likewise", "last"):
            publisher.publish("t", value, reliable=True)
            assert publisher.flush()  # one to a datagram: only those two are lost
        assert wait_until(lambda: log.end() == [3])
        rows = read_rows(log, gaps=True)
        assert [json.loads(row["value"]) for row in rows if row["value"]] == ["first", "last"]
        (gap,) = (row for row in rows if row["gap"] is not None)
        assert (gap["topic"], gap["node"], gap["gap"]) == ("t", publisher.id, 2)
        assert gap["value"] is None and gap["received_at"] is not None
        assert made.stats()["gaps_recorded"] == 1
        assert [row["value"] for row in read_rows(log)] == ['"first"', '"last"']


@pytest.mark.slow
def test_rows_that_a_disk_refuses_are_told_where_they_are_missing(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "REFUSED_PAUSE_S", 0.01)
    with desk.recording() as recorder, caplog.at_level(logging.INFO, "jsonbus.bridge"):
        desk.publish("a", 1)
        assert wait_until(lambda: recorder.stats()["rows_recorded"] == 1)
        desk.log.refuses = {0}
        desk.publish("a", 2, 3)
        desk.publish("b", 4)
        assert wait_until(lambda: recorder.stats()["rows_unrecorded"] == 3)
        assert recorder.is_refused
        desk.log.refuses = set()
        # The gap is told though no message comes.
        assert wait_until(lambda: recorder.stats()["gaps_recorded"] == 2)
        desk.publish("a", 5)
        assert wait_until(lambda: recorder.stats()["rows_recorded"] == 2)
        assert not recorder.is_refused
    recorded = desk.recorded()
    assert recorded[0] == ("a", 1) and recorded[-1] == ("a", 5)
    assert sorted(recorded[1:-1]) == [("a", 2), ("b", 1)]
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1 and "the disk is not in the mood" in errors[0].getMessage()
    assert "recording goes on; 3 messages were not recorded" in caplog.text


@pytest.mark.slow
def test_only_the_partitions_that_refused_lose_rows(tmp_path: Path) -> None:
    with ExitStack() as opened:
        desk = Desk(tmp_path, opened, partitions=4)  # a is in 3, b in 1, d in 0
        with desk.recording() as recorder:
            desk.log.refuses = {1}
            for number in range(3):
                for topic in "abd":
                    desk.publish(topic, number)
            assert wait_until(lambda: sum(desk.log.end()) == 6)
            assert wait_until(lambda: recorder.stats()["rows_unrecorded"] == 3)
            desk.log.refuses = set()
            assert wait_until(lambda: sum(desk.log.end()) == 7)
        assert desk.recorded() == [
            *(("d", number) for number in range(3)),
            ("b", 3),
            *(("a", number) for number in range(3)),
        ]


@pytest.mark.slow
def test_topics_without_a_count_of_their_own_are_told_together(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "UNRECORDED_TOPICS_MAX", 2)
    with desk.recording() as recorder:
        desk.log.refuses = {0}
        for topic in "abcda":
            desk.publish(topic, 1)
        assert wait_until(lambda: recorder.stats()["rows_unrecorded"] == 5)
        desk.log.refuses = set()
        assert wait_until(lambda: desk.log.end() == [3])
    assert set(desk.recorded()) == {("a", 2), ("b", 1), (None, 2)}


@pytest.mark.slow
def test_a_bug_in_the_log_does_not_end_the_recording(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = desk.log.append

    def fail(batches: dict[int, pa.RecordBatch]) -> None:
        raise RuntimeError("an invented bug")

    with desk.recording() as recorder:
        monkeypatch.setattr(desk.log, "append", fail)
        desk.publish("a", 1, 2)
        assert wait_until(lambda: recorder.stats()["rows_unrecorded"] == 2)
        assert wait_until(lambda: recorder.stats()["gaps_dropped"] >= 1)
        monkeypatch.setattr(desk.log, "append", append)
        desk.publish("a", 3)
        assert wait_until(lambda: ("a", 3) in desk.recorded())
    assert "an invented bug" in caplog.text


def test_more_gaps_than_can_wait_are_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "GAPS_MAX", 2)
    recorder = Recorder(desk.bus, desk.log, ["**"], sync_s=0.001, appended=lambda: None)
    for first in range(5):
        recorder._note_gap(jsonbus.GapEvent("id", "name", "t", first + 1, first + 1, 1.0))
    recorder.start()
    recorder.stop()
    assert desk.recorded() == [("t", 1), ("t", 1)]
    assert recorder.stats()["gaps_dropped"] == 3
