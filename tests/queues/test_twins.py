"""TopicQueue between threads and AsyncTopicQueue between tasks: the same calls, the same outcomes.

A plain model tells the outcome of every call, of those that wait, too. Whoever waits in the model
must wait in the queue, and nobody else: a wake-up that is forgotten is a difference.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from jsonbus.errors import ClosedError
from jsonbus.queues.tasks import AsyncTopicQueue
from jsonbus.queues.threads import TopicQueue
from tests.helpers import wait_until
from tests.queues.test_waiting import DONE_S_MAX, Background

NAMES = ("ann", "bob", "eve")
MAXSIZE = 2
TURNS_MAX = 1_000  # of the event loop: what settles at all does so in a few per waiting task


class Model:
    """One plain list per subscriber; calls are known by number, outcomes by call."""

    def __init__(self) -> None:
        self.maxsize = MAXSIZE
        self.lists: dict[str, list[int]] = {}
        self.line: dict[int, int] = {}  # message by call
        self.waiting: dict[str, int] = {}  # call by subscriber
        self.is_closed = False
        self.outcomes: dict[int, Any] = {}

    def held(self) -> list[int]:
        return sorted({message for unread in self.lists.values() for message in unread})

    def put(self, call: int, message: int, timeout: float | None) -> None:
        if self.is_closed:
            self.outcomes[call] = "closed"
        elif timeout == 0 and (self.line or len(self.held()) >= self.maxsize):
            self.outcomes[call] = "too late"
        else:
            self.line[call] = message

    def get(self, call: int, name: str, timeout: float | None) -> None:
        if name not in self.lists:
            self.outcomes[call] = None
        elif self.lists[name] or timeout is None:
            self.waiting[name] = call
        else:
            self.outcomes[call] = "closed" if self.is_closed else "too late"

    def drop(self, message: int) -> None:
        for unread in self.lists.values():
            if message in unread:
                unread.remove(message)

    def cancel(self, call: int) -> None:
        self.line.pop(call, None)
        self.waiting = {name: each for name, each in self.waiting.items() if each != call}
        self.outcomes[call] = "cancelled"

    def settle(self) -> None:
        """Whoever can go on does, until nobody can."""
        before = None
        while before != (before := len(self.outcomes)):
            while self.line and not self.is_closed and len(self.held()) < self.maxsize:
                call = next(iter(self.line))
                message = self.line.pop(call)
                for unread in self.lists.values():
                    unread.append(message)
                self.outcomes[call] = None
            for name, call in list(self.waiting.items()):
                unread = self.lists.get(name)
                if unread:
                    self.outcomes[call] = unread.pop(0)
                elif unread is None:
                    self.outcomes[call] = None
                elif self.is_closed:
                    self.outcomes[call] = "closed"
                else:
                    continue
                del self.waiting[name]
            if self.is_closed:
                self.outcomes |= dict.fromkeys(self.line, "closed")
                self.line.clear()


class Threads:
    """Each call in a thread of its own."""

    def __init__(self) -> None:
        self.queue = TopicQueue[int](MAXSIZE)
        self._calls: dict[int, Background] = {}

    def start(self, call: int, method: str, *arguments: Any) -> None:
        self._calls[call] = Background(getattr(self.queue, method), *arguments)

    def settle(self) -> None:
        def is_settled() -> bool:
            # Whoever is woken leaves its condition at once, and the queue only when it runs.
            with self.queue._lock:
                conditions: list[Any] = [turn.condition for turn in self.queue._writers]
                conditions.append(self.queue._readable)
                waiting = sum(len(condition._waiters) for condition in conditions)
            return waiting == sum(not call.is_done for call in self._calls.values())

        assert wait_until(is_settled, DONE_S_MAX), "somebody was not woken, or in vain"

    def outcomes(self) -> dict[int, Any]:
        done = {call: each for call, each in self._calls.items() if each.is_done}
        return {call: _outcome(each.result) for call, each in done.items()}

    def end(self) -> None:
        pass


class Tasks:
    """Each call in a task of its own."""

    def __init__(self) -> None:
        self.queue = AsyncTopicQueue[int](MAXSIZE)
        self._runner = asyncio.Runner()
        self._calls: dict[int, asyncio.Task[Any]] = {}

    def start(self, call: int, method: str, *arguments: Any) -> None:
        coroutine = getattr(self.queue, method)(*arguments)
        self._calls[call] = self._runner.get_loop().create_task(coroutine)

    def cancel(self, call: int) -> None:
        self._calls[call].cancel()

    def settle(self) -> None:
        async def take_turns() -> None:
            for _ in range(TURNS_MAX):
                await asyncio.sleep(0)
                futures = [writer.future for writer in self.queue._writers]
                waiting = [each for each in futures if each and not each.done()]
                pending = [call for call in self._calls.values() if not call.done()]
                if len(waiting) + len(self.queue._reading) == len(pending):
                    return
            raise AssertionError("somebody was not woken, or in vain")

        self._runner.run(take_turns())

    def outcomes(self) -> dict[int, Any]:
        done = {call: each for call, each in self._calls.items() if each.done()}
        return {call: _outcome(each.result) for call, each in done.items()}

    def end(self) -> None:
        self._runner.close()


def _outcome(result: Any) -> Any:
    try:
        return result()
    except TimeoutError:
        return "too late"
    except ClosedError:
        return "closed"
    except asyncio.CancelledError:
        return "cancelled"


class TwinsAgainstModel(RuleBasedStateMachine):
    """Random calls on both queues, of which some wait."""

    names = st.sampled_from(NAMES)
    timeouts = st.sampled_from([None, None, 0])

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.twins = self.make()
        self.calls = 0

    def make(self) -> list[Any]:
        return [Threads(), Tasks()]

    def do(self, method: str, *arguments: Any) -> list[Any]:
        """A call that does not wait."""
        return [getattr(twin.queue, method)(*arguments) for twin in self.twins]

    def start(self, method: str, *arguments: Any) -> None:
        self.calls += 1
        getattr(self.model, method)(self.calls, *arguments)
        for twin in self.twins:
            twin.start(self.calls, method, *arguments)
        self.agree()

    def agree(self) -> None:
        self.model.settle()
        for twin in self.twins:
            twin.settle()
            assert twin.outcomes() == self.model.outcomes
            assert len(twin.queue) == len(self.model.held())
            assert twin.queue.maxsize == self.model.maxsize
            for name in NAMES:
                unread = self.model.lists.get(name, [])
                assert twin.queue.available(name) == len(unread)

    @precondition(lambda self: not self.model.is_closed)
    @rule(name=names)
    def subscribe(self, name: str) -> None:
        is_new = name not in self.model.lists
        assert self.do("subscribe", name) == [is_new] * len(self.twins)
        self.model.lists.setdefault(name, [])
        self.agree()

    @rule(name=names)
    def unsubscribe(self, name: str) -> None:
        is_known = name in self.model.lists
        assert self.do("unsubscribe", name) == [is_known] * len(self.twins)
        self.model.lists.pop(name, None)
        self.agree()

    @rule(timeout=timeouts)
    def put(self, timeout: float | None) -> None:
        self.start("put", self.calls + 1, timeout)

    @rule(name=names, timeout=timeouts)
    def get(self, name: str, timeout: float | None) -> None:
        # Of two calls that wait for the same subscriber, any may get its message.
        if name not in self.model.waiting:
            self.start("get", name, timeout)

    @rule(age=st.integers(0, 8))
    def remove(self, age: int) -> None:
        message = self.calls - age
        is_held = message in self.model.held()
        assert self.do("remove", message) == [is_held] * len(self.twins)
        self.model.drop(message)
        self.agree()

    @rule(maxsize=st.integers(1, 4))
    def resize(self, maxsize: int) -> None:
        oldest = self.model.held()[:-maxsize]
        assert self.do("resize", maxsize) == [len(oldest)] * len(self.twins)
        self.model.maxsize = maxsize
        for message in oldest:
            self.model.drop(message)
        self.agree()

    @precondition(lambda self: self.calls > 15)
    @rule()
    def close(self) -> None:
        self.do("close")
        self.model.is_closed = True
        self.agree()

    def teardown(self) -> None:
        try:
            self.close()
            assert self.model.outcomes.keys() == set(range(1, self.calls + 1))
        finally:
            for twin in self.twins:
                twin.end()


class CancelledTasksAgainstModel(TwinsAgainstModel):
    """The same, and whoever waits may be cancelled, also right after it was woken."""

    def make(self) -> list[Any]:
        return [Tasks()]

    def waiting(self) -> list[int]:
        return [*self.model.line, *self.model.waiting.values()]

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.waiting()))
        self.model.cancel(call)
        self.twins[0].cancel(call)
        self.agree()

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def wake_and_cancel(self, data: st.DataObject, name: str) -> None:
        """Room, or a message, comes first; the task is cancelled before it can run."""
        call = data.draw(st.sampled_from(self.waiting()))
        maxsize = self.model.maxsize + 1
        self.do("resize", maxsize)
        self.model.maxsize = maxsize
        self.do("unsubscribe", name)
        self.model.lists.pop(name, None)
        self.twins[0].cancel(call)
        self.model.cancel(call)
        self.agree()


for _machine in (TwinsAgainstModel, CancelledTasksAgainstModel):
    _machine.TestCase.settings = settings(
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=60,
        stateful_step_count=40,
    )
test_both_queues_agree_with_the_model = TwinsAgainstModel.TestCase
test_whoever_is_cancelled_takes_and_leaves_nothing = CancelledTasksAgainstModel.TestCase
