"""JSON text to Arrow columns and back, without the JVM.

ddl.py        the option valueSchema to a Spark type
values.py     the column value, many rows at once, by Arrow's JSON reader
json_rows.py  one row at a time, for rows that Arrow's reader refuses
to_json.py    columns of any type as JSON text, for the sink

`reading` uses the first three in tasks that read, `sink_options` the last in tasks that write.
"""
