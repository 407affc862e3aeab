"""One attempt to reach a port, its clock, and what is known of the node."""

from __future__ import annotations

from jsonbus.core.channel.connecting import Ask, Attempt, Dial, Fail, Step
from jsonbus.core.channel.wire import Refusal
from jsonbus.core.membership.directory import Place
from jsonbus.errors import ChannelError, ChannelRefusedError

START = 1000.0
TIMEOUT_S = 10.0

LISTED = Place("id-bob", "bob")
TOLD = Place("id-bob", "bob", False, "10.0.0.2", 40123, START - 5)
UNBOUND = Refusal("id-bob", "bob", "unbound")
ELSEWHERE = Refusal("id-eve", "eve", "gone", "this is id-eve")


class Story:
    """An attempt, its clock, and what its owner knows of the node."""

    def __init__(self, *places: Place, retry: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        self.now = START
        self.places = list(places)
        self.attempt = Attempt("bob", "door", timeout_s, START, retry=retry)
        self.did: list[tuple[float, Step]] = []  # seconds from the start

    def act(self) -> Step | None:
        """Do what the attempt says until it waits; the last thing that it said."""
        last = None
        for _ in range(10):
            step = self.attempt.step(self.places, self.now)
            if step is None:
                assert self.attempt.timer_at() > self.now, "a busy loop"
                return last
            self.did.append((round(self.now - START, 6), step))
            last = step
        raise AssertionError("it never waits")

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        self.act()
        while (at := self.attempt.timer_at()) <= until:
            self.now = at
            self.act()
        self.now = until

    def tell(self, place: Place = TOLD, after_s: float = 0.001) -> Step | None:
        """The node introduces itself."""
        self.now += after_s
        self.places = [place._replace(introduced_at=self.now)]
        return self.act()

    def answer(self, place: Place = TOLD, after_s: float = 0.001) -> Step | None:
        """The same, because it was asked."""
        return self.tell(place._replace(answered_at=self.now + after_s), after_s)

    def refuse(self, refusal: Refusal = UNBOUND, after_s: float = 0.001) -> Step | None:
        self.now += after_s
        self.attempt.refused(refusal, self.now)
        return self.act()

    def fail_dialing(self, detail: str = "connection refused") -> Step | None:
        self.now += 0.001
        self.attempt.dial_failed(detail, self.now)
        return self.act()

    @property
    def asked_at(self) -> list[float]:
        return [at for at, step in self.did if isinstance(step, Ask)]

    @property
    def dialed(self) -> list[Place]:
        return [step.place for _, step in self.did if isinstance(step, Dial)]


def error_of(step: Step | None) -> ChannelError:
    assert isinstance(step, Fail)
    return step.error


def reason_of(step: Step | None) -> str:
    error = error_of(step)
    assert isinstance(error, ChannelRefusedError)
    return error.reason
