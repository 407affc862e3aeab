from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsonbus.errors import RecordingError
from jsonbus.recording import Losses, Recording, create_recording, open_recording
from jsonbus.recording.records import message_to_line
from tests.recording.samples import (
    facts,
    for_each_format,
    make_message_at,
    make_messages,
    read_all,
)


def write_in_steps(path: Path, count: int) -> list[int]:
    """Write that many messages, and flush after each; returns the file's size after every one."""
    sizes = []
    with create_recording(path) as recording:
        for message in make_messages(count):
            recording.write([message])
            recording.flush()
            sizes.append(path.stat().st_size)
    return sizes


@pytest.mark.slow
@for_each_format
def test_a_file_that_is_torn_anywhere_is_read_up_to_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    sizes = write_in_steps(path, 8)
    whole = path.read_bytes()
    expected = [facts(each) for each in make_messages(8)]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        recording = open_recording(path)
        read = [facts(each) for each in recording]
        flushed = sum(1 for each in sizes if each <= size)
        assert len(read) >= flushed, size
        assert read == expected[: len(read)], size
        assert recording.skipped == 0
    path.write_bytes(whole)
    recording = open_recording(path)
    assert len(list(recording)) == 8
    assert recording.torn == []


@for_each_format
def test_that_a_recording_has_no_end_is_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    size = write_in_steps(path, 5)[-1]
    path.write_bytes(path.read_bytes()[: size - 3])
    recording = open_recording(path)
    assert 4 <= len(list(recording)) <= 5
    assert recording.torn == [path]


@pytest.mark.slow
@for_each_format
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(data=st.data())
def test_no_damage_breaks_more_than_the_recording(
    tmp_path: Path, suffix: str, data: st.DataObject
) -> None:
    path = tmp_path / f"run.{suffix}"
    path.unlink(missing_ok=True)
    write_in_steps(path, 6)
    contents = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(contents) - 1))
        contents[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    path.write_bytes(contents)
    try:
        found = [each.topic for each in open_recording(path)]
    except RecordingError as error:
        assert str(path) in str(error)
    else:
        assert all(type(topic) is str for topic in found)


def test_a_bad_line_in_the_middle_is_passed_over_and_told(tmp_path: Path) -> None:
    lines = [message_to_line(each) for each in make_messages(4)]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join([*lines[:2], b"{]\n", b"\n", b"17\n", *lines[2:]]))
    told: list[str] = []
    recording = Recording(path, on_trouble=told.append)
    assert len(list(recording)) == 4
    assert recording.skipped == 2
    assert "run.jsonl, line 3, is passed over: it is not JSON" in told[0]
    assert "line 5" in told[1]
    assert recording.torn == []


def test_a_last_line_that_is_whole_needs_no_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(message_to_line(make_messages(1)[0]).rstrip())
    recording = open_recording(path)
    assert len(list(recording)) == 1
    assert recording.torn == []


@pytest.mark.parametrize("contents", [b"hello\nworld\n", b"\x00\x01\x02", b'{"a":1}\n', b"[1]\n"])
def test_what_is_no_recording_is_refused_with_the_place(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(contents)
    with pytest.raises(RecordingError, match="it is no recording: line 1: "):
        read_all(path)


def test_a_damaged_gzip_file_is_told_after_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    size = write_in_steps(path, 5)[2]
    contents = bytearray(path.read_bytes())
    contents[size : size + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(contents)
    messages = iter(open_recording(path))
    for expected in make_messages(3):
        assert facts(next(messages)) == facts(expected)
    with pytest.raises(RecordingError, match=r"run\.jsonl\.gz: it is damaged at byte \d+"):
        next(messages)


def test_gzip_files_may_be_put_together(tmp_path: Path) -> None:
    lines = [message_to_line(each) for each in make_messages(4)]
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(lines[:2])) + gzip.compress(b"".join(lines[2:])))
    recording = open_recording(path)
    assert len(list(recording)) == 4
    assert recording.torn == []


def test_a_large_gzip_file_is_read_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    message = make_messages(1)[0]
    message.value = "x" * 3_000_000
    with create_recording(path) as recording:
        recording.write([message] * 3)
    assert path.stat().st_size < 100_000
    assert [len(each.value) for each in open_recording(path)] == [3_000_000] * 3


def test_a_file_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no such file"):
        open_recording(tmp_path / "run.jsonl")
    with pytest.raises(RecordingError, match="Is a directory"):
        read_all(tmp_path)


def test_what_is_added_while_it_is_read_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    line = message_to_line(make_messages(1)[0])
    path.write_bytes(line * 3)
    count = 0
    with path.open("ab") as file:
        for _ in open_recording(path):
            count += 1
            file.write(line)
            file.flush()
    assert count == 3


def test_several_files_are_read_by_time(tmp_path: Path) -> None:
    for name, times in {"a": [1.0, 4.0, 7.0], "b": [2.0, 3.0, 8.0], "c": [9.0], "d": []}.items():
        with create_recording(tmp_path / f"{name}.jsonl") as recording:
            recording.write([make_message_at(at, name) for at in times])
    paths = [tmp_path / f"{name}.jsonl" for name in "cadb"]
    read = [(each.received_at, each.value) for each in open_recording(*paths)]
    assert read == [
        (1.0, "a"),
        (2.0, "b"),
        (3.0, "b"),
        (4.0, "a"),
        (7.0, "a"),
        (8.0, "b"),
        (9.0, "c"),
    ]


def test_messages_of_the_same_time_keep_their_order(tmp_path: Path) -> None:
    for name in "ab":
        with create_recording(tmp_path / f"{name}.jsonl") as recording:
            recording.write([make_message_at(1.0, f"{name}{each}") for each in range(3)])
    read = [each.value for each in open_recording(tmp_path / "a.jsonl", tmp_path / "b.jsonl")]
    assert read == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_clock_that_was_set_back_does_not_turn_time(tmp_path: Path) -> None:
    times = [100.0, 101.0, 101.5, 50.0, 51.0, 50.9, 52.0]
    with create_recording(tmp_path / "run.jsonl") as recording:
        recording.write([make_message_at(at) for at in times])
    timed = list(open_recording(tmp_path / "run.jsonl").timed())
    assert [at for at, _ in timed] == [100.0, 101.0, 101.5, 101.5, 102.5, 102.5, 103.5]
    assert [message.received_at for _, message in timed] == times


@for_each_format
def test_losses_are_told_and_are_no_messages(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    with create_recording(path) as writer:
        writer.write(make_messages(2))
        writer.note_losses(Losses(1.5, 10, 2, 3))
        writer.write(make_messages(2))
        writer.note_losses(Losses(2.5, 11, 2, 3))
    recording = open_recording(path)
    assert len(list(recording)) == 4
    assert recording.losses == {path: Losses(2.5, 11, 2, 3)}


@for_each_format
def test_it_can_be_read_again_and_tells_how_far_it_is(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    write_in_steps(path, 5)
    recording = open_recording(path)
    for _ in range(2):
        messages = iter(recording)
        next(messages)
        assert 0 < recording.position <= recording.size == path.stat().st_size
        assert len(list(messages)) == 4


def test_a_pipe_is_read_once_and_never_in_part(tmp_path: Path) -> None:
    pipe, messages = tmp_path / "pipe", make_messages(20)
    os.mkfifo(pipe)
    lines = b"".join(map(message_to_line, messages))
    writing = threading.Thread(target=pipe.write_bytes, args=(lines,))
    writing.start()
    recording = open_recording(pipe)
    assert [facts(each) for each in recording] == [facts(each) for each in messages]
    writing.join()
    with pytest.raises(RecordingError, match="only once"):
        list(recording)
