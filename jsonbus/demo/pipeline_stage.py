"""The whole pipeline on one machine, from the first process to the verdict.

    sensors ──► bus ──► bridge ──► Spark ──► Parquet
                 ▲                   │
                 └── alerts, windows ┘          and a subscriber here, who sees them

Sensors, bridge and Spark are processes of their own. What they tell, and what comes over the bus,
goes through one inbox into the scene; only the thread that runs the stage touches that. In the end
every station is asked in turn to come to its end: the sensors stop, the bridge has recorded all of
it, Spark has processed all of that, its alerts have arrived. Then the counts have to be equal.
"""

from __future__ import annotations

import json
import math
import queue
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import click

from jsonbus import Bus, BusConfig, Message

from ..cli import signals
from .bridge_watch import BridgeWatch
from .loopback import LOOPBACK, TTL, find_free_port
from .pipeline_commands import bridge_arguments, sensor_arguments, spark_arguments
from .pipeline_scene import SENSORS, TOPIC_PREFIX, PipelineScene, Seen
from .pipeline_script import Script
from .process import Child, end_processes, kill_processes
from .sensor import SensorReport

#: How long to wait for stations that start, or come to their end; more than a busy machine takes.
READY_S_MAX = 300.0
SETTLED_S_MAX = 60.0

#: How often the view is shown something new.
REFRESH_S = 0.2

_SERVES = re.compile(r"\bserves\b.* on (127\.0\.0\.1:\d+)\b")

Condition = Callable[[], bool]


class View(Protocol):
    """Shows the pipeline to people while it runs."""

    def show(self, scene: PipelineScene) -> None:
        """Called some five times a second."""

    def tell(self, scene: PipelineScene, text: str) -> None:
        """Something happened."""


class PipelineStage:
    """Runs the pipeline once. `close` ends its processes; leaving a with block does it, too.

    `keep`: a folder for the log, the Parquet files and the checkpoints, which then stay.
    """

    def __init__(
        self, seconds: float, per_s: float, view: View, *, is_forever: bool, keep: Path | None
    ) -> None:
        self.scene = PipelineScene(seconds, is_forever)
        self._per_s = per_s
        self._view = view
        self._group = BusConfig().group
        self._port = find_free_port()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._opened = ExitStack()
        self._children: list[Child] = []
        self._sensors: dict[str, Child] = {}
        self._job: Child | None = None
        self._started_at = time.monotonic()
        self._shown_from = math.inf
        self._scratch = Path(tempfile.mkdtemp(prefix="jsonbus-demo-"))
        self._data = self._scratch if keep is None else keep.resolve()  # Spark runs elsewhere
        self.scene.bus_address = f"{self._group}:{self._port}"

    def __enter__(self) -> PipelineStage:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(at_once=kind is not None)

    def run(self) -> None:
        """Tell the whole story; forever, if it was asked for, else until all have come to an end.

        Raises ClickException if a station fails.
        """
        self._start_bridge()
        self._start_job()
        self._watch_bus()
        self._start_sensors()
        self._wait_for_spark()
        self._play()
        self._settle()

    def close(self, *, at_once: bool = False) -> None:
        """End all processes and remove what is not to be kept."""
        children, self._children = self._children, []
        try:
            self._opened.close()
            (kill_processes if at_once else end_processes)(children)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    # Beginning

    def _start_bridge(self) -> None:
        self._phase("starting the bridge")
        arguments = bridge_arguments(self._group, self._port, self._data)
        bridge = self._start("bridge", arguments, self._hear_bridge)
        self._wait_for(lambda: bool(self.scene.bridge_address), "the bridge does not serve")
        self._tell(f"the bridge (pid {bridge.pid}) serves on {self.scene.bridge_address}")
        watch = BridgeWatch(
            self.scene.bridge_address, lambda stats: self._inbox.put(lambda: self._note(stats))
        )
        self._opened.callback(watch.stop)

    def _start_job(self) -> None:
        temporary = self._scratch / "tmp"
        temporary.mkdir()
        self._job = self._start(
            "spark",
            spark_arguments(self.scene.bridge_address, self._data, temporary),
            self._hear_job,
            folder=temporary,
            environment={"TMPDIR": str(temporary)},
        )
        self._tell(f"Spark (pid {self._job.pid}) starts: that takes a while")

    def _watch_bus(self) -> None:
        bus = self._opened.enter_context(
            Bus(group=self._group, port=self._port, interface=LOOPBACK, ttl=TTL, name="subscriber")
        )
        bus.subscribe("alerts/**", lambda message: self._inbox.put(lambda: self._alert(message)))
        bus.subscribe("windows/**", lambda message: self._inbox.put(lambda: self._window(message)))

    def _start_sensors(self) -> None:
        self._phase("starting the sensors")
        for name, value in SENSORS.items():
            per_s = self._per_s / len(SENSORS)
            arguments = sensor_arguments(self._group, self._port, name, value, per_s)
            self._sensors[name] = self._start(
                name,
                arguments,
                lambda line, name=name: self._hear_sensor(name, line),  # type: ignore[misc]
            )
        pids = ", ".join(f"{each.name} (pid {each.pid})" for each in self._sensors.values())
        self._tell(f"the sensors start: {pids}")
        reports = self.scene.sensors
        self._wait_for(
            lambda: all(each.published for each in reports.values()), "a sensor does not publish"
        )
        self._tell(f"{len(reports)} sensors publish, {self._per_s:,.0f} readings a second")

    def _wait_for_spark(self) -> None:
        self._phase("waiting for Spark's first results")
        scene = self.scene
        self._wait_for(
            lambda: (
                scene.watermark > 0
                and all(scene.queries[name]["batches"] for name in ("raw", "windows", "alerts"))
            ),
            "Spark has no results",
        )
        self._tell("Spark has its first results")

    # The show

    def _play(self) -> None:
        self._phase("running")
        self._shown_from = time.monotonic()
        script = Script(self.scene, self._wish, self._tell)
        self._run_until(script.go_on)

    def _wish(self, sensor: str, wish: dict[str, Any]) -> None:
        self._sensors[sensor].tell(json.dumps(wish))

    # The end

    def _settle(self) -> None:
        """Bring the stations to their ends, one after the other."""
        scene, job = self.scene, self._job
        assert job is not None
        self._phase("stopping the sensors")
        for name in self._sensors:
            self._wish(name, {"wish": "stop"})
        self._wait_for(
            lambda: all(each.has_stopped for each in scene.sensors.values()),
            "the sensors do not stop",
        )
        self._phase("waiting for the bridge to record everything")
        self._give_time(lambda: scene.recorded == scene.published)
        self._phase("waiting for Spark to process everything")
        job.tell("finish")
        self._children.remove(job)  # whose end is no failure now
        self._opened.callback(kill_processes, [job])
        self._wait_for(lambda: job.has_ended, "Spark does not come to its end")
        if job.exit_code:
            raise click.ClickException(f"Spark failed: {job.complaint}")
        self._phase("waiting for the last alerts")
        counts = scene.counts
        self._give_time(
            lambda: (
                counts().alerts_seen == counts().alerts_published
                and counts().in_windows + (counts().dropped or 0) == counts().published
            )
        )
        self._phase("done")

    # What stations tell, in their threads: the inbox takes it to ours.

    def _hear_bridge(self, line: str) -> bool:
        found = _SERVES.search(line)
        if found is None:
            return False
        address = found[1]
        self._inbox.put(lambda: setattr(self.scene, "bridge_address", address))
        return True

    def _hear_sensor(self, name: str, line: str) -> bool:
        try:
            report = SensorReport.from_line(line)
        except ValueError:
            return False

        def note() -> None:
            self.scene.sensors[name] = report
            self.scene.sensor_rates[name].note(report.published)

        self._inbox.put(note)
        return True

    def _hear_job(self, line: str) -> bool:
        if not line.startswith('{"state"'):
            return False
        report = json.loads(line)

        def note() -> None:
            scene = self.scene
            scene.job_state = report["state"]
            if report["queries"]:
                scene.queries = report["queries"]
                for name, query in scene.queries.items():
                    scene.query_rates[name].note(query["rows"])
            scene.raw_rows, scene.raw_messages = report["raw_rows"], report["raw_messages"]

        self._inbox.put(note)
        return True

    # And in ours.

    def _note(self, stats: dict[str, Any]) -> None:
        self.scene.bridge = stats
        self.scene.bridge_rate.note(self.scene.recorded or 0)

    def _alert(self, message: Message) -> None:
        value = message.value
        sensor = value["sensor"].removeprefix(TOPIC_PREFIX)
        after_s = message.received_at - datetime.fromisoformat(value["at"]).timestamp()
        alert = Seen(message.received_at, message.topic, value["value"], value.get("mean"), after_s)
        self.scene.alerts.append(alert)
        self.scene.alert_counts[sensor] += 1
        self.scene.alert_delays_s.append(after_s)

    def _window(self, message: Message) -> None:
        self.scene.note_window(message.topic.rpartition("/")[2], message.value)

    # Waiting

    def _start(
        self, name: str, arguments: list[str], hear: Callable[[str], bool], **where: Any
    ) -> Child:
        child = Child(name, arguments, hear, **where)
        self._children.append(child)
        return child

    def _wait_for(self, condition: Condition, failure: str) -> None:
        give_up_at = time.monotonic() + READY_S_MAX
        self._run_until(lambda: condition() or time.monotonic() >= give_up_at)
        if not condition():
            raise click.ClickException(f"{failure} after {READY_S_MAX:g} s")

    def _give_time(self, condition: Condition) -> None:
        """Wait, but not for ever: the verdict tells what is missing."""
        give_up_at = time.monotonic() + SETTLED_S_MAX
        self._run_until(lambda: condition() or time.monotonic() >= give_up_at)

    def _run_until(self, condition: Condition) -> None:
        """Take in what comes and show it until the condition holds."""
        show_at = time.monotonic()
        while not condition():
            self._take(REFRESH_S / 4)
            now = time.monotonic()
            if now >= show_at:
                signals.check()
                self._check_children()
                self._note_time(now)
                self._view.show(self.scene)
                show_at = now + REFRESH_S

    def _take(self, timeout_s: float) -> None:
        """Take in all that is there."""
        try:
            self._inbox.get(timeout=timeout_s)()
            while True:
                self._inbox.get(block=False)()
        except queue.Empty:
            pass

    def _check_children(self) -> None:
        for each in self._children:
            if each.has_ended:
                each.forget()  # so that its last words are here
                raise click.ClickException(f"the process {each.name} failed: {each.complaint}")

    def _note_time(self, now: float) -> None:
        self.scene.elapsed_s = now - self._started_at
        self.scene.shown_s = max(0.0, now - self._shown_from)

    def _phase(self, text: str) -> None:
        self.scene.phase = text
        self._view.show(self.scene)

    def _tell(self, text: str) -> None:
        self._note_time(time.monotonic())
        self.scene.events.append((self.scene.elapsed_s, text))
        self._view.tell(self.scene, text)
