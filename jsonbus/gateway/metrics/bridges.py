"""Bridges: ask the Spark bridges on the bus for their state, and keep the last answers.

Theory of operation
-------------------
A bridge serves the topic `spark-bridge/NODE/state`, which its entry in the subscription list shows
to every node; spark_bridge/README.md lists the keys of the answer. Nothing is asked unless somebody
observes: an observer calls `look` as often as it likes, which begins a *round* if the last one is
FRESH_S old. A round asks all bridges at once and waits ANSWER_S for their answers.

Any program may answer in place of a bridge, so the type, range and length of each key are checked.
A bridge that is slow, gone or gives a wrong answer keeps its last state, whose age grows, and
`problem` says what is wrong. A bridge that left the bus is forgotten after GONE_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import jsonbus
from jsonbus.errors import JsonBusError

logger = logging.getLogger("jsonbus.gateway.metrics.bridges")

#: Bridges that are asked. A bus usually has a few.
BRIDGES_MAX = 64
#: A younger state is not asked for again.
FRESH_S = 2.0
#: How long a bridge may take to answer.
ANSWER_S = 1.5
#: How long a bridge that left the bus is still shown, as absent.
GONE_S = 300.0

#: The limits of an answer: any program may answer in place of a bridge.
TEXT_CHARACTERS_MAX = 1_000
GROUPS_MAX = 100
PARTITIONS_MAX = 1_024
NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far one consumer group has read."""

    group: str
    lag: int | None = None  # rows; None: it has not committed yet
    committed_s_ago: float | None = None
    misfits: int = 0


@dataclass(frozen=True, slots=True)
class BridgeState:
    """The last report of a bridge. `told_at` is None until the first one."""

    node: str
    name: str
    machine: str | None = None
    is_present: bool = True  # on the bus
    told_at: float | None = None  # monotonic seconds
    problem: str | None = None  # why the last request brought nothing
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
        """Return the age of the figures. `now`: monotonic seconds."""
        return None if self.told_at is None else max(0.0, now - self.told_at)


@dataclass(slots=True)
class _Known:
    state: BridgeState
    seen_at: float  # when it was last on the bus


@dataclass(slots=True)
class Bridges:
    """The bridges of one bus. Use it in the event loop of the bus."""

    bus: jsonbus.AsyncBus
    #: Bridges that are not asked, since there are too many.
    left_out: int = field(default=0, init=False)
    #: Answers that were refused, and requests without an answer.
    refused: int = field(default=0, init=False)
    unanswered: int = field(default=0, init=False)
    _known: dict[str, _Known] = field(default_factory=dict, init=False)
    _round: asyncio.Task[None] | None = field(default=None, init=False)
    _looked_at: float = field(default=float("-inf"), init=False)

    def states(self) -> list[BridgeState]:
        """Return all bridges by name, including those that left a short while ago."""
        states = [each.state for each in self._known.values()]
        return sorted(states, key=lambda state: (state.name, state.node))

    async def look(self, wait_s: float = 0.0) -> None:
        """Begin a round unless the last one is fresh, and wait up to `wait_s` for its answers."""
        now = monotonic()
        if self._round is None and now - self._looked_at >= FRESH_S:
            self._looked_at = now
            self._find(now)
            nodes = [node for node, known in self._known.items() if known.state.is_present]
            if nodes:
                self._round = asyncio.create_task(self._ask_all(nodes), name="bridges")
        if self._round is not None and wait_s > 0:
            await asyncio.wait([self._round], timeout=wait_s)

    def stats(self) -> dict[str, int]:
        return {
            "known": len(self._known),
            "left_out": self.left_out,
            "answers_refused": self.refused,
            "questions_unanswered": self.unanswered,
        }

    async def close(self) -> None:
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])

    def _find(self, now: float) -> None:
        """Note which nodes are bridges now, and which no longer are."""
        found = {info.node: info for info in self.bus.nodes() if _is_bridge(info)}
        self.left_out = 0
        for node, info in found.items():
            known = self._known.get(node)
            if known is not None:
                known.seen_at = now
                known.state = replace(
                    known.state, name=info.name, machine=info.host, is_present=True
                )
            elif len(self._known) < BRIDGES_MAX or self._forget_one():
                state = BridgeState(node=node, name=info.name, machine=info.host)
                self._known[node] = _Known(state, now)
            else:
                self.left_out += 1
        for node, known in list(self._known.items()):
            if node in found:
                continue
            if now - known.seen_at >= GONE_S:
                del self._known[node]
            else:
                known.state = replace(known.state, is_present=False, problem="left the bus")

    def _forget_one(self) -> bool:
        """Forget a bridge that left, to make room; return False if there is none."""
        gone = [node for node, known in self._known.items() if not known.state.is_present]
        if gone:
            del self._known[gone[0]]
        return bool(gone)

    async def _ask_all(self, nodes: list[str]) -> None:
        try:
            await asyncio.gather(*map(self._ask, nodes))
        except Exception:
            logger.exception("not all bridges were asked: this is a bug")
        finally:
            self._round = None

    async def _ask(self, node: str) -> None:
        answer, problem = None, None
        try:
            answer = await self.bus.request(_topic(node), timeout=ANSWER_S)
        except JsonBusError as error:
            self.unanswered += 1
            problem = str(error)[:TEXT_CHARACTERS_MAX]
        known = self._known.get(node)
        if known is None:
            return
        if problem is None:
            try:
                known.state = read_state(known.state, answer, monotonic())
                return
            except ValueError as error:
                self.refused += 1
                problem = f"it gave a wrong answer: {error}"
        if problem != known.state.problem:
            logger.debug("! bridge %s: %s", known.state.name, problem)
        known.state = replace(known.state, problem=problem)


def _topic(node: str) -> str:
    return f"spark-bridge/{node}/state"


def _is_bridge(info: jsonbus.NodeInfo) -> bool:
    # The topic has the node's own id, so that no other node can pose as this bridge.
    return _topic(info.node) in info.serves


def read_state(before: BridgeState, answer: Any, now: float) -> BridgeState:
    """Return the state that an answer describes. Raises ValueError with the key that is wrong."""
    if not isinstance(answer, dict):
        raise ValueError("it is not an object")
    if answer.get("node") != before.node:
        raise ValueError("node is another id")
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
        raise ValueError("a group is not an object")
    return GroupState(
        group=_text(value, "group"),
        lag=_number_or_none(value, "lag"),
        committed_s_ago=_seconds(value, "committed_s_ago"),
        misfits=_number(value, "misfits"),
    )


def _read_offsets(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("offsets are not pairs")
    pair = dict(zip(("first", "end"), value, strict=True))
    return _number(pair, "first"), _number(pair, "end")


def _number(answer: Mapping[str, Any], key: str, largest: int = NUMBER_MAX) -> int:
    value = answer.get(key)
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{key} is not a number in range")
    return value


def _number_or_none(answer: Mapping[str, Any], key: str) -> int | None:
    return None if answer.get(key) is None else _number(answer, key)


def _seconds(answer: Mapping[str, Any], key: str) -> float | None:
    value = answer.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{key} is not a duration")
    return float(value)


def _flag(answer: Mapping[str, Any], key: str) -> bool:
    value = answer.get(key)
    if type(value) is not bool:
        raise ValueError(f"{key} is neither true nor false")
    return value


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    if type(value) is not str or len(value) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"{key} is not a text, or too long")
    return value


def _list(answer: Mapping[str, Any], key: str, length_max: int) -> list[Any]:
    value = answer.get(key)
    if type(value) is not list or len(value) > length_max:
        raise ValueError(f"{key} is not a list, or too long")
    return value
