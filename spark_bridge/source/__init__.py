"""The Spark half of the bridge: `format("jsonbus")` as a source and as a sink.

    datasource ──► stream_reader ──► admission ──► watcher ──► client    in the driver: offsets
                   batch_reader  ──► reading   ──► client, json          in the executors: rows
    datasource ──► writer ──► client                                     tasks stage, driver commits

register.py          makes the format known to a session, by value if need be
datasource.py        what Spark is given
options.py           options of the source
sink_options.py      options and columns of the sink
columns.py           columns of a query, with the types that Spark expects
stream_reader.py     the source of a streaming query
batch_reader.py      the source of a batch query
starting_offsets.py  the options startingOffsets and endingOffsets as offsets
offsets.py           offsets in Spark's checkpoint
admission.py         how far the next batch goes
watcher.py           news from the bridges
planning.py          rows of a batch, split into tasks
reading.py           ranges of the log, read in a task
json/                the column value: JSON text to Arrow and back
writer.py            the sink
client.py            a connection to a bridge, and the pool
tls.py               TLS on that connection
protocol.py          the bridge's protocol, as far as Spark needs it
process_pool.py      state that lives as long as the process
errors.py            every error of this half

It needs the standard library, pyarrow and pyspark, and nothing else of this package, because it
travels by value to executors where nothing of ours is installed.
"""

from .datasource import JsonBusDataSource
from .register import register

__all__ = ["JsonBusDataSource", "register"]
