"""The benchmark of the Spark side: one local Spark, with bridges and publishers beside it.

command.py    the options, the order of the parts, the report
measures.py   its tables and targets, and the table of spark_bridge/README.md
stage.py      Spark, bridges and workers: started and ended
worker.py     a process that publishes, feeds Spark's socket source, or only subscribes
rows.py       rows, the same in a log and in files
queries.py    a streaming query: run to its end, and its figures
flows.py      rows per second and per CPU second, by source
triggers.py   the time of an empty and of a small batch; an idle query
latency.py    from publish to a row in Spark
recorder.py   recording, and reading ranges of a log
cpu.py        CPU of all processes of a kind
"""
