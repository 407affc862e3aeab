"""Run a call step by step, where a step is a bytecode: count steps, or stop between two.

A call of C code is one step. Unlike time, steps do not depend on the machine.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

DONE_S_MAX = 60.0  # for a slow machine: what passes never waits for it


def each_step(call: Callable[[], Any], before_step: Callable[[], object]) -> Any:
    """Make a call in this thread, doing something else before each of its steps."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            before_step()
        return trace

    before = sys.gettrace()
    gc.disable()  # it may call whoever asked to hear of it, in the middle of the call
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)
        gc.enable()


def count_steps(call: Callable[..., object], *arguments: Any) -> int:
    """Return how many steps a call takes in this thread."""
    count = 0

    def add_one() -> None:
        nonlocal count
        count += 1

    each_step(lambda: call(*arguments), add_one)
    return count


class Stopped:
    """A call in a thread of its own that stops before one of its steps, until told to go on."""

    def __init__(self, call: Callable[[], Any], step: int) -> None:
        self._call = call
        self._steps_left = step
        self._may_go_on = threading.Event()
        self._has_stopped = threading.Event()  # or is done, if the call has fewer steps
        self._result: Any = None
        self._thread = threading.Thread(target=self._run, name="jsonbus-test", daemon=True)
        self._thread.start()
        assert self._has_stopped.wait(DONE_S_MAX)

    def finish(self) -> Any:
        self._may_go_on.set()
        self._thread.join(DONE_S_MAX)
        assert not self._thread.is_alive(), "the call waits for somebody"
        return self._result

    def _run(self) -> None:
        try:
            self._result = each_step(self._call, self._before_step)
        finally:
            self._has_stopped.set()

    def _before_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left == 0:
            self._has_stopped.set()
            assert self._may_go_on.wait(DONE_S_MAX)
