"""Recordings by real processes: whole, killed and interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from jsonbus.errors import RecordingError
from jsonbus.recording import create_recording, open_recording
from tests.end_to_end.processes import Desk, Process
from tests.helpers import find_free_port
from tests.recording.samples import for_each_format, make_message_at

PUBLISHERS = 3
MESSAGES_OF_EACH = 33_400

PUBLISHER = """
import jsonbus
with jsonbus.Bus(reliable=True) as bus:
    assert bus.wait_for_subscribers("from/{0}", timeout=120)
    for number in range({1}):
        bus.publish("from/{0}", {{"n": number, "text": "é" * (number % 50)}})
    assert bus.flush(timeout=60)
    input()  # who leaves repairs no more, and a recorder on a busy machine may be far behind
"""

ENDLESS_PUBLISHER = """
import itertools, time, jsonbus
with jsonbus.Bus(reliable=True) as bus:
    assert bus.wait_for_subscribers("numbers", timeout=120)
    for number in itertools.count():
        bus.publish("numbers", number)
        if number % 20 == 0:
            time.sleep(0.005)
"""


#: More than the receive buffer of a recorder that does not read holds: 4 MB, or twice that.
FLOOD_MESSAGES = 20_000

FLOOD = f"""
import jsonbus
with jsonbus.Bus() as bus:
    assert bus.wait_for_subscribers("flood", timeout=120)
    for number in range({FLOOD_MESSAGES}):
        bus.publish("flood", "x" * 1000)
"""


def start_recording(desk: Desk, path: Path, *options: str) -> Process:
    name = f"recorder-{path.name}"
    recorder = desk.start("record", "--name", name, *options, str(path))
    desk.wait_for_node(name)
    return recorder


def by_topic(path: Path) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for message in open_recording(path):
        found[message.topic].append(message.value)
    return dict(found)


def count_readable(path: Path) -> int:
    try:
        return sum(1 for _ in open_recording(path))
    except RecordingError:
        return 0  # it is not there yet


@for_each_format
def test_100000_messages_arrive_equal_when_they_are_replayed(
    desk: Desk, tmp_path: Path, suffix: str
) -> None:
    count = str(PUBLISHERS * MESSAGES_OF_EACH)
    first, second = tmp_path / f"first.{suffix}", tmp_path / f"second.{suffix}"
    recorder = start_recording(desk, first, "--count", count)
    for each in range(PUBLISHERS):
        desk.start_command(
            [sys.executable, "-c", PUBLISHER.format(each, MESSAGES_OF_EACH)], stdin=subprocess.PIPE
        )
    recorder.expect_exit(0)
    published = [{"n": each, "text": "é" * (each % 50)} for each in range(MESSAGES_OF_EACH)]
    recorded = by_topic(first)
    assert recorded == {f"from/{each}": published for each in range(PUBLISHERS)}

    recorder = start_recording(desk, second, "--count", count)
    options = ("--reliable", "--speed", "max", "--wait", "120", "--stay")
    replayer = desk.start("replay", *options, str(first))
    recorder.expect_exit(0)
    replayer.send_signal(signal.SIGINT)
    replayer.expect_exit(0)
    assert by_topic(second) == recorded
    assert replayer.complaints[0].startswith(f"replayed {int(count):,} messages")
    assert "lost on the way" not in recorder.complaints[-1]


@for_each_format
def test_a_killed_recording_is_read_up_to_its_end(desk: Desk, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    recorder = start_recording(desk, path)
    desk.start_python(ENDLESS_PUBLISHER)
    desk.wait_until(lambda: count_readable(path) > 1_000)
    before = count_readable(path)
    desk.wait_until(lambda: count_readable(path) > before)  # it is in the middle of it
    recorder.send_signal(signal.SIGKILL)
    recorder.expect_exit(-signal.SIGKILL)
    recording = open_recording(path)
    values = [each.value for each in recording]
    assert values == list(range(len(values)))
    assert len(values) > before
    assert recording.skipped == 0


def test_what_a_recorder_that_got_no_time_missed_is_told(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder = start_recording(desk, path)
    recorder.send_signal(signal.SIGSTOP)
    publisher = desk.start_python(FLOOD)
    publisher.expect_exit(0)  # nothing comes behind its last message, by which a gap could be seen
    recorder.send_signal(signal.SIGCONT)
    desk.wait_until(lambda: count_readable(path) > 0)
    recorder.send_signal(signal.SIGINT)
    recorder.expect_exit(0)
    recording = open_recording(path)
    assert 0 < len(list(recording)) < FLOOD_MESSAGES
    # The bus may still notice, and tell, that messages are missing after that.
    (summary,) = [line for line in recorder.complaints if line.startswith("recorded ")]
    assert "datagrams found the receive buffer full" in summary
    assert recording.losses[path].kernel_drops > 0


@for_each_format
def test_an_interrupted_recording_is_whole(desk: Desk, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    recorder = start_recording(desk, path)
    desk.start_python(ENDLESS_PUBLISHER)
    desk.wait_until(lambda: count_readable(path) > 100)
    recorder.send_signal(signal.SIGINT)
    recorder.expect_exit(0)
    recording = open_recording(path)
    values = [each.value for each in recording]
    assert values == list(range(len(values)))
    assert recording.torn == []
    assert recorder.complaints[-1].startswith(f"recorded {len(values):,} messages, ")


def test_a_recording_interrupted_before_it_was_done_says_so(desk: Desk, tmp_path: Path) -> None:
    recorder = start_recording(desk, tmp_path / "run.jsonl", "--count", "5")
    recorder.send_signal(signal.SIGTERM)
    recorder.expect_exit(130)
    assert recorder.complaints[-1].startswith("recorded 0 messages")


def write_long(path: Path) -> Path:
    with create_recording(path) as recording:
        recording.write([make_message_at(1e9 + each, each, "slow") for each in (0, 0.01, 1000)])
    return path


def test_an_interrupted_replay_tells_how_far_it_came(desk: Desk, tmp_path: Path) -> None:
    path = write_long(tmp_path / "run.mcap")
    subscriber = desk.subscribe("--value", "slow")
    replayer = desk.start("replay", "--wait", "120", str(path))
    desk.wait_until(lambda: len(subscriber.lines) == 2)
    replayer.send_signal(signal.SIGINT)
    replayer.expect_exit(130)
    assert replayer.complaints[0].startswith("replayed 2 messages in ")


def test_a_replay_that_loops_ends_by_an_interrupt(desk: Desk, tmp_path: Path) -> None:
    path = write_long(tmp_path / "run.jsonl")
    subscriber = desk.subscribe("--value", "slow")
    replayer = desk.start("replay", "--loop", "--end", "1", "--wait", "120", str(path))
    desk.wait_until(lambda: len(subscriber.lines) >= 10)
    replayer.send_signal(signal.SIGINT)
    replayer.expect_exit(0)
    assert subscriber.lines[:4] == ["0", "0.01", "0", "0.01"]


def test_a_replay_into_its_own_recording_comes_to_an_end(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    start_recording(desk, path)
    desk.run("pub", "--wait", "120", "door", "1")
    desk.wait_until(lambda: count_readable(path) == 1)
    for count in (2, 4, 8):
        desk.run("replay", "--wait", "120", str(path))
        desk.wait_until(lambda count=count: count_readable(path) == count)


def test_values_that_were_retained_are_given_to_who_comes_later(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    keeper = desk.start("pub", "--retain", "--stay", "door", '"open"')
    desk.wait_until(lambda: any("retains 1 value" in each for each in keeper.complaints))
    desk.start("record", "--count", "1", str(path)).expect_exit(0)
    (message,) = open_recording(path)
    assert message.retained
    other_port = find_free_port()
    desk.start("replay", "--loop", str(path), port=other_port)
    subscriber = desk.start("sub", "--once", "door", port=other_port)
    subscriber.expect_exit(0)
    assert subscriber.results[0]["value"] == "open"
