from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Any

from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.reader import SeekingReader
from mcap.records import Channel, Chunk, Metadata
from mcap.stream_reader import get_chunk_data_stream

import jsonbus

from ..formats import MCAP_MAGIC
from ..records import LOSSES_KEY, Bad, Losses, read_losses
from .channels import ChannelReader

_MESSAGE_HEAD = struct.Struct("<HIQQ")
_RECORD_HEAD = struct.Struct("<BQ")


class McapSource:
    """Reads the messages of an MCAP file, even if it is unfinished or others wrote it.

    `bad` is called with the place and the reason of what cannot be read.
    """

    def __init__(self, stream: IO[bytes], size: int, bad: Bad) -> None:
        self._stream = stream
        self._size = size
        self._bad = bad
        self.is_torn = False
        self.position = 0
        self._channels: dict[int, ChannelReader] = {}
        self._refused: set[int] = set()
        self._summary: Any = None

    def __iter__(self) -> Iterator[jsonbus.Message | Losses]:
        if self._read(len(MCAP_MAGIC)) != MCAP_MAGIC:
            self.is_torn = True
            return
        while True:
            begins_at = self.position
            head = self._read(_RECORD_HEAD.size)
            if len(head) < _RECORD_HEAD.size:
                self.is_torn = True  # a finished file has a DataEnd
                return
            opcode, length = _RECORD_HEAD.unpack(head)
            if opcode == Opcode.DATA_END:
                return
            if length > self._size - self.position:
                if not self._skip_to_next_chunk(begins_at):
                    return
                continue
            yield from self._read_record(opcode, self._read(length), begins_at)

    def _read_record(
        self, opcode: int, data: bytes, begins_at: int
    ) -> Iterator[jsonbus.Message | Losses]:
        place = f"byte {begins_at:,}"
        try:
            if opcode == Opcode.CHUNK:
                chunk = Chunk.read(ReadDataStream(BytesIO(data)))
                stream, length = get_chunk_data_stream(chunk, validate_crc=True)
                yield from self._read_chunk(stream.read(length), place)
            elif opcode == Opcode.CHANNEL:
                self._add_channel(data)
            elif opcode == Opcode.MESSAGE:
                yield from self._read_message(memoryview(data), place)
            elif opcode == Opcode.METADATA:
                metadata = Metadata.read(ReadDataStream(BytesIO(data)))
                if metadata.name == LOSSES_KEY:
                    yield read_losses(metadata.metadata)
        except Exception as error:  # the decompressors have their own errors
            self._bad(place, f"{type(error).__name__}: {error}")

    def _read_chunk(self, data: bytes, place: str) -> Iterator[jsonbus.Message]:
        view, position, size = memoryview(data), 0, len(data)
        while position < size:
            opcode, length = _RECORD_HEAD.unpack_from(data, position)
            position += _RECORD_HEAD.size
            if opcode == Opcode.MESSAGE:
                yield from self._read_message(view[position : position + length], place)
            elif opcode == Opcode.CHANNEL:
                self._add_channel(data[position : position + length])
            position += length

    def _read_message(self, record: memoryview, place: str) -> Iterator[jsonbus.Message]:
        number, sequence, log_time, publish_time = _MESSAGE_HEAD.unpack_from(record)
        channel = self._channels.get(number) or self._find_channel(number)
        if channel is None or not channel.is_json:
            self._refuse(number, channel, place)
            return
        try:
            yield channel.read(record[_MESSAGE_HEAD.size :], sequence, log_time, publish_time)
        except ValueError as error:
            self._bad(place, str(error))

    def _add_channel(self, data: bytes) -> None:
        channel = Channel.read(ReadDataStream(BytesIO(data)))
        self._channels.setdefault(channel.id, ChannelReader(channel))

    def _find_channel(self, number: int) -> ChannelReader | None:
        """Find a channel; if its record was in an unreadable chunk, the summary repeats it."""
        summary = self._read_summary()
        channel = summary.channels.get(number) if summary else None
        if channel is not None:
            self._channels[number] = ChannelReader(channel)
        return self._channels.get(number)

    def _refuse(self, number: int, channel: ChannelReader | None, place: str) -> None:
        if channel is None:
            reason = f"a message of a channel that is not there, {number}"
        else:
            reason = f"{channel.topic!r} is not JSON but {channel.encoding!r}"
        self._bad(place, reason, is_told=number not in self._refused)
        self._refused.add(number)

    def _skip_to_next_chunk(self, begins_at: int) -> bool:
        """Skip to the next chunk: a record is longer than the file, so its length is wrong, or
        the file is torn here.
        """
        summary = self._read_summary()
        if not summary:
            self.is_torn = True
            return False
        self._bad(f"byte {begins_at:,}", "a record that is longer than the file")
        offsets = [
            each.chunk_start_offset
            for each in summary.chunk_indexes
            if each.chunk_start_offset > begins_at
        ]
        if not offsets:
            return False
        self.position = self._stream.seek(min(offsets))
        return True

    def _read_summary(self) -> Any:
        """Read the summary at the end of the file; return False if there is none."""
        if self._summary is None:
            try:
                self._stream.seek(0)
                self._summary = SeekingReader(self._stream).get_summary() or False
            except (McapError, OSError, ValueError, EOFError, struct.error):
                self._summary = False
            self._stream.seek(self.position)
        return self._summary

    def _read(self, length: int) -> bytes:
        data = self._stream.read(length)
        self.position += len(data)
        return data
