"""Start and end everything around a pipeline: Spark in this process, bridges, workers.

The CPU time of each kind of process is read from /proc.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_bridge import wire
from tools.bench.arena import Arena
from tools.bench.child import Child, RunError, cpu_clock_s, end_with_parent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
#: Places in /proc/PID/stat behind the name: the parent, and CPU time of children that have ended.
_PARENT, _ENDED_USER, _ENDED_SYSTEM = 1, 13, 14


class Cpu(NamedTuple):
    """Seconds of CPU time, the kernel's work included."""

    jvm: float  # Spark itself
    driver: float  # the program that started it
    workers: float  # what Spark started: Python for offsets and for tasks
    bridge: float

    @property
    def spark(self) -> float:
        """Spark with all of its Python."""
        return self.jvm + self.driver + self.workers

    @property
    def all(self) -> float:
        return self.spark + self.bridge

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(max(0.0, now - then) for now, then in zip(self, before, strict=True)))


NOTHING = Cpu(0.0, 0.0, 0.0, 0.0)


class Processes:
    """A Spark that this process started, and maybe a bridge."""

    def __init__(self, jvm: int, bridge: int | None = None) -> None:
        self._jvm = jvm
        self._bridge = bridge

    def read(self) -> Cpu:
        """Up to now."""
        return Cpu(
            jvm=_clock(self._jvm),
            driver=_clock(os.getpid()),
            workers=children_cpu_s(self._jvm),
            bridge=_clock(self._bridge) if self._bridge is not None else 0.0,
        )


def children_cpu_s(root: int) -> float:
    """Return the CPU seconds of all descendants, including those that have ended."""
    running = descendants(root)
    ended_s = sum(map(_ended_children_s, [root, *running]))
    return ended_s + sum(map(_clock, running))


def descendants(root: int) -> list[int]:
    """Return the ids of its children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        fields = _stat(pid)
        if fields:
            children.setdefault(int(fields[_PARENT]), []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        born = children.get(waiting.pop(), [])
        waiting += born
        found += born
    return found


def _all_pids() -> Iterable[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _clock(pid: int) -> float:
    try:
        return cpu_clock_s(pid)
    except OSError:  # it has just ended
        return 0.0


def _ended_children_s(pid: int) -> float:
    fields = _stat(pid)
    if not fields:
        return 0.0
    return (int(fields[_ENDED_USER]) + int(fields[_ENDED_SYSTEM])) * _TICK_S


def _stat(pid: int) -> list[str]:
    """What stands behind the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


WORKER = "tools.bench.spark.worker"
READY_S = 60.0
_SERVES = re.compile(r" on (127\.0\.0\.1:\d+);")


class Bridge:
    """`jsonbus bridge` as a process, with the defaults of the command."""

    def __init__(self, arena: Arena, folder: Path, *arguments: str) -> None:
        self.port = arena.next_port()
        self._errors = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "jsonbus", "bridge", "--listen", "127.0.0.1:0"]
        command += ["--port", str(self.port), "--interface", "lo", "--data-dir", str(folder)]
        self._process = subprocess.Popen(
            [*end_with_parent(), *command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=arena.environment,
            start_new_session=True,
        )
        self._connection: socket.socket | None = None
        try:
            self.address = self._find_address()
            self._connect()
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        return cpu_clock_s(self.pid)

    def rows(self) -> int:
        """How many were ever recorded, and are on disk."""
        return sum(self.ask({"op": "poll", "known": None, "wait_ms": 0})["end"])

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request of wire.py; RunError if it is a refusal."""
        assert self._connection is not None
        self._connection.sendall(wire.encode(request))
        (length,) = wire.LENGTH.unpack(self._receive(wire.LENGTH.size))
        reply = wire.decode(self._receive(length))
        if not reply["ok"]:
            raise RunError(f"the bridge refuses {request}: {reply}")
        return reply

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _find_address(self) -> str:
        deadline = time.monotonic() + READY_S
        while True:
            words = os.pread(self._errors.fileno(), 1 << 16, 0).decode(errors="replace")
            if (found := _SERVES.search(words)) is not None:
                return found[1]
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RunError(f"the bridge does not serve: {words.strip()[-2000:]}")
            time.sleep(0.02)

    def _connect(self) -> None:
        host, _, port = self.address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), READY_S)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.sendall(wire.MAGIC)
        self.ask({"op": "hello", "version": wire.VERSION, "client": "benchmark"})

    def _receive(self, length: int) -> bytes:
        assert self._connection is not None
        data = b""
        while len(data) < length:
            more = self._connection.recv(length - len(data))
            if not more:
                raise RunError("the bridge closed the connection")
            data += more
        return data


class Stage:
    """A context manager: all processes are there inside, and nothing of them afterwards."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._opened = ExitStack()
        self._names = itertools.count()
        self._spark: SparkSession | None = None
        self.jvm = 0
        self.folder = Path(tempfile.mkdtemp(prefix="bench-spark-"))
        self._opened.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *failure: object) -> None:
        self._opened.close()

    @property
    def spark(self) -> SparkSession:
        """The session that spark_bridge makes for anybody; started when it is first needed."""
        if self._spark is None:
            self._spark = self._start_spark()
        return self._spark

    def processes(self, bridge: Bridge | None = None) -> Processes:
        return Processes(self.jvm, bridge.pid if bridge is not None else None)

    def new_path(self, name: str) -> Path:
        """A path in the folder where nothing is yet."""
        return self.folder / f"{next(self._names)}-{name}"

    @contextmanager
    def open_bridge(self, folder: Path, *arguments: str) -> Iterator[Bridge]:
        bridge = Bridge(self.arena, folder, *arguments)
        try:
            yield bridge
        finally:
            bridge.end()

    @contextmanager
    def open_worker(self, role: str, **told: Any) -> Iterator[Child]:
        """Start a process of worker.py; the caller hears its first answer."""
        argument = json.dumps({"role": role, **told})
        child = Child(role, WORKER, [argument], self.arena.environment)
        try:
            yield child
        finally:
            child.end()

    def _start_spark(self) -> SparkSession:
        from pyspark import SparkContext

        from spark_bridge.spark import session

        # Python workers of Spark find the package in this folder as tools do.
        os.environ["PYTHONPATH"] = self.arena.environment["PYTHONPATH"]
        spark = session(
            "benchmark",
            config={
                "spark.sql.streaming.numRecentProgressUpdates": "100000",
                "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
                "spark.local.dir": str(self.folder / "local"),
            },
        )
        # A query that is stopped in the middle of a batch makes pages of errors; one that fails is
        # told by what waits for it.
        spark.sparkContext.setLogLevel("FATAL")
        gateway = SparkContext._gateway
        assert gateway is not None
        self.jvm = gateway.proc.pid
        self._opened.callback(_end_spark, spark, gateway)
        return spark


def _end_spark(spark: SparkSession, gateway: Any) -> None:
    from pyspark import SparkContext

    running = descendants(gateway.proc.pid)
    with suppress(Exception):  # a Java that got the same signal as this process is gone already
        spark.stop()
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()  # the JVM ends when nobody holds its standard input
    try:
        gateway.proc.wait(30)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    for pid in running:  # Python workers end with the JVM; a stray one is ended by its id
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
