from __future__ import annotations

import json
from pathlib import Path

import pytest

import jsonbus
from jsonbus.cli.commands import record
from jsonbus.recording import Losses, RecordingWriter, open_recording
from tests.cli.running import Run, meanwhile
from tests.helpers import wait_until
from tests.recording.samples import for_each_format
from tests.small_disk import small_disk


def publish_when_wanted(bus: jsonbus.Bus, topic: str, values: list[object]) -> None:
    assert bus.wait_for_subscribers(topic, timeout=30)
    for value in values:
        bus.publish(topic, value)


@for_each_format
def test_messages_are_recorded_until_there_are_so_many(
    run: Run, bus: jsonbus.Bus, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"run.{suffix}"
    values: list[object] = [{"n": each} for each in range(300)]
    with meanwhile(lambda: publish_when_wanted(bus, "a/b", values)):
        result = run("record", "--count", "300", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    messages = list(open_recording(path))
    assert [each.value for each in messages] == values
    assert {each.topic for each in messages} == {"a/b"}
    assert {each.node for each in messages} == {bus.id}
    first, last = result.stderr.splitlines()
    assert first == f"recording ** to {path}; Ctrl-C ends"
    assert last.startswith("recorded 300 messages, ")
    assert last.endswith(f": {path}; nothing was lost")


def test_only_what_the_patterns_match_is_recorded(
    run: Run, bus: jsonbus.Bus, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"

    def publish() -> None:
        assert bus.wait_for_subscribers("c", timeout=30)
        for topic in ("a/1", "b", "a/2", "c"):
            bus.publish(topic, topic)

    with meanwhile(publish):
        assert run("record", "-c", "3", str(path), "a/*", "c").exit_code == 0
    assert [each.value for each in open_recording(path)] == ["a/1", "a/2", "c"]


@pytest.mark.slow
def test_a_line_of_a_recording_is_one_that_pub_publishes_under_its_topic(
    run: Run, bus: jsonbus.Bus, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    with meanwhile(lambda: publish_when_wanted(bus, "a", [1, None])):
        run("record", "--count", "2", str(path))
    with RecordingWriter(tmp_path / "more.jsonl") as writer:
        writer.note_losses(Losses(1.0, 2, 3, 4))
    lines = path.read_bytes() + (tmp_path / "more.jsonl").read_bytes()
    assert len(lines.splitlines()) == 3
    subscription = bus.subscribe("**")
    for arguments in (("-",), ("other", "-")):
        assert run("pub", *arguments, input=lines).exit_code == 0
        got = [subscription.get(timeout=30) for _ in range(2)]
        assert [(each.topic, each.value) for each in got] == [("a", 1), ("a", None)]


def test_it_ends_after_some_time_with_or_without_messages(run: Run, tmp_path: Path) -> None:
    result = run("record", "--duration", "0.05", str(tmp_path / "run.mcap"))
    assert result.exit_code == 0
    assert "recorded 0 messages" in result.stderr
    assert list(open_recording(tmp_path / "run.mcap")) == []


def test_too_few_messages_in_the_time_are_a_timeout(run: Run, tmp_path: Path) -> None:
    result = run("record", "--duration", "0.05", "--count", "1", str(tmp_path / "run.jsonl"))
    assert result.exit_code == 3


def test_it_ends_when_the_file_is_large_enough(run: Run, bus: jsonbus.Bus, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with meanwhile(lambda: publish_when_wanted(bus, "a", ["x" * 100] * 200)):
        result = run("record", "--max-size", "20k", str(path))
    assert result.exit_code == 0
    assert 19_000 < path.stat().st_size <= 20_000


def test_numbered_files_are_told(run: Run, bus: jsonbus.Bus, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with meanwhile(lambda: publish_when_wanted(bus, "a", ["x" * 100] * 100)):
        result = run("record", "--rotate-size", "5k", "--keep", "2", "-c", "100", str(path))
    assert result.exit_code == 0
    first, last = sorted(tmp_path.iterdir())
    deleted = int(last.name.split(".")[1]) - 1
    assert deleted > 0
    assert f": {first} to {last.name}, {deleted} older files deleted; nothing" in result.stderr


@pytest.mark.slow
def test_a_passive_recording_has_nothing_sent(
    run: Run, bus: jsonbus.Bus, port: int, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    is_sent: list[bool] = []

    def publish() -> None:
        assert wait_until(lambda: len(bus.nodes()) == 3)
        assert wait_until(lambda: bus.state == "sure")
        is_sent.append(bus.publish("unwanted", 1))
        for value in range(1000):
            bus.publish("wanted", value)
            if path.exists() and path.stat().st_size:
                break
            assert not subscriber.get(timeout=30).retained

    with jsonbus.Bus(name="subscriber") as other:
        subscriber = other.subscribe("wanted")
        assert bus.wait_for_subscribers("wanted", timeout=30)
        with meanwhile(publish):
            result = run("record", "--passive", "--count", "1", str(path))
    assert result.exit_code == 0
    assert is_sent == [False]
    assert [each.topic for each in open_recording(path)] == ["wanted"]
    assert "recording ** passively to" in result.stderr


def test_a_passive_recorder_is_not_basic(
    run: Run, bus: jsonbus.Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    result = run("record", "--passive", "--mode", "basic", str(path))
    assert result.exit_code == 2
    assert "mode basic makes all others send everything" in result.stderr
    assert "leave --passive out" in result.stderr
    assert not path.exists()
    monkeypatch.setenv("JSONBUS_MODE", "basic")
    modes: list[str] = []
    bus.on_node(lambda event: modes.extend(each.mode for each in bus.nodes() if not each.is_self))
    with meanwhile(lambda: wait_until(lambda: bool(modes))):
        assert run("record", "--passive", "--duration", "0.5", str(path)).exit_code == 0
    assert set(modes) == {"delayed"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("run.bag",), ".jsonl, .jsonl.gz or .mcap"),
        (("-",), "jsonbus sub"),
        (("run.jsonl", "a//b"), "'a//b' is not valid here"),
        (("run.jsonl", "--max-size", "much"), "is not a number of bytes"),
        (("run.jsonl", "--keep", "3"), "in several"),
        (("run.jsonl", "--rotate-size", "1k", "--force"), "never overwritten"),
        (("run.jsonl", "--duration", "-1"), "--duration"),
        (("run.jsonl", "--format", "bag"), "--format"),
    ],
)
def test_wrong_usage_is_told_and_leaves_no_file(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("record", *arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_kept_unless_forced(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("precious")
    result = run("record", "-d", "0", str(path))
    assert (result.exit_code, path.read_text()) == (2, "precious")
    assert "exists: choose another name, or overwrite it (--force" in result.stderr
    assert run("record", "-d", "0", "--force", str(path)).exit_code == 0
    assert path.read_text() == ""


def test_the_format_can_be_chosen(run: Run, bus: jsonbus.Bus, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with meanwhile(lambda: publish_when_wanted(bus, "a", [1])):
        assert run("record", "--format", "jsonl", "-c", "1", str(path)).exit_code == 0
    assert json.loads(path.read_text())["value"] == 1


def test_a_full_disk_fails_with_what_is_written_readable(
    run: Run, bus: jsonbus.Bus, tmp_path: Path
) -> None:
    with small_disk(tmp_path, 256 << 10) as disk:
        path = disk / "run.jsonl"
        with meanwhile(lambda: publish_when_wanted(bus, "a", ["x" * 1000] * 1000)):
            result = run("record", str(path))
        assert result.exit_code == 1
        assert f"Error: {path}: cannot be written: No space left on device" in result.stderr
        assert "received, but not written" in result.stderr
        values = [each.value for each in open_recording(path)]
    assert len(values) > 50
    assert set(values) == {"x" * 1000}


def test_losses_are_told_and_recorded(
    run: Run, bus: jsonbus.Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    monkeypatch.setattr(
        record._Recorder, "_count_losses", lambda recorder: Losses(1.0, 12, 2, 3, 4)
    )
    with meanwhile(lambda: publish_when_wanted(bus, "a", [1])):
        result = run("record", "-c", "1", str(path))
    assert result.stderr.splitlines()[-1].endswith(
        "; 12 messages lost on the way, 2 of reliable topics asked for in vain, "
        "3 messages dropped since the disk was slow, 4 datagrams found the receive buffer full"
    )
    recording = open_recording(path)
    assert len(list(recording)) == 1
    assert recording.losses == {path: Losses(1.0, 12, 2, 3, 4)}


def test_nothing_but_errors_is_said_when_quiet(run: Run, tmp_path: Path) -> None:
    result = run("record", "-q", "-d", "0", str(tmp_path / "run.jsonl"))
    assert (result.exit_code, result.stderr) == (0, "")
