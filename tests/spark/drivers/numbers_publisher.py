"""Publishes 0, 1, 2, … reliably under one topic, until SIGTERM; then prints how many it was.

Arguments: the topic, and how many a second. A number that nobody wants, since the only subscriber
is known to be gone, is published when there is one again.
"""

from __future__ import annotations

import json
import signal
import sys
import time

import jsonbus


def main(topic: str, rate: float) -> None:
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    number = 0
    with jsonbus.Bus(name=topic.replace("/", "-"), reliable=True) as bus:
        while not stopping:
            if bus.publish(topic, number):
                number += 1
            time.sleep(1 / rate)
        print(json.dumps(number), flush=True)  # noqa: T201 (the test reads it)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
