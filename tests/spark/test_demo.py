"""`jsonbus demo` as people run it, with a real Spark; nothing of it stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.spark.jvm import command_line, listening_on, of_session

ROOT = Path(__file__).parents[2]

#: Far more than it takes, also on a machine that is slow and busy.
TIMEOUT_S = 600


class RunningDemo:
    """A demo in a process of its own, and what it has written so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jsonbus", "demo", *options],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.text += line

    def wait_for(self, text: str) -> None:
        assert wait_until(lambda: text in self.text, TIMEOUT_S), self.text

    def wait_for_end(self) -> int:
        code = self._process.wait(TIMEOUT_S)
        self._reader.join()
        return code

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def spark_pid(self) -> int:
        return int(re.findall(r"Spark \(pid (\d+)\)", self.text)[0])

    def processes(self) -> list[int]:
        """Everything that it started, and everything that those started."""
        leaders = [int(pid) for pid in re.findall(r"\(pid (\d+)\)", self.text)]
        assert len(leaders) == 7, self.text  # five sensors, bridge, Spark
        return [pid for leader in leaders for pid in of_session(leader)]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def running_demo(folder: Path, *options: str) -> Iterator[RunningDemo]:
    demo = RunningDemo(folder, *options)
    try:
        yield demo
    finally:
        demo.close()


@pytest.fixture(autouse=True)
def needs_spark(java_home: str) -> None:
    """Skips where Spark cannot run."""


def test_a_short_demo_counts_the_same_everywhere(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    relative = os.path.relpath(kept, ROOT)  # to where the demo is started, not to where Spark runs
    with running_demo(tmp_path, "--seconds", "3", "--rate", "200", "--keep", relative) as demo:
        demo.wait_for("Spark has its first results")
        listening = {each for pid in demo.processes() for each in listening_on(pid)}
        assert listening == {"127.0.0.1"}
        assert demo.wait_for_end() == 0, demo.text
        assert demo.processes() == []
    figures = re.findall(r"^(\S.*?)  +([\d,]+)  =  (\S.*?)  +([\d,]+)$", demo.text, re.MULTILINE)
    assert len(figures) == 7, demo.text
    assert all(figure == other_figure for _, figure, _, other_figure in figures)
    counts = {what: int(figure.replace(",", "")) for what, figure, _, _ in figures}
    assert counts["published by the sensors"] > 500
    assert counts["anomalies of the sensors"] > 2
    assert counts["sent too late"] > 1
    assert "ERROR" not in demo.text and "Traceback" not in demo.text, "Spark's log stays away"
    topics = {each.name for each in kept.glob("output/raw/date=*/*")}
    assert "topic=sensors%2Fkitchen" in topics and len(topics) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--forever") as demo:
        demo.wait_for("sensors publish,")
        assert wait_until(lambda: _runs_java(demo.spark_pid), TIMEOUT_S)
        demo.send_signal(signal.SIGINT)
        assert demo.wait_for_end() == 0, "with --forever it is the usual end"
        assert demo.processes() == []
        assert "interrupted" in demo.text and "Traceback" not in demo.text
    assert list(tmp_path.iterdir()) == []


def test_the_processes_of_a_killed_demo_end_by_themselves(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        demo.wait_for("sensors publish,")
        assert wait_until(lambda: _runs_java(demo.spark_pid), TIMEOUT_S)
        demo.send_signal(signal.SIGKILL)
        demo.wait_for_end()
        assert wait_until(lambda: demo.processes() == [], TIMEOUT_S)


def test_a_demo_whose_spark_dies_fails_and_ends_the_others(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        demo.wait_for("sensors publish,")
        assert wait_until(lambda: _runs_java(demo.spark_pid), TIMEOUT_S)
        os.kill(demo.spark_pid, signal.SIGKILL)
        assert demo.wait_for_end() == 1
        assert "Error: the process spark failed" in demo.text
        assert wait_until(lambda: demo.processes() == [])
    assert list(tmp_path.iterdir()) == []


def _runs_java(leader: int) -> bool:
    """Whether Spark's own Java is there, not only the one that looks for its settings."""
    return any("pyspark-shell" in command_line(pid) for pid in of_session(leader))
