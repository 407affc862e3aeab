"""What the process tells its caller; 0 is done."""

from __future__ import annotations

FAILED = 1
WRONG_USAGE = 2
TIMED_OUT = 3
INTERRUPTED = 130  # what shells show for a program that Ctrl-C ended
