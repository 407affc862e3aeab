"""Spark beyond one process: a standalone master with workers, and a Connect server, on loopback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.end_to_end.processes import Desk, Process
from tests.spark.jvm import SHORT_LIVED, command_line, descendants, is_running

_MASTER = re.compile(r" Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r" Successfully registered with master ")
_CONNECT = re.compile(r" Spark Connect server started at: 127\.0\.0\.1:(\d+)")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

#: In front of PYTHONPATH, it makes a Python on which the project is not installed.
_NOT_INSTALLED = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("spark_bridge", "jsonbus"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


class Cluster:
    """A master and workers with one core each; all that they start ends with the desk."""

    def __init__(self, desk: Desk, java_home: str, folder: Path, *, workers: int) -> None:
        self._desk = desk
        master = start_spark(
            desk,
            java_home,
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        )
        self.url = wait_for_line(desk, master, _MASTER)[1]
        self._master = master
        self._workers = [
            start_spark(
                desk,
                java_home,
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                *("--cores", "1", "--memory", "512m", "--work-dir", str(folder / f"worker-{n}")),
                self.url,
            )
            for n in range(workers)
        ]
        for worker in self._workers:
            wait_for_line(desk, worker, _REGISTERED)

    def executors(self) -> list[int]:
        """The process ids of the executors that run now."""
        return [
            pid
            for worker in self._workers
            for pid in descendants(worker.pid)
            if _EXECUTOR in command_line(pid)
        ]

    def processes(self) -> list[int]:
        """Everything that runs for it now, except drivers."""
        started = [self._master.pid, *(worker.pid for worker in self._workers)]
        return started + [child for pid in started for child in descendants(pid)]


def start_connect_server(desk: Desk, java_home: str, python: Path, folder: Path) -> str:
    """Start a Connect server whose Python is this one; where to connect to."""
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    server = start_spark(
        desk,
        java_home,
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(argument for key, value in settings.items() for argument in ("--conf", f"{key}={value}")),
        "spark-internal",
        environment={"PYSPARK_PYTHON": str(python), "SPARK_DAEMON_MEMORY": "1g"},
    )
    return f"sc://127.0.0.1:{wait_for_line(desk, server, _CONNECT)[1]}"


def start_spark(
    desk: Desk,
    java_home: str,
    *arguments: str,
    environment: dict[str, str] | None = None,
) -> Process:
    """Start one of Spark's own programs."""
    import pyspark

    home = Path(pyspark.__file__).parent
    variables = {
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",  # or its pages would listen on every interface
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # it has a port of its own
        **(environment or {}),
    }
    return start(desk, [str(home / "bin" / "spark-class"), *arguments], variables)


def start(desk: Desk, command: Iterable[str], variables: dict[str, str], **streams: int) -> Process:
    """Start a program with these variables; it ends with the desk."""
    settings = [f"{key}={value}" for key, value in variables.items()]
    return desk.start_command(["env", *settings, *command], **streams)


def wait_for_line(desk: Desk, process: Process, pattern: re.Pattern[str]) -> re.Match[str]:
    """Wait for what a program of Spark logs on standard error."""
    found: list[re.Match[str]] = []

    def look() -> bool:
        found.extend(match for line in list(process.complaints) if (match := pattern.search(line)))
        return bool(found)

    desk.wait_until(lambda: look() or not is_running(process.pid))
    assert look(), process.complaints
    return found[0]


def make_python_without_the_project(folder: Path) -> Path:
    """A Python with everything that this one has, except spark_bridge and jsonbus."""
    blocker = folder / "not installed"
    blocker.mkdir(parents=True)
    (blocker / "sitecustomize.py").write_text(_NOT_INSTALLED)
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{blocker}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python
