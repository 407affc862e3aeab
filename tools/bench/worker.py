"""The far end of child.py: a process that reads questions and writes answers, as lines of JSON.

Apart from child.py because the memory of such processes is measured: they import little. A process
ends with its standard input, so a benchmark that is killed leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

READ_BYTES = 65_536


def run(main: Callable[[], object]) -> None:
    """Run it and end the process; an exception is the last answer."""
    try:
        main()
    except BaseException:
        write_answer({"failed": traceback.format_exc()})
        raise
    finally:
        sys.stderr.flush()
        os._exit(0)  # libraries of peers have threads that outlive the interpreter


def read_commands() -> Iterator[dict[str, Any]]:
    """Questions, until standard input ends; then the process ends.

    Read from the file descriptor: the lock of sys.stdin would be in the way at the end.
    """
    waiting = b""
    while True:
        while b"\n" in waiting:
            line, _, waiting = waiting.partition(b"\n")
            yield json.loads(line)
        more = os.read(0, READ_BYTES)
        if not more:
            os._exit(1)
        waiting += more


def write_answer(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")
