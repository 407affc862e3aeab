from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from mcap.writer import Writer

import jsonbus

from ..output_file import OutputFile
from ..records import LOSSES_KEY, Losses, dumps, message_to_line, wrap
from ..sink import Sink
from .channels import MORE_TOPIC, VERSION, Key, to_metadata, to_nanoseconds

#: The most that a crash may cost, and that a reader has to unpack for one message. With chunks of 1
#: MB, a file of 200,000 sensor readings was smaller by less than 1 %.
CHUNK_BYTES = 128 << 10

#: A smaller chunk is not worth its overhead.
CHUNK_BYTES_MIN = 16 << 10

SCHEMA = b'{"type":"object","properties":{}}'
CHANNELS_MAX = 65_000

#: Bytes beside the data: of a message with its index; of a chunk with its index, without what it
#: has for each of its channels; of a channel's statistics and place; of header, statistics, footer.
MESSAGE_EXTRA = 47
CHUNK_EXTRA = 160
CHANNEL_EXTRA = 40
FILE_EXTRA = 500

_LOWER = 0xFFFF_FFFF


class McapSink(Sink):
    """Writes messages as MCAP."""

    def __init__(self, output: OutputFile) -> None:
        super().__init__(output)  # what is held is the chunk in progress, not compressed
        self._writer = Writer(output, chunk_size=CHUNK_BYTES)  # type: ignore[arg-type]
        self._writer.start(library=f"jsonbus {jsonbus.__version__}")
        self._schema = self._writer.register_schema("jsonbus", "jsonschema", SCHEMA)
        self._channels: dict[Key, int] = {}
        self._more: int | None = None
        self._chunk_channels: set[int] = set()
        self._summary_bytes = FILE_EXTRA  # what is written at the end

    @property
    def size(self) -> int:
        return self._output.tell() + self._held + self._summary_bytes

    def write(self, messages: Sequence[jsonbus.Message], size_max: int | None = None) -> int:
        # All of them first: if one has no JSON form, none is added.
        encoded = [
            dumps(each.value) if type(each.value) is dict else wrap(each.value) for each in messages
        ]
        for count, (message, data) in enumerate(zip(messages, encoded, strict=True)):
            sequence, origin = message.sequence, message.origin
            if size_max is not None and not self._has_room(len(data), size_max):
                return count
            key = (
                message.topic,
                origin.node,
                origin.name,
                origin.incarnation,
                origin.is_retained,
                None if sequence is None else sequence >> 32,
                type(message.value) is not dict,
            )
            channel = self._channels.get(key)
            if channel is None:
                if len(self._channels) < CHANNELS_MAX:
                    channel = self._channels[key] = self._register(message.topic, to_metadata(key))
                else:
                    channel, data = self._channel_for_more(), message_to_line(message)
            self._count(channel, len(data))
            self._writer.add_message(
                channel,
                to_nanoseconds(origin.received_at),
                data,
                to_nanoseconds(origin.sent_at),
                0 if sequence is None else sequence & _LOWER,
            )
        return len(messages)

    def _has_room(self, size: int, size_max: int) -> bool:
        size += MESSAGE_EXTRA + CHANNEL_EXTRA
        if self.size + size > size_max and self._held >= CHUNK_BYTES_MIN:
            self.flush()  # compressed, the chunk may leave room
        return self.size + size <= size_max

    def note_losses(self, losses: Losses) -> None:
        self.flush()
        fields = {key: str(each) for key, each in asdict(losses).items()}
        self._writer.add_metadata(LOSSES_KEY, fields)
        self._summary_bytes += CHANNEL_EXTRA
        self._output.flush()

    def finish(self) -> None:
        self._writer.finish()  # type: ignore[no-untyped-call]
        self._output.flush()
        self._held = self._summary_bytes = 0

    def _sync(self) -> None:
        if self._held:
            self._end_chunk()
            self._writer.flush()  # type: ignore[no-untyped-call]

    def _register(self, topic: str, metadata: dict[str, str]) -> int:
        size = 40 + len(topic.encode())
        size += sum(8 + len(key) + len(each.encode()) for key, each in metadata.items())
        self._held += size
        self._summary_bytes += size + CHANNEL_EXTRA
        return self._writer.register_channel(topic, "json", self._schema, metadata)

    def _channel_for_more(self) -> int:
        if self._more is None:
            self._more = self._register(MORE_TOPIC, {"jsonbus": VERSION, "whole": "true"})
        return self._more

    def _count(self, channel: int, size: int) -> None:
        if self._held > CHUNK_BYTES:  # the writer has just ended the chunk
            self._end_chunk()
        self._held += size + MESSAGE_EXTRA
        self._chunk_channels.add(channel)

    def _end_chunk(self) -> None:
        self._summary_bytes += CHUNK_EXTRA + 10 * len(self._chunk_channels)
        self._held = 0
        self._chunk_channels.clear()
