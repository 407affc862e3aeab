"""The source away from the driver: on executors, by value, and through Spark Connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import processes
from tests.end_to_end.processes import ROOT, Desk, Process
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark.clusters import (
    Cluster,
    make_python_without_the_project,
    start,
    start_connect_server,
)
from tests.spark.jvm import SHORT_LIVED, is_running

FOLDER = Path(__file__).parent / "drivers"


@pytest.fixture(scope="module")
def cluster(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with processes.desk() as desk:
        opened = Cluster(desk, java_home, tmp_path_factory.mktemp("cluster"), workers=2)
        yield opened
        running = opened.processes()
    assert wait_until(lambda: not any(map(is_running, running))), "processes were left running"


class Driver:
    """cluster_driver.py, running."""

    def __init__(
        self,
        desk: Desk,
        cluster: Cluster,
        folder: Path,
        bridges: list[Bridge],
        *,
        by_value: bool = False,
        python: Path = Path(sys.executable),
    ) -> None:
        settings = {
            "master": cluster.url,
            "bridge": ",".join(bridge.address for bridge in bridges),
            "folder": str(folder),
            "by_value": by_value,
            "config": {
                "spark.cores.max": "2",
                "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both are up
                "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.extraJavaOptions": SHORT_LIVED,
                "spark.executor.extraJavaOptions": SHORT_LIVED,
                "spark.executor.memory": "512m",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
            },
        }
        self._desk = desk
        self._process = start(
            desk,
            [
                sys.executable,
                "-W",
                "ignore",
                str(FOLDER / "cluster_driver.py"),
                json.dumps(settings),
            ],
            {
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": str(python),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.PIPE,
        )
        self.imports: list[str] = self._next_result()["imports"]

    def drain(self) -> dict[int, int]:
        """Wait until all that is in the logs is processed; rows in the end by executor."""
        self._process.stdin.write("drain\n")
        self._process.stdin.flush()
        return {int(executor): count for executor, count in self._next_result().items()}

    def end(self) -> None:
        self._process.stdin.close()
        self._process.expect_exit(0)

    def _next_result(self) -> Any:
        known = len(self._process.lines)
        self._desk.wait_until(lambda: len(self._process.lines) > known or _has_ended(self._process))
        assert len(self._process.lines) > known, self._process.complaints
        return self._process.results[-1]


def test_both_executors_read_and_one_that_is_killed_loses_nothing(
    desk: Desk, cluster: Cluster, open_bridge: Callable[..., Bridge], tmp_path: Path
) -> None:
    bridges = [
        open_bridge("north/**", "--partitions", "2", name="north"),
        open_bridge("south/**", "--partitions", "2", name="south"),
    ]
    driver = Driver(desk, cluster, tmp_path, bridges)
    assert driver.imports == ["spark_bridge"]
    sent = _publish(bridges, 1000)
    counts = driver.drain()
    assert sum(counts.values()) == sent
    before = cluster.executors()
    assert sorted(counts) == sorted(before)
    sent += _publish(bridges, 1000)
    os.kill(before[0], signal.SIGKILL)
    sent += _publish(bridges, 1000)
    counts = driver.drain()
    assert sum(counts.values()) == sent

    def all_three_have_read() -> bool:
        nonlocal sent
        sent += _publish(bridges, 100)
        counts = driver.drain()
        assert sum(counts.values()) == sent
        return len(counts) == 3 and set(counts) > set(before)

    # The worker starts another executor in place of the one that was killed.
    desk.wait_until(all_three_have_read)
    driver.end()


def test_the_source_travels_by_value_to_executors_without_the_package(
    desk: Desk, cluster: Cluster, bridge: Bridge, tmp_path: Path
) -> None:
    python = make_python_without_the_project(tmp_path)
    driver = Driver(desk, cluster, tmp_path, [bridge], by_value=True, python=python)
    assert driver.imports == ["ModuleNotFoundError"]
    sent = _publish([bridge], 500)
    assert sum(driver.drain().values()) == sent
    driver.end()


def test_through_spark_connect_the_source_reads_in_batch_and_as_a_stream(
    desk: Desk, java_home: str, bridge: Bridge, tmp_path: Path
) -> None:
    python = make_python_without_the_project(tmp_path)
    remote = start_connect_server(desk, java_home, python, tmp_path)
    bridge.publish("numbers", range(100))
    client = start(
        desk,
        [
            *(sys.executable, "-W", "ignore", str(FOLDER / "connect_client.py")),
            *(remote, bridge.address, str(tmp_path)),
        ],
        {"PYTHONPATH": str(ROOT)},
    )
    client.expect_exit(0)
    [result] = client.results
    expected = [["numbers", str(number)] for number in range(100)]
    assert result == {"batch": expected, "stream": expected, "import": "ModuleNotFoundError"}


def _publish(bridges: list[Bridge], count: int) -> int:
    """Under topics that fall into every partition; how many in all."""
    return sum(
        bridge.publish(f"{bridge.name}/{topic}", range(count // 10))
        for bridge in bridges
        for topic in range(10)
    )


def _has_ended(process: Process) -> bool:
    return not is_running(process.pid)
