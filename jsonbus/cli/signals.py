"""Handles the signals that end a command: Ctrl-C, SIGTERM and SIGHUP, all in the same way.

They raise KeyboardInterrupt in the main thread, wherever it is. Python loses an exception that is
raised in an internal callback: in the import system, or while an object is destroyed. So while
modules are imported, when there is nothing to clean up, a signal ends the process at once; and
afterwards commands that stay call `check` from time to time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

#: The signals that end a command. Windows has no SIGHUP.
NUMBERS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))

#: How often a command that stays checks whether an interrupt got lost.
CHECK_S = 0.5

_interrupts = 0


def leave_at_once() -> None:
    """Let a signal end the process silently from now on."""
    sys.unraisablehook = _report_unless_interrupt
    for number in NUMBERS:
        # A signal that the caller ignores stays ignored: nohup, and background jobs of a script.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)


def raise_interrupt() -> None:
    """Let a signal raise KeyboardInterrupt from now on, if `leave_at_once` was called before."""
    for number in NUMBERS:
        if signal.getsignal(number) is _leave:
            signal.signal(number, _interrupt)


def ignore() -> None:
    """Ignore Ctrl-C from now on: the process is about to end by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def check() -> None:
    """Raise the KeyboardInterrupt of an earlier signal if it got lost."""
    if _interrupts:
        raise KeyboardInterrupt


def pause(seconds: float) -> None:
    """Sleep for at most CHECK_S, then `check`."""
    time.sleep(min(max(seconds, 0.0), CHECK_S))
    check()


class Ending:
    """What an interrupt means for the block of `until_interrupted`; the block may change it."""

    def __init__(self, *, is_usual: bool) -> None:
        self.is_usual = is_usual


@contextmanager
def until_interrupted(*, is_usual: bool = True) -> Iterator[Ending]:
    """End the block at an interrupt: quietly if that is its usual end.

    This is the one rule for exit codes: a command that has no other end than Ctrl-C ends with 0; a
    command that would have ended by itself was interrupted before it was done, and ends with 130.

    Enter it before the command joins the bus: who sees a node there may interrupt it at once. A
    second interrupt, which comes while the first one is cleaned up after, passes through.
    """
    ending = Ending(is_usual=is_usual)
    try:
        yield ending
    except KeyboardInterrupt:
        if _interrupts > 1 or not ending.is_usual:
            raise


def stay() -> NoReturn:
    """Wait for a signal. Always raises KeyboardInterrupt."""
    while True:
        pause(CHECK_S)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)  # what shells show for a program that a signal ended


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _interrupts
    _interrupts += 1
    raise KeyboardInterrupt


def _report_unless_interrupt(lost: sys.UnraisableHookArgs) -> None:
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
