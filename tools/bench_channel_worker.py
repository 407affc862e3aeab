"""A process of bench_channel.py: one side of one system, with threads or with tasks.

Started with a Side as its only argument. Commands come as lines of JSON on standard input, answers
go out as lines of JSON; what can be asked are the methods of bench_channel_threads.ThreadSide and
bench_channel_tasks.TaskSide. The process ends with its standard input.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench_channel_side import Side
from bench_worker import write_answer


def main() -> None:
    side = Side.from_json(sys.argv[1])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # thousands of connections
    # asyncio reads each time into 256 KB anew, which the C library takes from the kernel and gives
    # back, until the program has freed something larger once. All begin with that behind them: else
    # the floor's round trips take half as long again, its messages of 64 KB twice, and those of 1 MB
    # six times as long.
    bytes(16 << 20)
    run: Callable[[Side], None]
    # Imported on demand: the memory that is measured is that of one system alone.
    if side.system in ("stream", "jsonbus-aio"):
        from bench_channel_tasks import run
    else:
        from bench_channel_threads import run
    try:
        run(side)
    except BaseException:
        write_answer({"failed": traceback.format_exc()})
        raise
    finally:
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
