"""Cuts a broken history down to a short scenario that breaks the same promise.

It replays the recorded steps (script.py) again and again, each time without something: faults of
the network, participants, steps, parts of steps, time between steps. Whatever still breaks the
same promise is the next to be cut, until nothing more can be left out.

What judges is never cut, or the promise would break for no reason: peace begins as it did, and
the times after it stay. The promises stay as lenient as they were in the original network. A
scenario must also be one that could happen: if somebody could answer joiners in the history,
somebody can after the peace of the scenario.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from jsonbus.sim.channels.node import ChannelBounds
from jsonbus.sim.checkers import BrokenInvariantError
from jsonbus.sim.history import History, answering_nodes, promises_of
from jsonbus.sim.network import NetworkOptions
from jsonbus.sim.plan import Plan
from jsonbus.sim.records import Habits
from jsonbus.sim.script import Padding, Stage, Step, shown

#: A promise that breaks a little later than before still breaks.
SLACK_S = 1.0
GAP_S = 0.01
#: Leaving something out changes the luck of every later datagram: with losses, try other dice too;
#: many of them once a replay takes only milliseconds.
LUCKS = 3
LUCKS_OF_SHORT = 16
SHORT_STEPS = 12
ROUNDS_MAX = 5
CALMER: tuple[dict[str, Any], ...] = (
    {"loss": 0.0, "bursts": 0.0, "repeat": 0.0, "late": 0.0},
    {"loss": 0.0},
    {"bursts": 0.0},
    {"repeat": 0.0},
    {"late": 0.0},
    {"keeps_order": False},
    {"loops_back": False},
)
#: Options of steps that may not matter.
SPARE = (
    *("clock_offset_s", "wall_s", "share_delay_s", "datagram_bytes_max", "batching"),
    *("is_master", "mode", "patterns", "is_retained", "is_reliable", "with_host"),
    *("habits", "exclusive", "accept_s", "retry", "timeout_s"),
)
#: Steps without which a promise would break for no reason.
KEPT = ("world.heal", "world.channels.take_all", "world.channels.close_all")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps in a world that break a promise."""

    plan: Plan  # of the history that it comes from; the promises are judged by it
    seed: str
    options: NetworkOptions
    steps: tuple[Step, ...]
    ends_at: float
    promise: str = ""
    detail: str = ""

    @property
    def story(self) -> str:
        """What broke and how, for people: without the dots that fill up long names."""
        is_named = self.detail.startswith(self.promise)
        story = self.detail if is_named else f"{self.promise}: {self.detail}"
        return re.sub(r"\.{4,}", "...", story)

    def replay(self) -> Scenario | None:
        """Return what really happened until something broke; None if nothing did."""
        plan = self.plan
        stage = Stage(self.seed, self.options, promises_of(plan), is_sealed=plan.is_sealed)
        clock = stage.world.clock
        try:
            stage.run(self.steps)
            clock.run_until(max(clock.now, self.ends_at))
        except Exception as error:
            could_happen = not any(step.method == "world.heal" for step in stage.steps) or any(
                node.is_up for node in answering_nodes(stage.world)
            )
            if could_happen or plan.mode == "basic":
                return replace(
                    self,
                    steps=tuple(stage.steps),
                    ends_at=clock.now,
                    promise=promise_of(error),
                    detail=str(error),
                )
        return None


def promise_of(error: Exception) -> str:
    """Return the promise that broke, or what failed instead."""
    if isinstance(error, BrokenInvariantError):
        return error.invariant
    return f"failed: {type(error).__name__}"


def record(plan: Plan) -> Scenario | None:
    """Run a history; return it as a scenario if it breaks, otherwise None."""
    history = History(plan)
    try:
        history.run()
    except Exception as error:
        ends_at = history.world.clock.now
        steps = tuple(history.steps)
        promise, detail = promise_of(error), str(error)
        return Scenario(plan, plan.world_seed, plan.options, steps, ends_at, promise, detail)
    return None


class Shrinker:
    """Holds the shortest scenario found so far."""

    def __init__(self, scenario: Scenario, tell: Callable[[str], None] = lambda text: None) -> None:
        self.best = scenario
        self.replays = 0
        self._tell = tell

    def shrink(self) -> Scenario:
        for _ in range(ROUNDS_MAX):
            before = self.best
            self._calm()
            self._leave_out(lambda step: step.method in ("world.add_node", "world.add_plain"))
            self._leave_out(_is_spare)
            self._simplify()
            self._hurry()
            if self.best == before:
                break
        return self.best

    def _try(self, **changes: Any) -> bool:
        """Keep the best scenario with these changes, if it breaks the same promise."""
        changed = replace(self.best, **changes)
        changed = replace(changed, ends_at=changed.ends_at + SLACK_S)
        options = changed.options
        seeds = [changed.seed]
        if options.loss or options.bursts or options.repeat or options.late:
            lucks = LUCKS_OF_SHORT if len(changed.steps) <= SHORT_STEPS else LUCKS
            seeds += [f"{changed.plan.world_seed}/{luck}" for luck in range(1, lucks)]
        for seed in seeds:
            self.replays += 1
            found = replace(changed, seed=seed).replay()
            if found is not None and found.promise == self.best.promise:
                self.best = found
                self._tell(f"{len(found.steps)} steps after {self.replays} replays")
                return True
        return False

    def _calm(self) -> None:
        for change in CALMER:
            calmer = replace(self.best.options, **change)
            if calmer != self.best.options:
                self._try(options=calmer)
        for key in ("loss", "bursts", "repeat", "late"):
            given = getattr(self.best.options, key)
            for rounded in (round(given, 1), round(given, 2)):
                if rounded != given and self._try(
                    options=replace(self.best.options, **{key: rounded})
                ):
                    break

    def _leave_out(self, may_go: Callable[[Step], bool]) -> None:
        """Leave out as many of these steps as possible: halves, quarters, …, single ones."""
        size = sum(map(may_go, self.best.steps))
        while size:
            end = len(self.best.steps)
            while end > 0:  # from the end: what happened last matters least to the others
                steps = self.best.steps
                chosen = [i for i in range(min(end, len(steps))) if may_go(steps[i])][-size:]
                if not chosen:
                    break
                end = chosen[0]
                self._try(steps=tuple(s for i, s in enumerate(steps) if i not in set(chosen)))
            size //= 2

    def _simplify(self) -> None:
        """Make single steps simpler."""
        index = 0
        while index < len(self.best.steps):
            steps = self.best.steps
            index += not any(
                self._try(steps=(*steps[:index], simpler, *steps[index + 1 :]))
                for simpler in _simpler(steps[index])
            )

    def _hurry(self) -> None:
        """Shorten the time between two steps, until peace."""
        index = 1
        while index < len(self.best.steps) and self.best.steps[index - 1].method != "world.heal":
            steps = self.best.steps
            gap_s = steps[index].at - steps[index - 1].at
            for shorter_s in (GAP_S, 0.1, 1.0, gap_s / 2, int(10 * gap_s) / 10):
                if gap_s - 0.001 > shorter_s >= GAP_S:
                    less_s = gap_s - shorter_s
                    later = (replace(s, at=round(s.at - less_s, 6)) for s in steps[index:])
                    ends_at = self.best.ends_at - less_s
                    if self._try(steps=(*steps[:index], *later), ends_at=ends_at):
                        break
            index += 1


#: What a printed test may need.
IMPORTS = (
    "from math import inf",
    "from jsonbus.sim import NetworkOptions, World",
    "from jsonbus.sim.channels.checkers import ChannelPromises",
    "from jsonbus.sim.channels.node import ChannelBounds",
    "from jsonbus.sim.promises import Promises",
    "from jsonbus.sim.records import Habits",
)
_COMMENT: Any = {"initial_indent": "    # ", "subsequent_indent": "    # "}


def to_python(scenario: Scenario) -> str:
    """Return a test that fails as long as the promise breaks."""
    plan = scenario.plan
    judged = f"is_calm={plan.is_calm}, judges_plain={plan.is_harmless}"
    if plan.has_channels:
        judged += f", channels=ChannelPromises(is_lossless={plan.options.is_lossless})"
    sealed = ", is_sealed=True" if plan.is_sealed else ""
    patient = ", is_patient=True" if plan.is_patient else ""
    lines = [
        f"def test_history_{plan.seed}_of_mode_{plan.mode}() -> None:",
        *textwrap.wrap(f"Broke: {scenario.story}", 96, **_COMMENT),
        f"    promises = Promises({plan.nodes + plan.plain_peers}, {judged}{sealed}{patient})",
        f"    options = {shown(scenario.options)}",
        f"    world = World({scenario.seed!r}, options, promises.checkers{sealed})",
    ]
    used = set().union(*(step.refs() for step in scenario.steps))
    now = 0.0
    for step in scenario.steps:
        if step.at > now:
            now = step.at
            lines.append(f"    world.clock.run_until({now!r})")
        lines.append(f"    {step if step.name in used else replace(step, name='')}")
    if scenario.ends_at > now:
        lines.append(f"    world.clock.run_until({scenario.ends_at!r})")
    test = "\n".join(lines)
    words = set(re.findall(r"\w+", test))
    imports = [each for each in IMPORTS if words & set(each.partition(" import ")[2].split(", "))]
    return "\n".join((*imports, "", "", test, ""))


def _is_spare(step: Step) -> bool:
    """Return whether a scenario without this step is a scenario."""
    if step.method.startswith("promises."):
        return step.method == "promises.inspect"
    return step.method not in KEPT


def _simpler(step: Step) -> Iterator[Step]:
    """Yield simpler steps to take instead."""
    arguments, options = step.arguments, step.options
    for key in SPARE:
        if key in options:
            yield replace(step, options={k: v for k, v in options.items() if k != key})
    if step.method == "world.add_node" and arguments != (step.name,):
        yield replace(step, arguments=(step.name,))
    if step.method == "world.publish_batch" and len(arguments[1]) == 1:
        single = (arguments[0], arguments[1][0], *arguments[2:])
        yield replace(step, method="world.publish", arguments=single)
    for number, argument in enumerate(arguments):
        before, after = arguments[:number], arguments[number + 1 :]
        if isinstance(argument, Padding) and not after:
            yield replace(step, arguments=before)
        for simpler in _simpler_value(argument, least=step.method != "world.start"):
            yield replace(step, arguments=(*before, simpler, *after))
    for key, value in options.items():
        for simpler in _simpler_value(value, least=0):
            yield replace(step, options={**options, key: simpler})


def _simpler_value(value: Any, least: int) -> Iterator[Any]:
    if isinstance(value, list):
        yield from _shorter(value, least)
    elif isinstance(value, Habits | ChannelBounds):
        for each in fields(value):
            given = getattr(value, each.name)
            fewer = [1, given // 2] if each.name == "messages" else []
            for simpler in (each.default, *fewer):
                if simpler != given:
                    yield replace(value, **{each.name: simpler})


def _shorter(items: list[Any], least: int) -> Iterator[list[Any]]:
    """Yield the list without a half, a quarter, an eighth; a short one without a single item."""
    count = len(items)
    sizes = {count // 2, count // 4, count // 8, 1 if count <= 8 else 0} - {0}
    for size in sorted(sizes, reverse=True):
        for start in range(0, count, size):
            rest = items[:start] + items[start + size :]
            if len(rest) >= least:
                yield rest
    if len(kinds := sorted(set(filter(_is_text, items)))) > 1:
        yield from ([kind] * count for kind in kinds)


def _is_text(item: Any) -> bool:
    return isinstance(item, str)
