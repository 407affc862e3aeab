"""Makes a SparkSession with what streaming from a bridge needs, and without ports open to the
world.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark import __version__ as pyspark_version
from pyspark.sql import SparkSession

from ..source import register
from .java import find_java

#: For every master. The UI opens a port, and progress bars overwrite other output.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

#: For a master on this machine. Spark's default of 200 shuffle partitions would mean 200 tasks per
#: batch; and the number is kept in a stateful query's checkpoint, so it does not depend on the
#: cores of today.
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}

#: Set on the command line of the JVM: it logs before anybody could set its log level.
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

#: Saves 35 to 40 ms per micro-batch. Must be set before the JVM starts.
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
_UNIX_SOCKETS_SINCE = (4, 1)

#: Spark writes two or more small files per batch into the checkpoint, and by default starts
#: processes (`readlink`, `chmod`) for each: 60 of the 150 ms that a small batch takes. This class
#: is as safe on a local disk, where a rename is atomic; elsewhere it may not be. Named as since
#: 4.1, and as before.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_FILE_MANAGERS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)


def session(
    app_name: str = "jsonbus",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    by_value: bool = False,
) -> SparkSession:
    """Return a session in which `format("jsonbus")` is registered.

    `config` overrides what is set here. `by_value` sends the source's code to executors where this
    package is not installed. Sets JAVA_HOME in the environment of this process and, for a local
    master, SPARK_LOCAL_IP and PYSPARK_PYTHON where they are not set: Spark passes them on. If this
    process already has a session, that one is used, with the settings that it was started with.

    With a local master, checkpoints are assumed to be on a local disk, unless HADOOP_CONF_DIR or
    the setting spark.hadoop.fs.defaultFS names another file system; otherwise `config` must have
    Spark's default for spark.sql.streaming.checkpointFileManagerClass.

    Raises JavaNotFoundError.
    """
    config = config or {}
    is_local = master.startswith("local")
    is_new = SparkContext._active_spark_context is None  # the active session belongs to the thread
    if is_new:
        os.environ["JAVA_HOME"] = str(find_java().home)
        if is_local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # Otherwise a worker is whatever `python3` is on the PATH.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in _settings(is_local, config).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if is_new and is_local and not _has_other_files(config):
        _choose_file_manager(spark)
    register(spark, by_value=by_value)
    return spark


def _settings(is_local: bool, config: Mapping[str, str]) -> dict[str, str]:
    settings = {**_DEFAULTS, **(_LOCAL_DEFAULTS if is_local else {})}
    if os.name == "posix" and _version() >= _UNIX_SOCKETS_SINCE:
        settings[_UNIX_SOCKETS] = "true"
    settings.update(config)
    options = settings.get(_JAVA_OPTIONS, "")
    if (
        "SPARK_CONF_DIR" not in os.environ and "log4j" not in options
    ):  # otherwise it is the user's wish
        settings[_JAVA_OPTIONS] = f'-Dlog4j2.configurationFile="{_LOG_SETTINGS}" {options}'.strip()
    return settings


def _has_other_files(config: Mapping[str, str]) -> bool:
    """Return whether checkpoints may be elsewhere than on a local disk, or the user has chosen."""
    return (
        _FILE_MANAGER in config
        or "spark.hadoop.fs.defaultFS" in config
        or any(each in os.environ for each in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR"))
    )


def _choose_file_manager(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    for name in _LOCAL_FILE_MANAGERS:
        if jvm.org.apache.spark.util.Utils.classIsLoadable(name):
            spark.conf.set(_FILE_MANAGER, name)
            return


def _version() -> tuple[int, int]:
    major, minor, *_ = pyspark_version.split(".")
    return int(major), int(minor)
