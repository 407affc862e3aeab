"""The benchmark of the Spark side: one local Spark, with bridges and publishers beside it.

command.py    the options, the order of the parts, the report
measures.py   its tables and targets, and the table of spark_bridge/README.md
stage.py      Spark, bridges and workers: started and ended; CPU of all processes of a kind
worker.py     a process that publishes, feeds Spark's socket source, or only subscribes
rows.py       rows, the same in a log and in files; recording, and reading ranges of a log
flows.py      a streaming query; rows per second and per CPU second, by source
latency.py    the time of a small batch, an idle query, and from publish to a row in Spark
"""
