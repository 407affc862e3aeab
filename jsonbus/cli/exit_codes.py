"""Exit codes of the process; 0 is success."""

from __future__ import annotations

FAILED = 1
WRONG_USAGE = 2
TIMED_OUT = 3
INTERRUPTED = 130  # before it was done; what shells show for a program that Ctrl-C ended
