"""The source travels by value: it works in a process that has no such package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_bridge.source import JsonBusDataSource, register
from tests.spark_bridge.served_log import ServedLog

#: What Spark does: the class arrives pickled, and what it makes goes on to other processes.
WORKER = """
import sys, json
from pyspark import cloudpickle
from pyspark.sql.types import StructType

class NoPackage:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("spark_bridge", "jsonbus"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoPackage())
options = {"bridge": sys.argv[1], "startingOffsets": "earliest"}
source = cloudpickle.loads(sys.stdin.buffer.read())(options)
source, again = cloudpickle.loads(cloudpickle.dumps(source)), cloudpickle.dumps(source)
schema = StructType().add("value", "string").add("offset", "long")
reader = source.streamReader(schema)
start = reader.initialOffset()
parts = reader.partitions(start, reader.latestOffset(start, None))
values = []
for part in parts:
    other = cloudpickle.loads(cloudpickle.dumps(cloudpickle.loads(again).streamReader(schema)))
    for batch in other.read(cloudpickle.loads(cloudpickle.dumps(part))):
        values += batch.column("value").to_pylist()
reader.stop()
print(json.dumps(values))
"""


class Session:
    """As much of a session as takes part in a registration."""

    def __init__(self) -> None:
        self.dataSource = self
        self.pickled = b""

    def register(self, source: type) -> None:
        from pyspark import cloudpickle

        self.pickled = cloudpickle.dumps(source)


def run_worker(pickled: bytes, address: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER, address],
        input=pickled,
        capture_output=True,
        cwd=folder,
        timeout=120,
    )


@pytest.mark.slow
def test_the_source_works_where_the_package_is_not_installed(
    served: ServedLog, tmp_path: Path
) -> None:
    served.publish(range(3), partition=0)
    served.publish(range(3, 5), partition=1)
    session = Session()
    register(session, by_value=True)
    done = run_worker(session.pickled, served.address, tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == ["0", "1", "2", "3", "4"]


@pytest.mark.slow
def test_one_connection_serves_all_tasks_of_a_process(served: ServedLog, tmp_path: Path) -> None:
    served.publish(range(3), partition=0)
    served.publish(range(3, 5), partition=1)
    session = Session()
    register(session, by_value=True)
    before = served.stats()["connections_accepted"]
    run_worker(session.pickled, served.address, tmp_path)
    # One to watch, one for both ranges, although each was read by a copy of its own.
    assert served.stats()["connections_accepted"] - before == 2


def test_the_package_is_sent_by_name_unless_its_code_is_wanted(tmp_path: Path) -> None:
    session = Session()
    register(session, by_value=True)
    by_value = session.pickled
    register(session)
    assert len(session.pickled) < 200 < len(by_value)
    assert JsonBusDataSource.name() == "jsonbus"
    done = run_worker(session.pickled, "127.0.0.1:1", tmp_path)
    assert b"ModuleNotFoundError" in done.stderr
