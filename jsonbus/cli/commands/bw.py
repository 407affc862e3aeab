from __future__ import annotations

from typing import Any

import click

from jsonbus.config import BusSettings
from jsonbus.survey import IntervalView

from ..command import BusCommand
from ..lib.measurement import Kind, Measurement, measure_options
from ..lib.numbers import count


@click.command(
    "bw",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus bw
  jsonbus bw 'cameras/**' --interval 5
  jsonbus bw cameras/door --duration 10 | jq .bytes_per_s
""",
)
@measure_options
def command(settings: BusSettings, patterns: tuple[str, ...], **options: Any) -> None:
    """Measure how much data flows, and how large values are.

    A line per topic and interval: bytes and messages per second; mean, minimum and maximum size of
    a value; messages so far; and LOSS, as in `jsonbus hz`. Sizes are those of the values as compact
    JSON, without topic and header. Measuring changes nothing on the bus.
    """
    Measurement(_KIND, settings, patterns, **options).run()


def _show(view: IntervalView) -> tuple[str, ...]:
    sizes = view.sizes
    return (
        count(view.bytes_per_s),
        count(view.rate),
        *(count(each) for each in (sizes.mean, sizes.least, sizes.most)),
        count(view.bytes),
    )


def _as_json(view: IntervalView) -> dict[str, Any]:
    sizes = view.sizes
    return {
        "bytes_per_s": round(view.bytes_per_s, 3),
        "rate": round(view.rate, 6),
        "mean_bytes": round(sizes.mean, 3),
        "min_bytes": int(sizes.least),
        "max_bytes": int(sizes.most),
        "window": sizes.number,
        "total_bytes": view.bytes,
    }


_KIND = Kind(
    (("BYTES/s", 7), ("RATE/s", 6), ("MEAN", 6), ("MIN", 6), ("MAX", 6), ("TOTAL", 6)),
    _show,
    _as_json,
)
