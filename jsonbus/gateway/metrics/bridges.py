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
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, field_validator

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


Text = Annotated[str, Field(max_length=TEXT_CHARACTERS_MAX)]
Number = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
Seconds = Annotated[float, Field(ge=0, le=NUMBER_MAX)]


class GroupReport(BaseModel):
    """How far one consumer group has read."""

    model_config = ConfigDict(strict=True, frozen=True)

    group: Text
    lag: Number | None = None  # rows; None: it has not committed yet
    committed_s_ago: Seconds | None = None
    misfits: Number


class BridgeReport(BaseModel):
    """What a bridge answers. Other keys are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    node: Text
    host: Text
    port: Annotated[int, Field(ge=0, le=65_535)]
    version: Text
    rows_recorded: Number
    rows_unrecorded: Number
    rows_waiting: Number
    rows_expired: Number
    rows: Number
    bytes: Number
    partitions: Number
    #: First and end, of the first partitions.
    offsets: Annotated[
        list[Annotated[tuple[Number, Number], Strict(False)]], Field(max_length=PARTITIONS_MAX)
    ]
    readers: Number
    groups: Annotated[list[GroupReport], Field(max_length=GROUPS_MAX)]  # those furthest behind
    groups_known: Number
    lag_max: Number
    is_failing: bool
    last_error: Text | None = None
    last_error_s_ago: Seconds | None = None
    retention_s: Seconds | None = None
    retention_bytes: Number | None = None

    @field_validator("groups")
    @classmethod
    def _check_groups(cls, groups: list[GroupReport]) -> list[GroupReport]:
        if len({each.group for each in groups}) != len(groups):
            raise ValueError("a group comes twice")
        return groups


@dataclass(frozen=True, slots=True)
class BridgeState:
    """A bridge and its last report."""

    node: str
    name: str
    machine: str | None
    seen_at: float  # when it was last on the bus; monotonic seconds, as `told_at`
    is_present: bool = True  # on the bus
    problem: str | None = None  # why the last request brought nothing
    report: BridgeReport | None = None
    told_at: float = 0.0  # when it sent the report


@dataclass(slots=True)
class Bridges:
    """The bridges of one bus. Use it in the event loop of the bus."""

    bus: jsonbus.AsyncBus
    #: Bridges that are not asked, since there are too many.
    left_out: int = field(default=0, init=False)
    #: Answers that were refused, and requests without an answer.
    refused: int = field(default=0, init=False)
    unanswered: int = field(default=0, init=False)
    _known: dict[str, BridgeState] = field(default_factory=dict, init=False)
    _round: asyncio.Task[None] | None = field(default=None, init=False)
    _looked_at: float = field(default=float("-inf"), init=False)

    def states(self) -> list[BridgeState]:
        """Return all bridges by name, including those that left a short while ago."""
        return sorted(self._known.values(), key=lambda state: (state.name, state.node))

    async def look(self, wait_s: float = 0.0) -> None:
        """Begin a round unless the last one is fresh, and wait up to `wait_s` for its answers."""
        now = monotonic()
        if self._round is None and now - self._looked_at >= FRESH_S:
            self._looked_at = now
            self._find(now)
            nodes = [node for node, state in self._known.items() if state.is_present]
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
            seen: dict[str, Any] = {"name": info.name, "machine": info.host, "seen_at": now}
            if node in self._known:
                self._known[node] = replace(self._known[node], is_present=True, **seen)
            elif len(self._known) < BRIDGES_MAX or self._forget_one():
                self._known[node] = BridgeState(node, **seen)
            else:
                self.left_out += 1
        for node in self._known.keys() - found.keys():
            state = self._known[node]
            if now - state.seen_at >= GONE_S:
                del self._known[node]
            else:
                self._known[node] = replace(state, is_present=False, problem="left the bus")

    def _forget_one(self) -> bool:
        """Forget a bridge that left, to make room; return False if there is none."""
        for node, state in self._known.items():
            if not state.is_present:
                del self._known[node]
                return True
        return False

    async def _ask_all(self, nodes: list[str]) -> None:
        try:
            await asyncio.gather(*map(self._ask, nodes))
        except Exception:
            logger.exception("not all bridges were asked: this is a bug")
        finally:
            self._round = None

    async def _ask(self, node: str) -> None:
        told: dict[str, Any]
        try:
            report = _read(await self.bus.request(_topic(node), timeout=ANSWER_S), node)
            told = {"report": report, "told_at": monotonic(), "problem": None}
        except JsonBusError as error:
            self.unanswered += 1
            told = {"problem": str(error)[:TEXT_CHARACTERS_MAX]}
        except ValueError as error:
            self.refused += 1
            told = {"problem": f"it gave a wrong answer: {error}"}
        state = self._known.get(node)
        if state is None:
            return
        if told["problem"] not in (None, state.problem):
            logger.debug("! bridge %s: %s", state.name, told["problem"])
        self._known[node] = replace(state, **told)


def _topic(node: str) -> str:
    return f"spark-bridge/{node}/state"


def _is_bridge(info: jsonbus.NodeInfo) -> bool:
    # The topic has the node's own id, so that no other node can pose as this bridge.
    return _topic(info.node) in info.serves


def _read(answer: object, node: str) -> BridgeReport:
    """Return the report in an answer. Raises ValueError with the key that is wrong."""
    try:
        report = BridgeReport.model_validate(answer)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, wrong["loc"])) or "it"
        raise ValueError(f"{key}: {wrong['msg']}") from None
    if report.node != node:
        raise ValueError("node is another id")
    return report
