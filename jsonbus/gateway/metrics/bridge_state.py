"""What one Spark bridge says of itself, as checked data.

The keys of an answer are in spark_bridge/README.md. Any program may answer in a bridge's place, so
each key is looked at: its type, its range, its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

#: What is believed of an answer.
TEXT_CHARACTERS_MAX = 1_000
GROUPS_MAX = 100
PARTITIONS_MAX = 1_024
NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far one consumer group is."""

    group: str
    lag: int | None = None  # rows; None: it has not committed yet
    committed_s_ago: float | None = None
    misfits: int = 0


@dataclass(frozen=True, slots=True)
class BridgeState:
    """What a bridge told last. `told_at` is None as long as it has told nothing."""

    node: str
    name: str
    machine: str | None = None
    is_present: bool = True  # on the bus
    told_at: float | None = None  # monotonic seconds
    problem: str | None = None  # why the last question brought nothing
    host: str = ""
    port: int = 0
    version: str = ""
    rows_recorded: int = 0
    rows_unrecorded: int = 0
    rows_waiting: int = 0
    rows_expired: int = 0
    rows: int = 0
    bytes: int = 0
    partitions: int = 0
    offsets: tuple[tuple[int, int], ...] = ()  # first and end, of the first partitions
    readers: int = 0
    groups: tuple[GroupState, ...] = ()  # those furthest behind
    groups_known: int = 0
    lag_max: int = 0
    is_failing: bool = False
    last_error: str | None = None
    last_error_s_ago: float | None = None
    retention_s: float | None = None
    retention_bytes: int | None = None

    def age_s(self, now: float) -> float | None:
        """How old the figures are. `now`: monotonic seconds."""
        return None if self.told_at is None else max(0.0, now - self.told_at)


def read_state(before: BridgeState, answer: Any, now: float) -> BridgeState:
    """What the answer says; ValueError names the key that is wrong."""
    if not isinstance(answer, dict):
        raise ValueError("it is no object")
    if answer.get("node") != before.node:
        raise ValueError("node is another one's")
    offsets = _list(answer, "offsets", PARTITIONS_MAX)
    return replace(
        before,
        told_at=now,
        problem=None,
        host=_text(answer, "host"),
        port=_number(answer, "port", 65_535),
        version=_text(answer, "version"),
        rows_recorded=_number(answer, "rows_recorded"),
        rows_unrecorded=_number(answer, "rows_unrecorded"),
        rows_waiting=_number(answer, "rows_waiting"),
        rows_expired=_number(answer, "rows_expired"),
        rows=_number(answer, "rows"),
        bytes=_number(answer, "bytes"),
        partitions=_number(answer, "partitions"),
        offsets=tuple(map(_read_offsets, offsets)),
        readers=_number(answer, "readers"),
        groups=_read_groups(_list(answer, "groups", GROUPS_MAX)),
        groups_known=_number(answer, "groups_known"),
        lag_max=_number(answer, "lag_max"),
        is_failing=_flag(answer, "is_failing"),
        last_error=None if answer.get("last_error") is None else _text(answer, "last_error"),
        last_error_s_ago=_seconds(answer, "last_error_s_ago"),
        retention_s=_seconds(answer, "retention_s"),
        retention_bytes=_number_or_none(answer, "retention_bytes"),
    )


def _read_groups(values: list[Any]) -> tuple[GroupState, ...]:
    groups = {each.group: each for each in map(_read_group, values)}
    if len(groups) != len(values):
        raise ValueError("a group comes twice")
    return tuple(groups.values())


def _read_group(value: Any) -> GroupState:
    if not isinstance(value, dict):
        raise ValueError("a group is no object")
    return GroupState(
        group=_text(value, "group"),
        lag=_number_or_none(value, "lag"),
        committed_s_ago=_seconds(value, "committed_s_ago"),
        misfits=_number(value, "misfits"),
    )


def _read_offsets(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("offsets are no pairs")
    pair = dict(zip(("first", "end"), value, strict=True))
    return _number(pair, "first"), _number(pair, "end")


def _number(answer: Mapping[str, Any], key: str, largest: int = NUMBER_MAX) -> int:
    value = answer.get(key)
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{key} is no such number")
    return value


def _number_or_none(answer: Mapping[str, Any], key: str) -> int | None:
    return None if answer.get(key) is None else _number(answer, key)


def _seconds(answer: Mapping[str, Any], key: str) -> float | None:
    value = answer.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{key} is no time")
    return float(value)


def _flag(answer: Mapping[str, Any], key: str) -> bool:
    value = answer.get(key)
    if type(value) is not bool:
        raise ValueError(f"{key} is neither true nor false")
    return value


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    if type(value) is not str or len(value) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"{key} is no such text")
    return value


def _list(answer: Mapping[str, Any], key: str, length_max: int) -> list[Any]:
    value = answer.get(key)
    if type(value) is not list or len(value) > length_max:
        raise ValueError(f"{key} is no such list")
    return value
