"""State that lives as long as the process: pooled connections, warnings that were given.

The package may travel by value. Then every task that Spark sends to a worker brings a copy of these
functions with module variables of its own, and a pool kept in such a variable would be a new one
for each task. So what belongs to the process is kept where all copies find it.
"""

from __future__ import annotations

import gc
import logging
import sys
from types import ModuleType
from typing import Any

_HOME = "_jsonbus_source_process"
_WARNINGS_MAX = 1000  # causes that are remembered: a bound that nobody should reach

#: The module that Spark runs in a process for tasks.
_DAEMON = "pyspark.daemon"

_logger = logging.getLogger("spark_bridge.source")


def process_wide(name: str) -> dict[Any, Any]:
    """Return the dict of that name, the same for the whole process. Any thread."""
    home = sys.modules.setdefault(_HOME, ModuleType(_HOME))
    kept: dict[Any, Any] = home.__dict__.setdefault(name, {})
    return kept


def begin_task() -> None:
    """Make the end of a task cheap; called at the begin of every task.

    Spark collects garbage in a worker after every task, which examines every object of all loaded
    modules: 10 to 40 ms of CPU, in which the worker takes no other task. With the second task,
    everything that tasks need is loaded and garbage was just collected: what exists now stays, and
    the collector need not examine it any more.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or spec.name != _DAEMON:
        return  # in any other process, the garbage collector is not our business
    tasks = process_wide("tasks")
    tasks["begun"] = tasks.get("begun", 0) + 1
    if tasks["begun"] == 2:
        gc.freeze()


def warn_once(cause: str, message: str) -> None:
    """Log a warning the first time for its cause, a debug line any other time.

    Nobody configures logging in Spark's Python processes, so it appears on standard error: of the
    driver for what is planned, of the executor for what is read.
    """
    warned = process_wide("warned")
    is_new = cause not in warned and len(warned) < _WARNINGS_MAX
    warned.setdefault(cause, True)
    _logger.log(logging.WARNING if is_new else logging.DEBUG, "jsonbus: %s", message)
