from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from time import monotonic

import pytest

from jsonbus.errors import ClosedError, ConfigError, LocalError, PayloadError, RecordingError
from jsonbus.recording import create_recording, open_recording
from tests.helpers import wait_until
from tests.recording.samples import facts, for_each_format, make_messages, read_all
from tests.small_disk import small_disk


@for_each_format
def test_messages_come_back_equal_and_in_order(tmp_path: Path, suffix: str) -> None:
    messages = make_messages(3_000)
    path = tmp_path / f"run.{suffix}"
    with create_recording(path) as recording:
        for first in range(0, len(messages), 70):
            assert recording.write(messages[first : first + 70]) <= 70
    assert read_all(path) == [facts(each) for each in messages]
    assert recording.messages == 3_000
    assert recording.bytes == path.stat().st_size


@for_each_format
def test_what_was_flushed_can_be_read_meanwhile(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    messages = make_messages(20)
    with create_recording(path) as recording:
        recording.write(messages[:10])
        recording.flush()
        recording.write(messages[10:])
        assert read_all(path) == [facts(each) for each in messages[:10]]


@for_each_format
def test_a_recording_without_messages_has_none(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    create_recording(path).close()
    recording = open_recording(path)
    assert list(recording) == []
    assert recording.torn == []


def test_lines_are_for_every_tool(tmp_path: Path) -> None:
    for suffix in ("jsonl", "jsonl.gz"):
        with create_recording(tmp_path / f"run.{suffix}") as recording:
            recording.write(make_messages(9))
    plain = (tmp_path / "run.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "run.jsonl.gz").read_bytes()) == plain
    assert [json.loads(line)["received_at"] for line in plain.splitlines()] == [
        each.received_at for each in make_messages(9)
    ]


def test_the_format_is_that_of_the_name_or_as_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.jsonl, \.jsonl\.gz or \.mcap"):
        create_recording(tmp_path / "run.bag")
    with pytest.raises(ConfigError, match="there is no format 'bag'"):
        create_recording(tmp_path / "run.jsonl", format="bag")
    with create_recording(tmp_path / "run.bag", format="jsonl.gz") as recording:
        recording.write(make_messages(2))
    assert len(read_all(tmp_path / "run.bag")) == 2  # by its contents


def test_a_file_that_exists_is_overwritten_by_force_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("precious\n" * 1000)
    with pytest.raises(LocalError, match="exists"):
        create_recording(path)
    assert path.read_text().startswith("precious")
    with create_recording(path, force=True) as recording:
        recording.write(make_messages(1))
    assert len(read_all(path)) == 1


def test_nobody_records_into_a_file_that_is_being_recorded_into(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with create_recording(path) as recording:
        recording.write(make_messages(1))
        with pytest.raises(LocalError, match="somebody else"):
            create_recording(path, force=True)
    assert len(read_all(path)) == 1


def test_a_folder_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file or directory"):
        create_recording(tmp_path / "none" / "run.jsonl")


def test_it_is_full_after_so_many_messages(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with create_recording(path, count_max=25) as recording:
        assert recording.write(make_messages(20)) == 20
        assert not recording.is_full
        assert recording.write(make_messages(20)) == 5
        assert recording.is_full
        assert recording.write(make_messages(20)) == 0
    assert len(read_all(path)) == 25


@for_each_format
def test_it_is_full_before_the_file_is_larger_than_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    messages = make_messages(50)
    with create_recording(path, bytes_max=100_000) as recording:
        while not recording.is_full:
            recording.write(messages)
    assert 85_000 < path.stat().st_size <= 100_000
    assert len(read_all(path)) == recording.messages


@for_each_format
def test_files_are_changed_before_they_are_larger_than_told(tmp_path: Path, suffix: str) -> None:
    messages = make_messages(6_000)
    with create_recording(tmp_path / f"run.{suffix}", rotate_bytes=50_000) as recording:
        for first in range(0, len(messages), 100):
            recording.write(messages[first : first + 100])
    assert len(recording.paths) > 1
    assert recording.paths[1] == tmp_path / f"run.00001.{suffix}"
    assert all(each.stat().st_size <= 50_000 for each in recording.paths)
    assert recording.bytes == sum(each.stat().st_size for each in recording.paths)
    # By the name that was given, which no file has.
    assert read_all(tmp_path / f"run.{suffix}") == [facts(each) for each in messages]


def test_a_message_larger_than_a_file_may_be_gets_its_own(tmp_path: Path) -> None:
    messages = make_messages(3)
    messages[1].value = "x" * 10_000
    with create_recording(tmp_path / "run.jsonl", rotate_bytes=1_000) as recording:
        recording.write(messages)
    assert [len(read_all(each)) for each in recording.paths] == [1, 1, 1]


def test_all_files_together_have_a_limit_too(tmp_path: Path) -> None:
    messages = make_messages(1_000)
    with create_recording(
        tmp_path / "run.jsonl", rotate_bytes=10_000, bytes_max=25_000
    ) as recording:
        recording.write(messages)
    sizes = [each.stat().st_size for each in recording.paths]
    assert len(sizes) == 3 and 24_000 < sum(sizes) <= 25_000


@for_each_format
def test_a_message_larger_than_a_file_may_be_heeds_the_limit_of_all(
    tmp_path: Path, suffix: str
) -> None:
    messages = make_messages(3)
    messages[1].value = {"key": os.urandom(20_000).hex()}
    with create_recording(
        tmp_path / f"run.{suffix}", rotate_bytes=5_000, bytes_max=20_000
    ) as recording:
        assert recording.write(messages) == 1
        assert recording.is_full
    assert sum(each.stat().st_size for each in recording.paths) <= 20_000


def test_files_are_changed_after_some_time_if_they_have_messages(tmp_path: Path) -> None:
    with create_recording(tmp_path / "run.jsonl", rotate_s=0.01) as recording:
        for count in (1, 2, 3):
            later = monotonic() + 0.02
            recording.write(make_messages(1))
            assert len(recording.paths) == count
            assert wait_until(lambda later=later: monotonic() > later)  # type: ignore[misc]
    assert [len(read_all(each)) for each in recording.paths] == [1, 1, 1]


def test_a_recording_that_is_started_again_goes_on_behind_the_last_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    (tmp_path / "run.00007.mcap").touch()
    (tmp_path / "run.1.jsonl").touch()
    for first in (0, 2):
        with create_recording(path, rotate_bytes=300) as recording:
            recording.write(make_messages(2))
        assert [each.name for each in recording.paths] == [
            f"run.{first:05}.jsonl",
            f"run.{first + 1:05}.jsonl",
        ]
    with pytest.raises(ConfigError, match="never overwritten"):
        create_recording(path, rotate_bytes=300, force=True)


def test_only_the_last_files_are_kept(tmp_path: Path) -> None:
    precious = tmp_path / "run.jsonl"
    precious.touch()
    for _ in range(2):
        with create_recording(precious, rotate_bytes=300, keep=2) as recording:
            recording.write(make_messages(5))
    assert [each.name for each in recording.paths] == ["run.00008.jsonl", "run.00009.jsonl"]
    assert (recording.messages, recording.deleted) == (5, 5)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "run.00008.jsonl",
        "run.00009.jsonl",
        "run.jsonl",
    ]
    with pytest.raises(ConfigError, match="in several"):
        create_recording(tmp_path / "other.jsonl", keep=2)


def test_a_file_that_cannot_be_made_room_for_is_told(tmp_path: Path) -> None:
    with create_recording(tmp_path / "run.jsonl", rotate_bytes=300, keep=1) as recording:
        recording.write(make_messages(1))
        # In place of the file, what cannot be deleted like one.
        recording.paths[0].unlink()
        recording.paths[0].mkdir()
        with pytest.raises(RecordingError, match="cannot be deleted"):
            recording.write(make_messages(2))
        assert (recording.written, recording.unwritten) == (1, 2)


def test_what_is_written_is_known_when_the_next_file_cannot_be_opened(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    recording = create_recording(folder / "run.jsonl", rotate_bytes=300)
    recording.write(make_messages(1))
    recording.flush()
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(RecordingError, match="No such file or directory"):
        recording.write(make_messages(3))
    recording.close()
    assert (recording.written, recording.unwritten) == (1, 3)


def test_a_value_that_is_not_json_stops_nothing(tmp_path: Path) -> None:
    wrong = make_messages(2)
    wrong[1].value = object()
    with create_recording(tmp_path / "run.jsonl") as recording:
        with pytest.raises(PayloadError):
            recording.write(wrong)
        recording.write(make_messages(1))
    assert len(read_all(tmp_path / "run.jsonl")) == 1


def test_nothing_is_written_once_it_is_closed(tmp_path: Path) -> None:
    recording = create_recording(tmp_path / "run.jsonl")
    recording.close()
    recording.close()
    with pytest.raises(ClosedError):
        recording.write(make_messages(1))


@for_each_format
def test_a_full_disk_is_told_and_what_is_written_stays(tmp_path: Path, suffix: str) -> None:
    with small_disk(tmp_path, 256 << 10) as disk:
        path = disk / f"run.{suffix}"
        recording = create_recording(path)
        count = 0
        with pytest.raises(RecordingError, match="No space left on device"):
            while True:
                message = make_messages(1)[0]
                message.value = {"n": count, "text": str(hash(str(count))) * 20}
                recording.write([message])
                count += 1
        with pytest.raises(RecordingError):
            recording.write(make_messages(1))
        recording.close()
        assert isinstance(recording.failure, RecordingError)
        again = open_recording(path)
        values = [each.value["n"] for each in again]
        assert values == list(range(len(values)))
        assert len(values) > 100
        assert again.skipped == 0
        assert recording.written <= len(values)
        assert recording.written + recording.unwritten == count + 2


def test_mcap_that_is_not_installed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_recording(tmp_path / "run.mcap") as recording:
        recording.write(make_messages(1))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RecordingError, match=r"pip install 'jsonbus\[mcap\]'"):
        create_recording(tmp_path / "other.mcap")
    assert not (tmp_path / "other.mcap").exists()
    with pytest.raises(RecordingError, match=r"pip install 'jsonbus\[mcap\]'"):
        read_all(tmp_path / "run.mcap")
