"""The log on disk: every recorded message at an offset that means it for ever.

Promises that an offset is visible only when it is on disk, never means two messages, and that
damage is an error rather than a shorter log. The theory of operation is at the head of
offset_log.py.

offset_log.py    the whole log: append, read, find, expire
meta.py          meta.json, and how a log is created
partition.py     one partition: its segments and its tail
flush.py         one flush of several partitions
tail.py          rows on disk in small blocks, waiting to be sealed
segment.py       a file of sealed blocks
block.py         the format of rows and blocks, on disk and in replies
block_index.py   where each block of a segment is
view.py          what readers of a partition see
search.py        offsets by time, and by bytes
range_reader.py  a range of offsets as pieces for a client
retention.py     which segments are deleted
recovery.py      which bytes of a file are blocks, after a crash
disk.py          writes, syncs, and the lock on the directory

The recorder appends; `requests` reads for clients. The log knows neither the bus nor Spark.
"""
