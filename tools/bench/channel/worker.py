"""A process of the benchmark of channels: one side of one system, with threads or with tasks.

Started with a Side as its only argument. Commands come as lines of JSON on standard input, answers
go out as lines of JSON; what can be asked are the methods of threads.ThreadSide and
tasks.TaskSide. The process ends with its standard input.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable

from tools.bench.bus.worker import write_answer
from tools.bench.channel.side import Side


def main() -> None:
    side = Side.from_json(sys.argv[1])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # thousands of connections
    # asyncio reads each time into 256 KB anew, which the C library takes from the kernel and gives
    # back, until the program has freed something larger once. All begin with that behind them: else
    # the floor's round trips take half as long again, and what it sends in messages of 64 KB and
    # 1 MB takes two and six times as long.
    bytes(16 << 20)
    run: Callable[[Side], None]
    # Imported on demand: the memory that is measured is that of one system alone.
    if side.system in ("stream", "jsonbus-aio"):
        from tools.bench.channel.tasks import run
    else:
        from tools.bench.channel.threads import run
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
