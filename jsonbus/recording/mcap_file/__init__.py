"""Writes and reads MCAP files for Foxglove and PlotJuggler. The only place that imports mcap.

A channel of the file is what one publisher sent to one topic. The messages are JSON; `log_time` is
when they were received here, `publish_time` when they were sent. All have the same schema, which
says no more than that they are objects: MCAP needs none, but PlotJuggler 3 opens no file without,
and Foxglove none whose schema lacks the list of properties, even an empty one. The channel's
metadata holds what MCAP has no field for:

    jsonbus         the version of this list, "1"
    node, name, incarnation      the publisher
    retained        "true": a retained value
    sequence_high   the upper 32 bits of the messages' sequences, of which MCAP has room for the
                    lower ones; absent if they have none
    wrapped         "true": the values are no objects, which viewers cannot open, and each is
                    written as {"value": …}
    whole           "true": a message is a line as in a .jsonl file

The last is for the channel MORE_TOPIC: a file has at most 65,535 channels, and messages that would
need more of them go there. Losses are metadata records of the file, called LOSSES_KEY.

Messages are written in compressed chunks of at most CHUNK_BYTES, each with an index. A flush ends
the chunk. A chunk of which a part is missing is not read, nor is anything behind it.

channels.py   the metadata of a channel: made from a message, and read
sink.py       writes messages to a file
source.py     reads messages from a file, even a torn, damaged or foreign one
"""

from __future__ import annotations

from .sink import McapSink
from .source import McapSource

__all__ = ["McapSink", "McapSource"]
