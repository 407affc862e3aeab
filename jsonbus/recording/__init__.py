"""Recordings: the messages of a bus in files, and back onto a bus.

    with jsonbus.Bus() as bus, create_recording("run.mcap") as recording:
        bus.subscribe("sensors/**", recording.write, in_batches=True, overflow="block")
        time.sleep(60)

    for message in open_recording("run.mcap"):
        print(message.received_at, message.topic, message.value)

    with jsonbus.Bus() as bus:
        Player(bus.publish, speed=2.0).play(open_recording("run.mcap").timed())

What was received is written with all that a message has, in one of three formats: JSON lines
(.jsonl), the same compressed (.jsonl.gz), and MCAP (.mcap, with the extra mcap). A recording that
was not closed, since its process was killed, is read up to the last record that is whole.

    values          a message as a line, and back
    formats         their names, and how a file tells its own
    output_file     bytes to the disk by whole records      input_file   and from it
    lines_file, mcap_file                one format each
    series          numbered files
    writer          files, limits, rotation                 reader       files, by time
    player          messages back onto a bus, at their times
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
    """The messages of one or more files of any format: iterate over it.

    Several are read side by side, by the times at which messages were received. A name that does
    not exist stands for the numbered files of a recording that was written in several. Raises
    RecordingError if there is none.
    """
    return Recording(*paths)
