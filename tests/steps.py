"""Counting what a call does, where measuring its time would depend on the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(call: Callable[..., object], *arguments: Any) -> int:
    """How many bytecodes a call executes in this thread; what C code does is one step each."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # it may call whoever asked to hear of it, in the middle of the call
    sys.settrace(trace)
    try:
        call(*arguments)
    finally:
        sys.settrace(before)
        gc.enable()
    return count
