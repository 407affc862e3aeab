"""The entry point. It imports very little, so that Ctrl-C is caught as early as possible.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 timed out, 130 interrupted before it was done.
"""

from __future__ import annotations

import os
import sys

from . import signals
from .exit_codes import FAILED, INTERRUPTED


def main() -> None:
    """Run the command line and exit. Never shows a traceback for Ctrl-C or a closed pipe."""
    try:
        signals.leave_at_once()
        code = _run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError:
        code = FAILED  # even the error message could not be written
    _leave(code)


def _run() -> int:
    _fill_closed_streams()
    from .group import cli

    try:
        cli.main(prog_name="jsonbus")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else FAILED
    return 0


def _fill_closed_streams() -> None:
    """Fill the place of standard streams that the caller closed (`<&-`, `>&-`).

    Otherwise the first socket would become descriptor 1, and output would be written into it.
    /dev/null, opened for the wrong direction, takes the place and makes any use an error.
    """
    wrong_directions = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_RDONLY}
    for descriptor, direction in wrong_directions.items():
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, direction)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)


def _leave(code: int) -> None:
    try:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # Python would try again at its end, and complain.
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        signals.ignore()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        os._exit(code)  # a second Ctrl-C does not wait for threads
    sys.exit(code)
