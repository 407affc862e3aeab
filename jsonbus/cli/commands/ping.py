from __future__ import annotations

import time

import click

import jsonbus
from jsonbus.config import BusSettings

from ..command import BusCommand, note, wait_until_sure
from ..exit_codes import TIMED_OUT
from ..lib.output import Output
from ..lib.parameters import option
from ..lib.values import printable


@click.command(
    "ping",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus ping
  jsonbus ping --count 10 --interval 0.1 | jq -r '[.name, .round_trip_ms] | @tsv'
""",
)
@option("-c --count N", "Ping N times.", 1)
@option("--interval SECONDS", "Time between two pings.", 1.0)
@option("-t --timeout SECONDS", "Wait this long for answers; exit code 3 if none ever comes.", 1.0)
def command(settings: BusSettings, count: int, interval: float, timeout: float) -> None:
    """Measure the round trip to every node.

    Every node answers automatically, whatever its program does. Many nodes spread their answers
    over some milliseconds, which counts as part of the round trip.
    """
    output = Output()
    answers = 0
    with jsonbus.Bus(**settings) as bus:
        wait_until_sure(bus)
        for turn in range(count):
            began_at = time.monotonic()
            for pong in bus.ping(timeout=timeout):
                answers += 1
                _write(output, pong.node, pong.name, pong.round_trip_s * 1000)
            output.flush()
            if turn + 1 < count:
                time.sleep(max(0.0, began_at + interval - time.monotonic()))
    if not answers:
        note(f"nobody answered within {timeout:g} s")
        raise click.exceptions.Exit(TIMED_OUT)


def _write(output: Output, node: str, name: str, round_trip_ms: float) -> None:
    if output.is_terminal:
        output.write_line(f"{round_trip_ms:9.3f} ms  {printable(name)} ({printable(node)})")
    else:
        output.write_result({"node": node, "name": name, "round_trip_ms": round(round_trip_ms, 3)})
