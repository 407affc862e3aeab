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

from ..spark import JavaNotFoundError, session
from ..spark.supervisor import first_line
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
        return _complain(first_line(error), 1)
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
    places = _Group(parser, "where from, where to")
    places.setting("--bridge", "", "HOST:PORT")
    token = os.environ.get("JSONBUS_BRIDGE_TOKEN")
    text = "the bridge's, if it has one [$JSONBUS_BRIDGE_TOKEN]"
    places.add("--token", default=token, help=text)
    places.add("--tls", action="store_true", help="speak TLS with the bridge")
    places.setting("--tls-ca", "of its certificate; without, those of this machine", "FILE")
    places.setting("--topics", "patterns, comma-separated")
    places.setting(
        "--starting", "where a new pipeline begins: earliest, latest, or an ISO time", "WHERE"
    )
    places.add("--output", required=True, metavar="FOLDER", help="for Parquet, in FOLDER/raw")
    text = "where queries keep their place"
    places.add("--checkpoint", required=True, metavar="FOLDER", help=text)
    places.setting("--windows-topic", "before the topic", "TOPIC")
    places.setting("--alerts-topic", "before the topic", "TOPIC")

    rules = _Group(parser, "readings, windows, anomalies")
    rules.setting("--value-field", "the number, in objects", "NAME")
    rules.setting("--time-field", "when it was taken, in objects", "NAME")
    rules.setting("--window-s", "how long a window is", "SECONDS")
    rules.setting("--lateness-s", "how late a reading may come and still count", "SECONDS")
    rules.setting("--low", "alert for readings below", "NUMBER")
    rules.setting("--high", "alert for readings above", "NUMBER")
    text = "alert for readings so many standard deviations from their sensor's recent mean"
    rules.setting("--deviations", text, "NUMBER")
    rules.setting("--tolerance", "but not for those that are closer to the mean", "NUMBER")
    rules.setting("--baseline-readings-min", "a mean of fewer readings judges nobody", "N")

    running = _Group(parser, "how it runs")
    running.add("--once", action="store_true", help="process what is in the log, and end")
    running.add("--master", default="local[*]", help="Spark's master [local[*]]")
    text = "a setting of Spark; may be repeated"
    conf: dict[str, Any] = {"action": "append", "type": _read_setting, "default": []}
    running.add("--conf", **conf, metavar="KEY=VALUE", help=text)
    text = "send the source's code to executors without it"
    running.add("--by-value", action="store_true", help=text)
    running.setting("--trigger-s", "a batch begins so often, at most", "SECONDS")
    running.setting("--rows-per-batch-max", "", "N")
    running.setting("--name", "of its queries, at the bridge")
    text = "for a program that runs this one: JSON lines tell how it goes"
    running.add("--attached", action="store_true", help=text)
    return parser.parse_args(arguments)


class _Group:
    """A group of options in the help."""

    def __init__(self, parser: argparse.ArgumentParser, title: str) -> None:
        self.add = parser.add_argument_group(title).add_argument

    def setting(self, option: str, text: str, metavar: str | None = None) -> None:
        """Add an option with the type and the default of the setting that it is named after."""
        name = option[2:].replace("-", "_")
        default = getattr(PipelineSettings, name)
        annotation = PipelineSettings.__annotations__[name]
        kind = {"float": float, "int": int}.get(annotation.split()[0], str)
        if default is not None:
            text = f"{text} [{default if kind is str else format(default, 'g')}]".strip()
        self.add(option, type=kind, default=default, metavar=metavar, help=text)


def _read_setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE")
    return key, value


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"Error: {text}\n")
    return code
