"""Records the messages of a bus into files, reads them, and publishes them again.

    with jsonbus.Bus() as bus, create_recording("run.mcap") as recording:
        bus.subscribe("sensors/**", recording.write, in_batches=True, overflow="block")
        time.sleep(60)

    for message in open_recording("run.mcap"):
        print(message.received_at, message.topic, message.value)

    with jsonbus.Bus() as bus:
        Player(bus.publish, speed=2.0).play(open_recording("run.mcap").timed())

Every message is written with all its fields, in one of three formats: JSON lines (.jsonl), the same
compressed (.jsonl.gz), and MCAP (.mcap, with the extra mcap). A recording that was not closed,
because its process was killed, can be read up to the last whole record. Files in the order in which
a message meets them:

records.py       a message as a line of JSON, and back; losses
formats.py       the formats, how a file shows its own, and numbered files
writer.py        RecordingWriter: files, limits, rotation
sink.py          Sink, the base of what writes a format
lines_file.py    JSON lines, written and read
mcap_file/       MCAP, written and read
output_file.py   writes whole records to the disk
input_file.py    reads bytes from a file, torn or compressed
reader.py        Recording: messages of one or more files, by time
player.py        Player: publishes messages at their times

Called by the commands record and replay, and by programs. Calls the public names of jsonbus.
"""

from __future__ import annotations

from pathlib import Path

from .player import Player
from .reader import Recording
from .records import Losses
from .writer import RecordingWriter

__all__ = ["Losses", "Player", "Recording", "RecordingWriter", "create_recording", "open_recording"]

create_recording = RecordingWriter


def open_recording(*paths: str | Path) -> Recording:
    """Return the messages of one or more files, of any format, to iterate over.

    Several files are read side by side, by the times at which messages were received. A name that
    does not exist stands for the numbered files of a rotated recording. Raises RecordingError if
    there is no such file.
    """
    return Recording(*paths)
