"""The bridge between the bus and Apache Spark.

    bus  ──►  recorder  ──►  offset log  ──►  server  ──►  source, in Spark
    bus  ◄──  publisher  ◄──  sink store  ◄──  server  ◄──  sink, in Spark

Two halves that share no import. The bus half (recorder, log, server) runs without pyspark; the
Spark half (`source/`, `spark.py`, `pipeline.py`) runs where the bus is not installed. What they
have to agree on is written down in `wire.py` and `block.py`.
"""
