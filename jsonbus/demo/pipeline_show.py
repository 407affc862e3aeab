"""`jsonbus demo`: the whole pipeline on this machine, from the first process to the verdict.

    sensors ──► bus ──► bridge ──► Spark ──► Parquet
                 ▲                   │
                 └── alerts, windows ┘          and a subscriber in this process sees them

Sensors, bridge and Spark are processes of their own. At the end each station in turn finishes its
work: the sensors stop, the bridge has recorded everything, Spark has processed all of that, its
alerts have arrived. Then the counts must be equal.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import statistics
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from jsonbus import Bus, Message
from spark_bridge import wire

from .pipeline_scene import (
    QUERIES,
    SENSORS,
    TOPIC_PREFIX,
    Alert,
    Check,
    PipelineScene,
    verify,
)  # fmt: skip
from .processes import LOOPBACK, TTL, Child, DemoError, kill_processes
from .script import Script
from .sensor import BASELINE_READINGS_MIN, LATENESS_S, WINDOW_S, Report, Wish
from .stage import Stage
from .view import View

INTRODUCTION = (
    f"{len(SENSORS)} sensors publish on the bus; a bridge records them; Spark reads the bridge, "
    "writes Parquet, and publishes windows and alerts on the bus. All on loopback."
)

#: Seconds to wait for the last readings and alerts; the verdict then says what is missing.
SETTLED_S_MAX = 60.0

#: What a thermometer can show, and how far it is from its mean when all is well.
LOW, HIGH = -40.0, 85.0
TOLERANCE = 5.0

#: The path of a unix socket has 107 characters at most, and its name 42.
SOCKET_FOLDER_CHARACTERS_MAX = 60

#: How often the bridge is asked for its figures, and how long a busy one may take to answer.
STATS_S = 0.5
STATS_TIMEOUT_S = 10.0

_SERVES = re.compile(r"\bserves\b.* on (127\.0\.0\.1:\d+)\b")


class PipelineStage(Stage[PipelineScene]):
    """Runs the pipeline once.

    `keep` is a folder for the log, the Parquet files and the checkpoints, which then stay.
    """

    def __init__(
        self,
        scene: PipelineScene,
        view: View,
        check: Callable[[], None],
        *,
        per_s: float,
        keep: Path | None,
    ) -> None:
        super().__init__(scene, view, check)
        self._per_s = per_s
        self._opened = ExitStack()
        self._scratch = Path(tempfile.mkdtemp(prefix="jsonbus-demo-"))
        self._data = self._scratch if keep is None else keep.resolve()  # Spark runs elsewhere

    def close(self, *, is_at_once: bool = False) -> None:
        try:
            self._opened.close()
            super().close(is_at_once=is_at_once)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self) -> None:
        """Run the whole show, or until Ctrl-C. Raises DemoError if a process fails."""
        self._start_bridge()
        job = self._start_job()
        self._join_bus()
        self._start_sensors()
        self._wait_for_spark()
        self._phase("running")
        self.begin_show()
        self.run_until(Script(self.scene, self._wish, self.tell).advance)
        self._settle(job)

    # Beginning

    def _start_bridge(self) -> None:
        self._phase("starting the bridge")
        arguments = bridge_arguments(self.group, self.port, self._data)
        self.start("bridge", arguments, self._hear_bridge)
        self.wait_for(lambda: bool(self.scene.bridge_address), "the bridge does not serve")
        self.tell(f"the {self.describe(['bridge'])} serves on {self.scene.bridge_address}")
        is_over = threading.Event()
        thread = threading.Thread(
            target=poll_bridge,
            args=(self.scene.bridge_address, self._hear_stats, is_over),
            name="jsonbus-demo-bridge-stats",
            daemon=True,
        )
        thread.start()
        self._opened.callback(thread.join)
        self._opened.callback(is_over.set)

    def _start_job(self) -> Child:
        temporary = self._scratch / "tmp"
        temporary.mkdir()
        job = self.start(
            "spark",
            spark_arguments(self.scene.bridge_address, self._data, temporary),
            self._hear_job,
            folder=temporary,
            environment={"TMPDIR": str(temporary)},
        )
        self.tell(f"Spark (pid {job.pid}) starts: that takes a while")
        return job

    def _join_bus(self) -> None:
        bus = self._opened.enter_context(
            Bus(group=self.group, port=self.port, interface=LOOPBACK, ttl=TTL, name="subscriber")
        )
        bus.subscribe("alerts/**", lambda message: self.post(lambda: self._take_alert(message)))
        bus.subscribe("windows/**", lambda message: self.post(lambda: self._take_window(message)))

    def _start_sensors(self) -> None:
        self._phase("starting the sensors")
        for name, value in SENSORS.items():
            topics, per_s = {TOPIC_PREFIX + name: value}, self._per_s / len(SENSORS)
            self.start_node(name, is_reliable=True, publishes=topics, per_s=per_s)
        self.tell(f"the sensors start: {self.describe(list(SENSORS))}")
        reports = self.scene.reports
        self.wait_for(
            lambda: all(name in reports and reports[name].sent for name in SENSORS),
            "a sensor does not publish",
        )
        self.tell(f"{len(SENSORS)} sensors publish, {self._per_s:,.0f} readings a second")

    def _wait_for_spark(self) -> None:
        self._phase("waiting for Spark's first results")
        scene = self.scene
        self.wait_for(
            lambda: scene.watermark > 0 and all(scene.queries[name]["batches"] for name in QUERIES),
            "Spark has no results",
        )
        self.tell("Spark has its first results")

    # The end

    def _settle(self, job: Child) -> None:
        """Let the stations finish, one after the other."""
        scene = self.scene
        self._phase("stopping the sensors")
        for name in SENSORS:
            self._wish(name, {"wish": "stop"})
        self.wait_for(
            lambda: all(each.has_stopped for each in scene.reports.values()),
            "the sensors do not stop",
        )
        self._phase("waiting for the bridge to record everything")
        self.wait(lambda: scene.recorded == scene.published, SETTLED_S_MAX)
        self._phase("waiting for Spark to process everything")
        job.write_line("finish")
        del self.children["spark"]  # its end is not a failure now
        self._opened.callback(kill_processes, [job])
        self.wait_for(lambda: job.exit_code is not None, "Spark does not finish")
        if job.exit_code:
            raise DemoError(f"Spark failed: {job.complaint}")
        self._phase("waiting for the last alerts")

        def is_complete() -> bool:
            counts = scene.counts
            return (
                counts.alerts_seen == counts.alerts_published
                and counts.in_windows + (counts.dropped or 0) == counts.published
            )

        self.wait(is_complete, SETTLED_S_MAX)
        self._phase("done")

    def _wish(self, sensor: str, wish: Wish) -> None:
        self.children[sensor].write_line(json.dumps(wish))

    def _phase(self, text: str) -> None:
        self.scene.phase = text
        self.view.log(self.scene, text)
        self.view.show(self.scene)

    # Reports, in other threads: they post them to the thread of the stage.

    def _hear_bridge(self, line: str) -> bool:
        found = _SERVES.search(line)
        if found is not None:
            self.post(lambda: setattr(self.scene, "bridge_address", found[1]))
        return found is not None

    def _hear_job(self, line: str) -> bool:
        is_report = line.startswith('{"state"')
        if is_report:
            self.post(lambda: self._take_job(json.loads(line)))
        return is_report

    def _hear_stats(self, stats: dict[str, Any]) -> None:
        self.post(lambda: self._take_stats(stats))

    # Reports, in the thread of the stage.

    def take_report(self, name: str, report: Report) -> None:
        super().take_report(name, report)
        self.scene.rates[name].note(report.sent)

    def _take_stats(self, stats: dict[str, Any]) -> None:
        self.scene.bridge = stats
        self.scene.rates["bridge"].note(self.scene.recorded or 0)

    def _take_job(self, report: dict[str, Any]) -> None:
        scene = self.scene
        scene.job_state = report["state"]
        if report["queries"]:
            scene.queries = report["queries"]
            for name, query in scene.queries.items():
                scene.rates[name].note(query["rows"])
        scene.raw_rows, scene.raw_messages = report["raw_rows"], report["raw_messages"]

    def _take_alert(self, message: Message) -> None:
        value = message.value
        delay_s = message.received_at - datetime.fromisoformat(value["at"]).timestamp()
        mean = value.get("mean")
        alert = Alert(message.received_at, message.topic, value["value"], mean, delay_s)
        self.scene.note_alert(value["sensor"].removeprefix(TOPIC_PREFIX), alert)
        self.view.log(self.scene, f"on the bus: {alert}")

    def _take_window(self, message: Message) -> None:
        self.scene.note_window(message.topic.rpartition("/")[2], message.value)


def show_pipeline(
    seconds: float,
    per_s: float,
    view: View,
    check: Callable[[], None],
    *,
    is_forever: bool,
    keep: Path | None,
) -> bool:
    """Run the pipeline and compare the counts. Return True if all are equal.

    Raises DemoError if a process fails.
    """
    view.print(INTRODUCTION, style="dim")
    scene = PipelineScene(seconds, is_forever)
    try:
        with PipelineStage(scene, view, check, per_s=per_s, keep=keep) as stage:
            stage.run()
    finally:
        view.end(scene)
    checks = verify(scene.counts)
    summarize(scene, checks, view)
    return all(check.holds for check in checks)


def summarize(scene: PipelineScene, checks: Sequence[Check], view: View) -> None:
    """Print the counts that must be equal, and the verdict."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left", "left", "right"):
        table.add_column(no_wrap=True, justify=justify)
    for check in checks:
        count, other_count = (
            "unknown" if each is None else f"{each:,}" for each in (check.count, check.other_count)
        )
        sign, style = ("=", "green") if check.holds else ("≠", "bold red")
        other = (check.other, Text(other_count, style))
        table.add_row(check.what, Text(count, "bold"), Text(sign, style), *other)
    view.print("", table, "")
    is_well = all(check.holds for check in checks)
    view.print(*conclusions(scene, checks), style="" if is_well else "bold red")


def conclusions(scene: PipelineScene, checks: Sequence[Check]) -> list[str]:
    """Return what the figures mean, in a few sentences."""
    wrong = [each for each in checks if not each.holds]
    if wrong:
        return [f"WRONG: {len(wrong)} of {len(checks)} pairs of counts differ."]
    lines = [
        f"All {len(checks)} pairs of counts are equal: of {scene.published:,} readings none was "
        f"lost, none came twice, and {scene.late_in_time} late ones were counted in their windows."
    ]
    delays_s = scene.alert_delays_s
    if delays_s:
        lines.append(
            f"Alerts were back on the bus {statistics.median(delays_s):.1f} s after the reading "
            f"(median of {len(delays_s)})."
        )
    return lines


def bridge_arguments(group: str, port: int, data: Path) -> list[str]:
    """Return the command of a bridge that records the sensors and listens on loopback."""
    return [
        *(f"{__package__}.processes", "jsonbus"),
        *("bridge", f"{TOPIC_PREFIX}**", "--listen", f"{LOOPBACK}:0"),
        *("--data-dir", str(data / "log"), "--partitions", "2"),
        *("--group", group, "--port", str(port)),
        *("--interface", LOOPBACK, "--ttl", str(TTL), "--name", "bridge"),
    ]


def spark_arguments(bridge: str, data: Path, temporary: Path) -> list[str]:
    """Return the command of the streaming job; its temporary files go into `temporary`."""
    # A short life: the compiler that starts fast, and no files left behind.
    java = f'-Djava.io.tmpdir="{temporary}" -XX:TieredStopAtLevel=1 -XX:-UsePerfData'
    conf = {
        "spark.driver.extraJavaOptions": java,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(temporary),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
    }
    if len(str(temporary)) > SOCKET_FOLDER_CHARACTERS_MAX:
        conf["spark.python.unix.domain.socket.enabled"] = "false"
    return [
        *("spark_bridge.pipeline", "--attached", "--bridge", bridge),
        *("--topics", f"{TOPIC_PREFIX}**", "--output", str(data / "output")),
        *("--checkpoint", str(data / "checkpoint"), "--master", "local[2]"),
        *("--window-s", str(WINDOW_S), "--lateness-s", str(LATENESS_S)),
        *(f"--low={LOW}", f"--high={HIGH}", "--tolerance", str(TOLERANCE)),
        *("--baseline-readings-min", str(BASELINE_READINGS_MIN)),
        *(f"--conf={key}={value}" for key, value in conf.items()),
    ]


def poll_bridge(
    address: str, take: Callable[[dict[str, Any]], None], is_over: threading.Event
) -> None:
    """Call `take` with the bridge's figures until `is_over`. Returns when the bridge has gone."""
    host, _, port = address.rpartition(":")
    hello = {"op": "hello", "version": wire.VERSION, "client": "jsonbus demo"}
    with (
        suppress(OSError, EOFError),
        socket.create_connection((host, int(port)), STATS_TIMEOUT_S) as connection,
        connection.makefile("rb") as replies,
    ):

        def ask(request: dict[str, Any]) -> dict[str, Any]:
            connection.sendall(wire.encode(request))
            head = replies.read(wire.LENGTH.size)
            if len(head) < wire.LENGTH.size:
                raise EOFError
            return wire.decode(replies.read(wire.LENGTH.unpack(head)[0]))

        connection.sendall(wire.MAGIC)
        ask(hello)
        while not is_over.wait(STATS_S):
            take(ask({"op": "stats"}))
