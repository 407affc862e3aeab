"""One Spark for all tests of this folder, and bridges for each."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end import processes
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark.jvm import SHORT_LIVED, descendants, is_running
from tests.spark_bridge.served_log import ServedLog, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            # Warnings are errors, but not Spark's about itself: pandas is too new for it, and it
            # leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings(r"ignore:::(pyspark|py4j)\b"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:Exception ignored.*socket:pytest.PytestUnraisableExceptionWarning"
                )
            )


@pytest.fixture(scope="session")
def java_home() -> str:
    """Skips the test where Spark cannot run."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install -e .[spark]")
    from spark_bridge.spark import JavaNotFoundError, find_java

    try:
        return str(find_java().home)
    except JavaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that knows `format("jsonbus")`. Its JVM ends with the tests."""
    from pyspark import SparkContext

    from spark_bridge.spark import session

    folder = tmp_path_factory.mktemp("spark")
    opened = session(
        "tests",
        master="local[2]",
        config={
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    yield opened
    running = [jvm.pid, *descendants(jvm.pid)]
    opened.stop()
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    jvm.stdin.close()  # the JVM ends when nobody holds its standard input
    jvm.wait(60)
    left = [pid for pid in running if not wait_until(lambda pid=pid: not is_running(pid))]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == [], "processes of Spark were left running"


@pytest.fixture
def desk() -> Iterator[processes.Desk]:
    with processes.desk() as opened:
        yield opened


@pytest.fixture
def open_bridge(desk: processes.Desk, tmp_path: Path) -> Iterator[Callable[..., Bridge]]:
    """Start a bridge: `open_bridge("sensors/**", "--partitions", "2", name="north")`."""
    bridges: list[Bridge] = []

    def open_one(*arguments: str, name: str = "bridge") -> Bridge:
        bridges.append(Bridge(desk, tmp_path / f"log of {name}", *arguments, name=name))
        return bridges[-1]

    yield open_one
    for each in bridges:
        each.close()


@pytest.fixture
def bridge(open_bridge: Callable[..., Bridge]) -> Bridge:
    """A bridge that records everything, with the defaults of the command."""
    return open_bridge()


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., ServedLog]]:
    """Serve a log that the test fills itself: `open_log(partitions=1, token="secret")`."""
    with serving(tmp_path) as open_one:
        yield open_one


@pytest.fixture
def served(open_log: Callable[..., ServedLog]) -> ServedLog:
    """One log of two partitions."""
    return open_log()
