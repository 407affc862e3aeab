from __future__ import annotations

from typing import Any

import click

from jsonbus.config import BusSettings
from jsonbus.survey import IntervalView

from ..command import BusCommand
from ..lib.measurement import Kind, Measurement, measure_options
from ..lib.numbers import count


@click.command(
    "hz",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus hz sensors/imu
  jsonbus hz 'sensors/**' --interval 5
  jsonbus hz sensors/imu --count 1000 | jq .jitter_s
  jsonbus hz sensors/imu --duration 10 --subscribe     even if nobody else wants it
""",
)
@measure_options
def command(settings: BusSettings, patterns: tuple[str, ...], **options: Any) -> None:
    """Measure how often messages come, and how regularly.

    A line per topic and interval: messages per second; mean, standard deviation (jitter), minimum
    and maximum of the time between two messages; messages so far; and LOSS, the fraction of its
    publishers' messages, of any topic, that never arrived here. LOSS distinguishes a lossy network
    from a slow publisher. In a pipe there is also publisher_rate: messages per second that the
    publishers sent to all their topics, by their sequence, lost ones included.

    Times are by the publisher's clock, between messages in the order of its sequence; the time
    between messages of one datagram is 0. Measuring changes nothing on the bus.
    """
    Measurement(_KIND, settings, patterns, **options).run()


def _show(view: IntervalView) -> tuple[str, ...]:
    spread = view.intervals
    if not spread.number:
        return count(view.rate), "-", "-", "-", "-"
    times = (spread.mean, spread.deviation, spread.least, spread.most)
    return (count(view.rate), *(f"{each * 1000:.3f}" for each in times))


def _as_json(view: IntervalView) -> dict[str, Any]:
    spread = view.intervals
    times = (spread.mean, spread.deviation, spread.least, spread.most)
    names = ("mean_s", "jitter_s", "min_s", "max_s")
    return {
        "rate": round(view.rate, 6),
        **{
            name: round(each, 9) if spread.number else None
            for name, each in zip(names, times, strict=True)
        },
        "window": spread.number,
        "publisher_rate": round(view.publisher_rate, 6),
    }


_KIND = Kind(
    (("RATE/s", 6), ("MEAN ms", 9), ("JITTER", 8), ("MIN", 8), ("MAX", 9)), _show, _as_json
)
