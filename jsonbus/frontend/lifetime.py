"""Open buses when the process forks or ends.

A forked child has the parent's sockets but none of its threads. If it said goodbye, the parent
would be gone for everybody; if it read, the parent would miss what it took. So in a child every bus
opened before is cut off: its descriptors are closed, which does nothing to the parent's, and using
it raises ForkedError. The hook runs in the child before anything else does, hence no process id has
to be compared on each call.

A bus that is still open when the interpreter ends is closed then, so that it says goodbye.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING, Any

from jsonbus.errors import ClosedError, ForkedError, LocalError

if TYPE_CHECKING:
    from jsonbus.frontend.loop import BaseLoop


_open: weakref.WeakSet[BaseLoop[Any, Any]] = weakref.WeakSet()


def note_open(loop: BaseLoop[Any, Any]) -> None:
    _open.add(loop)


def note_closed(loop: BaseLoop[Any, Any]) -> None:
    _open.discard(loop)


def forked_error() -> LocalError:
    return ForkedError("this bus was opened before the process forked: open one in the child")


def closed_error() -> LocalError:
    return ClosedError("the bus is closed: open a new one")


def _cut_off_all() -> None:
    for loop in list(_open):
        loop.cut_off()
    _open.clear()


def _close_all() -> None:
    for loop in list(_open):
        loop.close_at_once()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_cut_off_all)
atexit.register(_close_all)
