"""Processes of Spark, as /proc tells of them."""

from __future__ import annotations

import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"

#: For a JVM that lives for seconds: no optimising compiler that takes both cores for itself.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def descendants(pid: int) -> list[int]:
    """Its children, their children, and so on, as they are now."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(stat)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        waiting += (born := children.get(waiting.pop(), []))
        found += born
    return found


def of_session(leader: int) -> list[int]:
    """The processes of a session, whoever their parents are; not those that are only unburied."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(stat)
        if fields and int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def command_line(pid: int) -> list[str]:
    """How the process was started; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def runners(spark: SparkSession) -> set[int]:
    """The processes that answer for Python sources, one for each query."""
    jvm = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
    return {pid for pid in descendants(jvm) if _RUNNER in command_line(pid)}


def is_running(pid: int) -> bool:
    """Whether the process is there, and not only because nobody asked for its exit code."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return bool(fields) and fields[0] != "Z"


def _fields(stat: Path) -> list[str]:
    """State, parent, …: what stands behind the name, which may hold anything."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return []


def listening_on(pid: int) -> set[str]:
    """The addresses on which the process listens for TCP; none if it is gone."""
    inodes = set()
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return set()
    for descriptor in descriptors:
        try:
            target = str(descriptor.readlink())
        except OSError:  # just closed
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                found.add(_address(fields[1].partition(":")[0]))
    return found


_LISTEN = "0A"


def _address(hexadecimal: str) -> str:
    """An address of /proc/net: words of four bytes, each in the order of the machine."""
    data = bytes.fromhex(hexadecimal)
    ordered = b"".join(
        int.from_bytes(data[at : at + 4], sys.byteorder).to_bytes(4, "big")
        for at in range(0, len(data), 4)
    )
    address = ip_address(ordered)
    return str(getattr(address, "ipv4_mapped", None) or address)
