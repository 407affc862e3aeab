"""A streaming job on the log of a bridge, ready to run and easy to take apart.

    sensors ─► bus ─► bridge ─┬─► raw       ─► Parquet, by date and topic
                              ├─► windows   ─► bus, windows/TOPIC: count, mean, min, max
                              └─► anomalies ─► bus, alerts/TOPIC

readings.py    rows of the log become readings: a number, and the time it was taken
windows.py     the mean, minimum and maximum of each sensor, by windows of time
anomalies.py   readings that are out of limits, or far from their sensor's recent mean
raw.py         everything, as it came, in Parquet
job.py         the three queries, each with a checkpoint, kept running
progress.py    how far they are
settings.py    what a pipeline reads, how it judges, where it writes
command.py     the command `jsonbus-pipeline`
__main__.py    the same as `python -m spark_bridge.pipeline`
"""

from .job import Pipeline
from .raw import read_raw
from .readings import as_readings, read_rows
from .settings import PipelineSettings

__all__ = ["Pipeline", "PipelineSettings", "as_readings", "read_raw", "read_rows"]
