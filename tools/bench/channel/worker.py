"""One side of one system, with threads or with tasks, as a process: started with a Side.

What it can be asked are the methods of threads.ThreadSide and tasks.TaskSide.
"""

from __future__ import annotations

import resource
import sys

from tools.bench.channel.side import Side
from tools.bench.worker import run


def main() -> None:
    side = Side.from_json(sys.argv[1])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # thousands of connections
    # asyncio reads each time into 256 KB anew, which the C library takes from the kernel and gives
    # back, until the program has freed something larger once. All begin with that behind them: else
    # the floor's round trips take half as long again, and what it sends in messages of 64 KB and
    # 1 MB takes two and six times as long.
    bytes(16 << 20)
    # Imported on demand: the memory that is measured is that of one system alone.
    if side.kind in ("stream", "jsonbus-aio"):
        from tools.bench.channel import tasks

        tasks.run(side)
    else:
        from tools.bench.channel import threads

        threads.run(side)


if __name__ == "__main__":
    run(main)
