"""What others see of our MCAP files, and we of theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.reader import NonSeekingReader, SeekingReader, make_reader
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, Writer

from jsonbus.recording import Recording, create_recording, open_recording
from jsonbus.recording.mcap_file import sink
from jsonbus.recording.mcap_file.channels import to_nanoseconds
from tests.recording.samples import BEGAN_AT, facts, make_messages, read_all


def record(path: Path, count: int = 5_000) -> None:
    messages = make_messages(count)
    with create_recording(path) as recording:
        for first in range(0, count, 100):
            recording.write(messages[first : first + 100])


def test_the_summary_tells_what_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    record(path)
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        assert isinstance(reader, SeekingReader)
        assert reader.get_header().library.startswith("jsonbus ")
        summary = reader.get_summary()
        assert summary is not None and summary.statistics is not None
        statistics = summary.statistics
        assert statistics.message_count == 5_000
        assert statistics.channel_count == len(summary.channels)
        assert statistics.chunk_count == len(summary.chunk_indexes) > 1
        assert sum(statistics.channel_message_counts.values()) == 5_000
        assert abs(statistics.message_start_time - BEGAN_AT * 1e9) < 1000
        assert all(each.compression == "zstd" for each in summary.chunk_indexes)
        assert all(each.message_index_offsets for each in summary.chunk_indexes)


def test_every_reader_of_the_library_finds_all_messages(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    record(path)
    for kind in (SeekingReader, NonSeekingReader):
        with path.open("rb") as file:
            times = []
            for schema, channel, message in kind(file, validate_crcs=True).iter_messages():
                assert schema is not None and schema.encoding == "jsonschema"
                assert json.loads(schema.data) == {"type": "object", "properties": {}}
                assert channel.message_encoding == "json"
                assert isinstance(json.loads(message.data), dict)
                times.append(message.log_time)
        assert len(times) == 5_000 and times == sorted(times)
    with path.open("rb") as file:
        kinds = {type(each).__name__ for each in StreamReader(file, validate_crcs=True).records}
    assert {"Header", "DataEnd", "Statistics", "ChunkIndex", "Footer"} <= kinds


def test_one_topic_can_be_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    record(path, 400)
    with path.open("rb") as file:
        found = list(make_reader(file).iter_messages(topics=["sensors/kitchen/1"]))
    assert len(found) == 100


def test_a_value_that_is_no_object_is_wrapped_for_viewers_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    messages = make_messages(3)
    for message, value in zip(messages, (7, {"value": 7}, {"a": 1}), strict=True):
        message.value = value
    with create_recording(path) as recording:
        recording.write(messages)
    with path.open("rb") as file:
        data = [json.loads(message.data) for _, _, message in make_reader(file).iter_messages()]
    assert data == [{"value": 7}, {"value": 7}, {"a": 1}]
    assert [each.value for each in open_recording(path)] == [7, {"value": 7}, {"a": 1}]


def test_sequences_have_64_bits(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    messages = make_messages(4)
    sequences = [2**64 - 1, 2**32, 2**32 - 1, None]
    for message, sequence in zip(messages, sequences, strict=True):
        message.sequence = sequence
    with create_recording(path) as recording:
        recording.write(messages)
    assert [each.sequence for each in open_recording(path)] == sequences


@given(st.floats(0, 1e10) | st.floats(1.7e9, 1.9e9))
def test_a_time_comes_back_from_its_nanoseconds(at: float) -> None:
    again = to_nanoseconds(at) / 1_000_000_000
    assert again == at or abs(again - at) < 1e-9


def test_more_publishers_and_topics_than_channels_are_recorded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "CHANNELS_MAX", 5)
    path = tmp_path / "run.mcap"
    record(path, 200)
    assert read_all(path) == [facts(each) for each in make_messages(200)]
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None and len(summary.channels) == 6


def chunk_offsets(path: Path) -> list[int]:
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    return [each.chunk_start_offset for each in summary.chunk_indexes]


@pytest.mark.slow
@pytest.mark.parametrize("offset", [5, 60], ids=["its length", "its data"])
def test_a_damaged_chunk_is_passed_over_and_told(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "run.mcap"
    record(path)
    offsets = chunk_offsets(path)
    contents = bytearray(path.read_bytes())
    contents[offsets[0] + offset] ^= 0xFF
    path.write_bytes(contents)
    told: list[str] = []
    recording = Recording(path, on_trouble=told.append)
    read = list(recording)
    assert 0 < len(read) < 5_000
    # The channels were in the chunk: they are told again in the summary.
    assert facts(read[-1]) == facts(make_messages(5_000)[-1])
    assert recording.skipped == len(told) == 1
    assert f"run.mcap, byte {offsets[0]:,}, is passed over" in told[0]
    assert recording.torn == []


def write_foreign(path: Path, compression: CompressionType, use_chunking: bool) -> None:
    with path.open("wb") as file:
        writer = Writer(file, compression=compression, use_chunking=use_chunking)
        writer.start()
        texts = writer.register_channel("texts", "json", 0)
        images = writer.register_channel("images", "protobuf", 0)
        for number in range(4):
            writer.add_message(texts, number * 10**9, b'{"n":%d}' % number, 0, number)
            writer.add_message(images, number * 10**9, b"\x01", 0, number)
        writer.add_message(texts, 10**10, b"{", 0)
        writer.finish()


@pytest.mark.parametrize("compression", list(CompressionType))
@pytest.mark.parametrize("use_chunking", [True, False])
def test_json_of_other_writers_is_read_and_the_rest_counted(
    tmp_path: Path, compression: CompressionType, use_chunking: bool
) -> None:
    path = tmp_path / "other.mcap"
    write_foreign(path, compression, use_chunking)
    told: list[str] = []
    recording = Recording(path, on_trouble=told.append)
    messages = list(recording)
    assert [(each.topic, each.value, each.sequence) for each in messages] == [
        ("texts", {"n": number}, number) for number in range(4)
    ]
    assert [each.received_at for each in messages] == [0.0, 1.0, 2.0, 3.0]
    assert recording.skipped == 5
    assert "'images' is not JSON but 'protobuf'" in told[0]  # once, not for each
    assert "it is not JSON" in told[1] and len(told) == 2
