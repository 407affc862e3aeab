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

#: How often progress is reported: to a program, to people.
ATTACHED_S = 0.5
STATUS_S = 10.0

#: What ends the wait for the next progress report.
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
    """A line of the report that --attached prints."""

    #: starting, running, finishing, finished
    state: str
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: When it is finished: rows in Parquet, and how many of them are distinct messages.
    raw_rows: int | None = None
    raw_messages: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parse(arguments)
    try:
        settings = PipelineSettings(
            **{name: getattr(options, name) for name in PipelineSettings.__dataclass_fields__}
        )
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        return _complain(f"--{name.replace('_', '-')} {rest}", 2)
    warnings.filterwarnings("ignore", module=r"pyspark\b")  # Spark's warnings about itself
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
    except Exception as error:  # Spark's errors have no common base, and contain a Java trace
        return _complain(_first_line(error), 1)
    finally:
        pipeline.stop()
        spark.stop()
    return 0


def _stay(pipeline: Pipeline, wishes: queue.SimpleQueue[str], teller: _Teller) -> str | None:
    """Report progress until somebody asks for something else; return None when it ended by
    itself.
    """
    while pipeline.is_active:
        teller.tell(Report("running", _describe(pipeline.progress())))
        try:
            return wishes.get(timeout=ATTACHED_S)
        except queue.Empty:
            pipeline.check()
    pipeline.check()
    return None


class _Teller:
    """Reports progress: every time to a program, now and then to people."""

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
    # Not through sys.stdin: its lock, held by a waiting thread, would block the end.
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
    _add_places(parser)
    _add_rules(parser)
    _add_running(parser)
    return parser.parse_args(arguments)


def _add_places(parser: argparse.ArgumentParser) -> None:
    """Options: where it reads and writes."""
    add = parser.add_argument_group("where from, where to").add_argument
    default = PipelineSettings
    add("--bridge", default=default.bridge, metavar="HOST:PORT", help=f"[{default.bridge}]")
    token = os.environ.get("JSONBUS_BRIDGE_TOKEN")
    add("--token", default=token, help="the bridge's, if it has one [$JSONBUS_BRIDGE_TOKEN]")
    add("--topics", default=default.topics, help=f"patterns, comma-separated [{default.topics}]")
    starting = "where a new pipeline begins: earliest, latest, or an ISO time [earliest]"
    add("--starting", default=default.starting, metavar="WHERE", help=starting)
    add("--output", required=True, metavar="FOLDER", help="for Parquet, in FOLDER/raw")
    add("--checkpoint", required=True, metavar="FOLDER", help="where queries keep their place")
    windows, alerts = default.windows_topic, default.alerts_topic
    add("--windows-topic", default=windows, metavar="TOPIC", help=f"before the topic [{windows}]")
    add("--alerts-topic", default=alerts, metavar="TOPIC", help=f"before the topic [{alerts}]")


def _add_rules(parser: argparse.ArgumentParser) -> None:
    """Options: what counts as a reading, a window, an anomaly."""
    add = parser.add_argument_group("readings, windows, anomalies").add_argument
    default = PipelineSettings

    def add_number(option: str, text: str, kind: type = float, metavar: str = "NUMBER") -> None:
        usual = getattr(default, option[2:].replace("-", "_"))
        shown = f"{text} [{usual:g}]" if usual is not None else text
        add(option, type=kind, default=usual, metavar=metavar, help=shown)

    value, at = default.value_field, default.time_field
    add("--value-field", default=value, metavar="NAME", help=f"the number, in objects [{value}]")
    add("--time-field", default=at, metavar="NAME", help=f"when it was taken, in objects [{at}]")
    add_number("--window-s", "how long a window is", metavar="SECONDS")
    add_number("--lateness-s", "how late a reading may come and still count", metavar="SECONDS")
    add_number("--low", "alert for readings below")
    add_number("--high", "alert for readings above")
    far = "alert for readings so many standard deviations from their sensor's recent mean"
    add_number("--deviations", far)
    add_number("--tolerance", "but not for those that are closer to the mean")
    few = "a mean of fewer readings judges nobody"
    add_number("--baseline-readings-min", few, kind=int, metavar="N")


def _add_running(parser: argparse.ArgumentParser) -> None:
    """Options: how it runs."""
    add = parser.add_argument_group("how it runs").add_argument
    default = PipelineSettings
    add("--once", action="store_true", help="process what is in the log, and end")
    add("--master", default="local[*]", help="Spark's master [local[*]]")
    add(
        "--conf",
        action="append",
        type=_read_setting,
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated",
    )
    add("--by-value", action="store_true", help="send the source's code to executors without it")
    add(
        "--trigger-s",
        type=float,
        default=default.trigger_s,
        metavar="SECONDS",
        help=f"a batch begins so often, at most [{default.trigger_s:g}]",
    )
    add(
        "--rows-per-batch-max",
        type=int,
        default=default.rows_per_batch_max,
        metavar="N",
        help=f"[{default.rows_per_batch_max}]",
    )
    add("--name", default=default.name, help=f"of its queries, at the bridge [{default.name}]")
    attached = "for a program that runs this one: JSON lines tell how it goes"
    add("--attached", action="store_true", help=attached)


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
