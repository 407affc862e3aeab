from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import jsonbus
from jsonbus.recording import Losses, create_recording
from jsonbus.sync.subscription import Subscription
from tests.cli.running import Run
from tests.recording.samples import for_each_format, make_message_at

BEGAN_AT = 1_794_844_270.0


def write(path: Path, count: int = 5, distance_s: float = 0.001, topic: str = "a") -> Path:
    messages = [
        make_message_at(BEGAN_AT + number * distance_s, number, f"{topic}/{number % 2}")
        for number in range(count)
    ]
    with create_recording(path) as recording:
        recording.write(messages)
    return path


@pytest.fixture
def subscription(bus: jsonbus.Bus) -> Iterator[Subscription]:
    yield bus.subscribe("**", maxsize=10_000)


def take(subscription: Subscription, count: int) -> list[jsonbus.Message]:
    """So many messages, and see that there are no more."""
    messages = [subscription.get(timeout=30) for _ in range(count)]
    assert subscription.pending == 0
    return messages


@pytest.mark.slow
@for_each_format
def test_messages_are_published_again_in_order(
    run: Run, subscription: Subscription, tmp_path: Path, suffix: str
) -> None:
    path = write(tmp_path / f"run.{suffix}", 50)
    result = run("replay", "--wait", "30", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    messages = take(subscription, 50)
    assert [(each.topic, each.value) for each in messages] == [
        (f"a/{number % 2}", number) for number in range(50)
    ]
    assert len(set(each.node for each in messages)) == 1
    assert "replayed 50 messages in 0." in result.stderr


@pytest.mark.slow
def test_a_part_of_it_is_played_as_fast_as_possible_under_other_topics(
    run: Run, subscription: Subscription, tmp_path: Path
) -> None:
    path = write(tmp_path / "run.jsonl", 10, distance_s=1000.0)
    result = run(
        *("replay", "--speed", "max", "--topic", "a/1", "--start", "2500", "--end", "7500"),
        *("--topic-prefix", "test", "--times", "2", str(path)),
    )
    assert result.exit_code == 0
    got = [(each.topic, each.value) for each in take(subscription, 6)]
    assert got == [("test/a/1", 3), ("test/a/1", 5), ("test/a/1", 7)] * 2


@pytest.mark.slow
def test_a_part_is_named_by_dates_too(run: Run, subscription: Subscription, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", 5, distance_s=60.0)  # 2026-11-16T15:51:10Z
    moments = ("--start", "2026-11-16T15:52:00+00:00", "--end", "2026-11-16T15:53:30Z")
    assert run("replay", "--speed", "max", *moments, str(path)).exit_code == 0
    assert [each.value for each in take(subscription, 2)] == [1, 2]


@pytest.mark.slow
def test_several_files_are_played_side_by_side(
    run: Run, subscription: Subscription, tmp_path: Path
) -> None:
    first = write(tmp_path / "first.jsonl", 3, topic="first")
    second = write(tmp_path / "second.mcap", 3, topic="second")
    assert run("replay", str(first), str(second)).exit_code == 0
    assert [each.value for each in take(subscription, 6)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.slow
def test_what_nobody_wants_is_told(run: Run, port: int, tmp_path: Path) -> None:
    result = run("replay", str(write(tmp_path / "run.jsonl")))
    assert result.exit_code == 0
    assert "5 of 5 values were not sent: nobody subscribes to a/0, a/1" in result.stderr


@pytest.mark.slow
def test_that_nobody_came_in_time_is_a_timeout(run: Run, tmp_path: Path) -> None:
    result = run("replay", "--wait", "0.05", str(write(tmp_path / "run.jsonl")))
    assert result.exit_code == 3
    assert "nobody subscribed to any of it within 0.05 s" in result.stderr


@pytest.mark.slow
def test_values_that_were_retained_are_for_who_comes_later(
    run: Run, bus: jsonbus.Bus, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    messages = [make_message_at(BEGAN_AT, 1), make_message_at(BEGAN_AT, 2)]
    messages[0].origin.is_retained = True
    with create_recording(path) as recording:
        recording.write(messages)
    result = run("replay", str(path))
    # Retained, so it was of use though nobody subscribed.
    assert (result.exit_code, "were not sent" in result.stderr) == (0, False)


@pytest.mark.slow
def test_bad_records_are_told_and_passed_over(
    run: Run, subscription: Subscription, tmp_path: Path
) -> None:
    path = write(tmp_path / "run.jsonl", 3)
    lines = path.read_bytes().splitlines(keepends=True)
    wrong = lines[1].replace(b"a/1", b"a//1")
    path.write_bytes(b"".join([lines[0], b"\x1b[2Jnonsense\n", wrong, lines[2]]))
    result = run("replay", str(path))
    assert result.exit_code == 1
    assert [each.value for each in take(subscription, 2)] == [0, 2]
    assert "line 2, is passed over: it is not JSON" in result.stderr
    assert "is not published: 'a//1' is not valid here" in result.stderr
    assert "replayed 2 messages in" in result.stderr
    assert "2 records could not be replayed" in result.stderr


@pytest.mark.slow
def test_bad_records_are_told_once_and_counted_in_each_pass(
    run: Run, subscription: Subscription, tmp_path: Path
) -> None:
    path = write(tmp_path / "run.jsonl", 3)
    lines = path.read_bytes().splitlines(keepends=True)
    wrong = lines[0].replace(b"a/0", b"a//0")
    path.write_bytes(b"".join([wrong, lines[1], b"nonsense\n", lines[2]]))
    # The first topic that a subscriber is looked for is none.
    result = run("replay", "--wait", "30", "--times", "2", str(path))
    assert result.exit_code == 1
    assert [each.value for each in take(subscription, 4)] == [1, 2, 1, 2]
    assert result.stderr.count("is passed over") == 1
    assert result.stderr.count("is not published") == 1
    assert "replayed 4 messages in" in result.stderr
    assert "4 records could not be replayed" in result.stderr


def test_what_is_no_recording_has_one_error_and_no_summary(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("nonsense\n")
    result = run("replay", str(path))
    assert result.exit_code == 1
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == ["Error"]


@pytest.mark.slow
def test_values_that_are_retained_only_by_the_replay_are_told(run: Run, tmp_path: Path) -> None:
    result = run("replay", "--retain", str(write(tmp_path / "run.jsonl", 4)))
    assert result.exit_code == 0
    assert "2 retained values end with this command: add --stay" in result.stderr


@pytest.mark.slow
def test_a_torn_end_is_a_note(run: Run, subscription: Subscription, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", 3)
    path.write_bytes(path.read_bytes()[:-5])
    result = run("replay", str(path))
    assert result.exit_code == 0
    assert [each.value for each in take(subscription, 2)] == [0, 1]
    assert f"{path} has no end" in result.stderr


@pytest.mark.slow
def test_what_the_recorder_lost_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    with create_recording(path) as recording:
        recording.note_losses(Losses(1.0, 4, 3, 2))
    told = run("replay", str(path)).stderr
    assert f"{path} is not complete: 4 messages lost on the way, 3 of reliable" in told


@pytest.mark.slow
def test_sums_of_losses_that_grow_from_file_to_file_are_told_to_be_such(
    run: Run, tmp_path: Path
) -> None:
    with create_recording(tmp_path / "run.jsonl", rotate_bytes=200) as recording:
        for lost in (4, 9):
            recording.write([make_message_at(BEGAN_AT, lost)])
            recording.note_losses(Losses(1.0, lost, 0, 0))
    told = run("replay", str(tmp_path / "run.jsonl")).stderr
    assert "run.00000.jsonl is not complete: 4 messages lost on the way, counted since" in told
    assert "run.00001.jsonl is not complete: 9 messages lost on the way, counted since" in told


@pytest.mark.slow
def test_losses_that_were_repaired_are_not_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    with create_recording(path) as recording:
        recording.note_losses(Losses(1.0, 4, 0, 0))
        recording.note_losses(Losses(2.0, 0, 0, 0))
    assert "not complete" not in run("replay", str(path)).stderr


@pytest.mark.slow
def test_what_is_no_recording_fails_with_the_place(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("# Title\n")
    result = run("replay", str(path))
    assert result.exit_code == 1
    assert f"Error: {path}: it is no recording: line 1: " in result.stderr
    result = run("replay", str(tmp_path / "none.jsonl"))
    assert result.exit_code == 1
    assert "there is no such file" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--speed", "fast"), "'fast' is not a speed"),
        (("--speed=-1",), "is not a speed"),
        (("--speed", "0"), "'0' is not a speed"),
        (("--speed", "inf"), "is not a speed"),
        (("--start", "yesterday"), "'yesterday' is not a time"),
        (("--end", "nan"), "is not a time"),
        (("--loop", "--times", "2"), "leave out one"),
        (("--loop", "--stay"), "--stay has no effect"),
        (("--topic", "a//b"), "is not valid here"),
        (("--topic-prefix", "**"), "is not valid here"),
    ],
)
def test_wrong_usage_is_told(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    result = run("replay", *arguments, str(write(tmp_path / "run.jsonl")))
    assert result.exit_code == 2
    assert reason in result.stderr
