"""`jsonbus-pipeline`: the pipeline as a program.

    Ctrl-C, SIGTERM    stops at once; the next start goes on where this one was
    --once             processes what is in the log, and ends
    --attached         for a program that runs this one: JSON lines on standard output tell how it
                       goes (Report), the line "finish" on standard input asks to process what is
                       there and to end, and the end of standard input stops at once

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .job import Pipeline
from .progress import QueryProgress
from .raw import count_raw
from .settings import PipelineSettings

#: How often progress is told: to a program, to people.
ATTACHED_S = 0.5
STATUS_S = 10.0

#: What ends the wait for the next progress.
FINISH, STOP = "finish", "stop"

_EPILOG = """\
A reading is a number, or an object with a number and its time: {"value": 21.5, "at": 1767225600}.

Examples:
  jsonbus bridge 'sensors/**'                            in another terminal
  jsonbus-pipeline --output data --checkpoint state      until Ctrl-C
  jsonbus-pipeline --output data --checkpoint state --once
  jsonbus sub 'alerts/**'                                what it finds
"""


@dataclass(slots=True)
class Report:
    """What --attached tells, a line at a time."""

    #: starting, running, finishing, finished
    state: str
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: When it is finished: rows in Parquet, and how many of them are different messages.
    raw_rows: int | None = None
    raw_messages: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = _parse(arguments)
    try:
        settings = PipelineSettings(
            **{name: getattr(options, name) for name in PipelineSettings.__dataclass_fields__}
        )
    except ValueError as error:
        return _complain(str(error), 2)
    warnings.filterwarnings("ignore", module=r"pyspark\b")  # Spark's about itself
    wishes: queue.SimpleQueue[str] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: wishes.put(STOP))
    if options.attached:
        threading.Thread(target=_listen, args=(wishes,), daemon=True).start()
    return _run(options, settings, wishes)


def _run(
    options: argparse.Namespace, settings: PipelineSettings, wishes: queue.SimpleQueue[str]
) -> int:
    from ..spark import JavaNotFoundError, session  # takes a second, and help needs none of it

    teller = _Teller(is_attached=options.attached)
    teller.tell(Report("starting"))
    try:
        spark = session(
            settings.name,
            master=options.master,
            config=dict(options.conf),
            by_value=options.by_value,
        )
    except JavaNotFoundError as error:
        return _complain(str(error), 1)
    pipeline = Pipeline(spark, settings, once=options.once)
    try:
        if wishes.empty():
            pipeline.start()
        wish = _stay(pipeline, wishes, teller)
        if wish == FINISH:
            teller.tell(Report("finishing", _describe(pipeline.progress())))
            pipeline.finish()
        report = Report("finished", _describe(pipeline.progress()))
        if wish != STOP:
            report.raw_rows, report.raw_messages = count_raw(spark, settings.output)
        teller.tell(report)
    except Exception as error:  # Spark's own have no common base, and a Java trace inside
        return _complain(_first_line(error), 1)
    finally:
        pipeline.stop()
        spark.stop()
    return 0


def _stay(pipeline: Pipeline, wishes: queue.SimpleQueue[str], teller: _Teller) -> str | None:
    """Tell how it goes until somebody wishes something else; None when it ended by itself."""
    while pipeline.is_active:
        teller.tell(Report("running", _describe(pipeline.progress())))
        try:
            return wishes.get(timeout=ATTACHED_S)
        except queue.Empty:
            pipeline.check()
    pipeline.check()
    return None


class _Teller:
    """Tells how it goes: every time to a program, now and then to people."""

    def __init__(self, *, is_attached: bool) -> None:
        self._is_attached = is_attached
        self._told_at = 0.0
        self._state = ""

    def tell(self, report: Report) -> None:
        if self._is_attached:
            sys.stdout.write(json.dumps(asdict(report)) + "\n")
            sys.stdout.flush()
            return
        now = time.monotonic()
        if report.state == self._state and now - self._told_at < STATUS_S:
            return
        self._state, self._told_at = report.state, now
        sys.stderr.write(_status(report) + "\n")


def _describe(progress: dict[str, QueryProgress]) -> dict[str, dict[str, Any]]:
    return {name: each.to_dict() for name, each in progress.items()}


def _status(report: Report) -> str:
    parts = [report.state]
    for name, query in report.queries.items():
        parts.append(
            f"{name}: {query['rows']:,} rows, {query['rows_per_s']:,.0f}/s, "
            f"{query['behind']:,} behind"
        )
    if report.queries:
        parts.append(f"{report.queries['alerts']['output_rows']:,} alerts")
        parts.append(f"{report.queries['windows']['dropped_rows']:,} too late for their window")
    if report.raw_rows is not None:
        parts.append(f"{report.raw_rows:,} rows in Parquet")
    return "; ".join(parts)


def _listen(wishes: queue.SimpleQueue[str]) -> None:
    # Not through sys.stdin: its lock, held by a thread that waits, would be in the way at the end.
    rest = b""
    while data := os.read(0, 1024):
        *lines, rest = (rest + data).split(b"\n")
        if FINISH.encode() in lines:
            wishes.put(FINISH)
    wishes.put(STOP)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="jsonbus-pipeline",
        description="Read sensors from a bridge with Spark: everything into Parquet; mean, minimum "
        "and maximum by windows, and alerts for anomalies, back onto the bus.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--bridge", default=PipelineSettings.bridge, metavar="HOST:PORT")
    add("--topics", default=PipelineSettings.topics, help="patterns, separated by commas")
    add("--output", required=True, metavar="FOLDER", help="where Parquet goes: FOLDER/raw")
    add("--checkpoint", required=True, metavar="FOLDER", help="where the queries keep their place")
    add("--master", default="local[*]", help="Spark's master [local[*]]")
    add("--once", action="store_true", help="process what is in the log, and end")
    add("--window-s", type=float, default=PipelineSettings.window_s, metavar="SECONDS")
    add(
        "--lateness-s",
        type=float,
        default=PipelineSettings.lateness_s,
        metavar="SECONDS",
        help="how late a reading may come and still count",
    )
    add("--low", type=float, metavar="NUMBER", help="alert for readings below")
    add("--high", type=float, metavar="NUMBER", help="alert for readings above")
    add(
        "--deviations",
        type=float,
        default=PipelineSettings.deviations,
        metavar="NUMBER",
        help="alert for readings that many standard deviations from their sensor's recent mean",
    )
    add(
        "--tolerance",
        type=float,
        default=PipelineSettings.tolerance,
        metavar="NUMBER",
        help="no alert for readings closer to that mean",
    )
    add(
        "--baseline-readings-min",
        type=int,
        default=PipelineSettings.baseline_readings_min,
        metavar="N",
        help="a mean of fewer readings judges nobody",
    )
    add("--value-field", default=PipelineSettings.value_field, metavar="NAME")
    add("--time-field", default=PipelineSettings.time_field, metavar="NAME")
    add("--windows-topic", default=PipelineSettings.windows_topic, metavar="TOPIC")
    add("--alerts-topic", default=PipelineSettings.alerts_topic, metavar="TOPIC")
    add(
        "--starting",
        default=PipelineSettings.starting,
        metavar="WHERE",
        help="where a new pipeline begins: earliest, latest, or an ISO time",
    )
    add("--name", default=PipelineSettings.name, help="of its queries, at the bridge")
    add("--token", default=os.environ.get("JSONBUS_BRIDGE_TOKEN"), help="the bridge's")
    add("--trigger-s", type=float, default=PipelineSettings.trigger_s, metavar="SECONDS")
    add("--rows-per-batch-max", type=int, default=PipelineSettings.rows_per_batch_max, metavar="N")
    add(
        "--conf",
        action="append",
        type=_read_setting,
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated",
    )
    add("--by-value", action="store_true", help="send the source's code to executors without it")
    add("--attached", action="store_true", help="run by a program: JSON lines, standard input")
    return parser.parse_args(arguments)


def _read_setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE")
    return key, value


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"Error: {text}\n")
    return code
