"""From Spark onto the bus: each batch of a query is published once.

Tasks stage their rows on disk, the driver has the batch published; a batch that is repeated after a
crash is recognized by the fence of its query. The theory of operation is at the head of sink.py.

sink.py        stage, publish, recover
rows.py        rows checked when they are staged, and read when they are published
store.py       staged batches, and the fence of each query
database.py    the SQLite file below the store
keyed_lock.py  one publisher at a time for each query

`requests` calls it; it publishes by the function it is given, and knows no Spark.
"""
