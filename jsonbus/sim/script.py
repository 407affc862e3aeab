"""What is done to a world, as data: recorded while a history runs, and done again.

A step is a call: when, which method, with which arguments. An argument is plain data or a `Ref`,
because a participant is not data: `Ref("n3")` is what the step named n3 returned, and
`Ref("n3", "sinks", "a")` is its sink for that pattern. A history draws its steps from dice; a
script that is run again draws nothing, and gives the same run to the last event. Printed, the
steps are Python. A method may be that of something that a step returned: "call1.near.close" closes
the near end of the channel that the step named call1 opened.

A script may lack steps that it once had (shrink.py). A step that has become impossible by that, as
when a node leaves that never joined, is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from operator import attrgetter
from typing import Any

from jsonbus.core.channel.end import OPEN
from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.checkers import Checker
from jsonbus.sim.network import NetworkOptions
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.promises import Promises
from jsonbus.sim.world import World


@dataclass(frozen=True, slots=True, repr=False)
class Ref:
    """Something that a step returned, or a part of it."""

    name: str
    attribute: str = ""
    key: str = ""

    def __repr__(self) -> str:
        attribute = f".{self.attribute}" if self.attribute else ""
        return f"{self.name}{attribute}" + (f"[{self.key!r}]" if self.key else "")

    def find(self, names: dict[str, Any]) -> Any:
        """Return it; KeyError if the step was left out."""
        found = names[self.name]
        found = attrgetter(self.attribute)(found) if self.attribute else found
        return found[self.key] if self.key else found


@dataclass(frozen=True, slots=True, repr=False)
class Padding:
    """Text of that length."""

    length: int

    def __repr__(self) -> str:
        return f"'x' * {self.length}" if self.length else "''"

    def find(self, names: dict[str, Any]) -> str:
        return "x" * self.length


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a method, as "world.publish", at that virtual time."""

    at: float
    method: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""  # of what it returns, for later steps

    def refs(self) -> set[str]:
        """Return the names that it uses."""
        arguments = _refs([*self.arguments, *self.options.values()])
        return {self.method.partition(".")[0]} | {ref.name for ref in arguments}

    def __str__(self) -> str:
        shown_arguments = [*map(shown, self.arguments)]
        shown_arguments += [f"{key}={shown(value)}" for key, value in self.options.items()]
        call = f"{self.method}({', '.join(shown_arguments)})"
        return f"{self.name} = {call}" if self.name else call


class Stage:
    """A world, its promises, and all steps that were taken in it."""

    def __init__(
        self,
        seed: str,
        options: NetworkOptions,
        promises: Promises,
        more: Sequence[Checker] = (),
        *,
        is_sealed: bool = False,
    ) -> None:
        self.world = World(seed, options, (*more, *promises.checkers), is_sealed=is_sealed)
        self.steps: list[Step] = []
        self._names: dict[str, Any] = {"world": self.world, "promises": promises}

    def do(self, method: str, *arguments: Any, name: str = "", **options: Any) -> Any:
        """Do it now, and record it."""
        return self._take(Step(self.world.clock.now, method, arguments, options, name))

    def run(self, steps: Iterable[Step]) -> None:
        """Do every step at its time, except those that are impossible."""
        for step in steps:
            if step.at > self.world.clock.now:  # steps of one instant: nothing happens in between
                self.world.clock.run_until(step.at)
            if self._is_possible(step):
                self._take(step)

    def _take(self, step: Step) -> Any:
        self.steps.append(step)
        call = Ref(*step.method.split(".", 1)).find(self._names)
        arguments = [self._find(argument) for argument in step.arguments]
        options = {key: self._find(value) for key, value in step.options.items()}
        result = call(*arguments, **options)
        if step.name:
            self._names[step.name] = result
        return result

    def _find(self, argument: Any) -> Any:
        if isinstance(argument, list):  # of a partition, those that are there
            return [self._find(each) for each in argument if self._is_there(each)]
        return argument.find(self._names) if isinstance(argument, Ref | Padding) else argument

    def _is_there(self, argument: Any) -> bool:
        return not isinstance(argument, Ref) or argument.name in self._names

    def _is_possible(self, step: Step) -> bool:
        name, _, path = step.method.rpartition(".")[0].partition(".")
        try:
            actor = Ref(name, path).find(self._names)
            arguments = [self._find(argument) for argument in step.arguments]
        except KeyError:
            return False
        if actor is None:  # an end that was never made
            return False
        if isinstance(actor, Endpoint):
            return actor.core.state == OPEN and not actor.is_dead
        if step.method in ("world.cut", "world.partition"):
            return all(arguments)
        if not arguments or not isinstance(arguments[0], Participant):
            return True
        participant, *rest = arguments
        if step.method == "world.start":
            return not participant.is_up
        if not participant.is_up or participant.is_frozen != (step.method == "world.thaw"):
            return False
        return not isinstance(participant, SimNode) or self._fits(step.method, participant, rest)

    def _fits(self, method: str, node: SimNode, arguments: list[Any]) -> bool:
        """Return whether it can be subscribed or unsubscribed, bound or unbound, as before."""
        if method in ("world.subscribe", "world.unsubscribe"):
            return (arguments[0] in node.sinks) == (method == "world.unsubscribe")
        if method in ("world.serve", "world.unserve"):
            return (SERVED_PREFIX + arguments[0] in node.sinks) == (method == "world.unserve")
        if method in ("world.channels.bind", "world.channels.unbind"):
            bound = self.world.channels.of(node).bindings
            return (arguments[0] in bound) == (method == "world.channels.unbind")
        return True


def _refs(arguments: Iterable[Any]) -> Iterable[Ref]:
    for argument in arguments:
        if isinstance(argument, Ref):
            yield argument
        elif isinstance(argument, list):
            yield from _refs(argument)


def ref_to(participant: Participant) -> Ref:
    """Return what steps call a participant of a history."""
    return Ref(f"{'p' if participant.is_plain else 'n'}{participant.index}")


def shown(argument: Any) -> str:
    """Return it as Python: of options, those that differ from the defaults."""
    if is_dataclass(argument) and not isinstance(argument, Ref | Padding):
        given = {f.name: getattr(argument, f.name) for f in fields(argument)}
        changed = [
            f"{f.name}={given[f.name]!r}" for f in fields(argument) if given[f.name] != f.default
        ]
        return f"{type(argument).__name__}({', '.join(changed)})"
    if isinstance(argument, list) and len(argument) > 2 and len(set(argument)) == 1:
        return f"{argument[:1]!r} * {len(argument)}"
    return repr(argument)
