"""Bridges: what the Spark bridges of the bus say of themselves.

Theory of operation
-------------------
A bridge serves the topic `spark-bridge/NODE/state`, which its entry in the subscription list tells
everybody; spark_bridge/README.md has the keys of the answer. Nobody is asked unless somebody looks:
who does calls `look`, as often as it likes. That begins a *round* if the last one is FRESH_S old:
all bridges are asked at once, and who has not answered within ANSWER_S is not waited for.

What comes is checked (bridge_state.py), since any program may answer: a bridge that is slow, gone,
or tells nonsense keeps its last state, whose age grows, and a sentence says what is wrong with it.
A bridge that left the bus is forgotten after GONE_S.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from time import monotonic

import jsonbus
from jsonbus.errors import JsonBusError

from .bridge_state import TEXT_CHARACTERS_MAX, BridgeState, read_state

logger = logging.getLogger("jsonbus.gateway.metrics.bridges")

#: Bridges that are asked. A bus has a few.
BRIDGES_MAX = 64
#: A state that is younger is not asked for again.
FRESH_S = 2.0
#: So long a bridge may take to answer.
ANSWER_S = 1.5
#: So long one that left the bus is still shown, as absent.
GONE_S = 300.0


@dataclass(slots=True)
class _Known:
    state: BridgeState
    seen_at: float  # when it was last on the bus


@dataclass(slots=True)
class Bridges:
    """See the head of this file. Everything in the event loop of the bus."""

    bus: jsonbus.AsyncBus
    #: Bridges that are not asked, there being too many.
    left_out: int = field(default=0, init=False)
    #: Answers that were refused, and questions that nobody answered.
    refused: int = field(default=0, init=False)
    unanswered: int = field(default=0, init=False)
    _known: dict[str, _Known] = field(default_factory=dict, init=False)
    _round: asyncio.Task[None] | None = field(default=None, init=False)
    _looked_at: float = field(default=float("-inf"), init=False)

    def states(self) -> list[BridgeState]:
        """All bridges, by name; those that just left included."""
        states = [each.state for each in self._known.values()]
        return sorted(states, key=lambda state: (state.name, state.node))

    async def look(self, wait_s: float = 0.0) -> None:
        """Somebody looks: ask, unless that was done just now; and wait so long for the answers."""
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
        """Who is a bridge now, and who no longer is."""
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
        """Make room at the expense of one that left."""
        gone = [node for node, known in self._known.items() if not known.state.is_present]
        if gone:
            del self._known[gone[0]]
        return bool(gone)

    async def _ask_all(self, nodes: list[str]) -> None:
        try:
            await asyncio.gather(*map(self._ask, nodes))
        except Exception:
            logger.exception("the bridges were not all asked: this is a bug")
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
                problem = f"its answer is not a bridge's: {error}"
        if problem != known.state.problem:
            logger.debug("! bridge %s: %s", known.state.name, problem)
        known.state = replace(known.state, problem=problem)


def _topic(node: str) -> str:
    return f"spark-bridge/{node}/state"


def _is_bridge(info: jsonbus.NodeInfo) -> bool:
    # The topic has the node's own id: nobody else is believed to be this bridge.
    return _topic(info.node) in info.serves
