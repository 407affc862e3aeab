"""`jsonbus` with any command, on a leash: it ends when its standard input does.

    python -m jsonbus.demo.leash bridge 'sensors/**'

So a bridge of the demo never outlives it, not even a demo that was killed.
"""

from __future__ import annotations

import os
import signal
import threading

from ..cli.main import main


def _wait_for_end() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_wait_for_end, daemon=True).start()
    main()
