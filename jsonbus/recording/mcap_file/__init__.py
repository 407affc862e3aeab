"""MCAP, as Foxglove and PlotJuggler open it: both ways. The only place that imports mcap.

A channel of the file is what one publisher sent to one topic. The messages are JSON; `log_time` is
when they were received here, `publish_time` when they were sent. All have the same schema, which
says no more than that they are objects: MCAP needs none, but PlotJuggler 3 opens no file without,
and Foxglove none whose schema lacks the list of properties, be it empty. What MCAP has no field for
is in the channel's metadata:

    jsonbus         the version of this list, "1"
    node, name, incarnation      the publisher
    retained        "true": given as a last value
    sequence_high   the upper 32 bits of the messages' sequences, of which MCAP has room for the
                    lower ones; absent if they have none
    wrapped         "true": the values are no objects, which viewers cannot open, and each is
                    written as {"value": …}
    whole           "true": a message is the line that a file of JSON lines would have

The last is for the channel MORE_TOPIC: a file has at most 65,535 channels, and what would need
more of them goes there. Losses are metadata records of the file, called LOSSES_KEY.

Messages are written in compressed chunks of at most CHUNK_BYTES, each with an index. A flush ends
the chunk. A chunk of which a part is missing is not read, and nothing behind it is there.

    sink        messages to a file
    source      and from it, also from one that is torn, damaged or of others
    channels    what a channel's metadata tells
"""

from __future__ import annotations

from .sink import McapSink
from .source import McapSource

__all__ = ["McapSink", "McapSource"]
