"""The benchmarks measure what they say: counts add up, ratios are right. Times are not tested."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

# The benchmarks are scripts, which import each other by bare name.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import bench_bus
import bench_chart
import bench_wire
from bench_alone import measure_memory, measure_unwanted, resident_mb
from bench_arena import INSIDE, Arena
from bench_floods import Plan
from bench_floor import Batcher, take_batches
from bench_flow import Credit, Tally, make_slots, open_slots
from bench_growth import measure_growth
from bench_load import UNKNOWN
from bench_measures import Measure, Sample, Target
from bench_report import make_rows, make_summary, make_table
from bench_run import Run, RunError, cpu_clock_s, window_for
from bench_spec import SENSOR, SENSOR_BYTES, make_value

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CPU clocks of other processes are Linux's"
)

PLAN = Plan(
    repetitions=1,
    messages=400,
    subscribers=2,
    latency_messages=20,
    load_s=0.1,
    memory_messages=400,
    growth_topics=(1, 10),
    growth_nodes=(1, 10),
    peers=(),
)


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Arena:
    monkeypatch.delenv(INSIDE, raising=False)
    return Arena()


@pytest.mark.parametrize("system", ["raw", "raw-1400", "raw-60k", "jsonbus", "jsonbus-aio"])
def test_every_message_of_a_flood_is_counted(arena: Arena, system: str) -> None:
    with Run(arena, system) as run:
        run.probe()
        first, second = run.flood(3_000), run.flood(500)
    assert (first.sent, first.received) == (3_000, (3_000,))
    assert (second.sent, second.received) == (500, (500,))
    assert second.publisher_cpu_s > 0 and second.subscribers_cpu_s > 0 and second.wall_s > 0


def test_each_of_several_subscribers_gets_the_flood(arena: Arena) -> None:
    with Run(arena, "jsonbus", subscribers=3) as run:
        run.probe()
        flood = run.flood(500)
    assert flood.received == (500, 500, 500)
    assert flood.deliveries == 1_500


@pytest.mark.parametrize("system", ["raw", "jsonbus"])
def test_a_delay_is_taken_of_every_value_with_an_instant(arena: Arena, system: str) -> None:
    with Run(arena, system, has_stamps=True) as run:
        run.probe()
        run.begin(20)
        run.publisher.ask("tick", count=20, rate=1_000)
        (report,) = run.settle(20)
    assert report["received"] == 20
    assert len(report["delays_ns"]) == 20
    assert all(delay_ns > 0 for delay_ns in report["delays_ns"])


def test_what_a_small_buffer_loses_is_counted_to_the_last_message(arena: Arena) -> None:
    with Run(arena, "jsonbus", receive_buffer_bytes=65_536, handler_us=20.0, mailbox=64) as run:
        run.probe()
        run.begin(UNKNOWN)
        run.publisher.ask("offer", rate=0, seconds=0.1)
        run.settle(UNKNOWN)
        published, (report,) = run.close()
    stats = report["stats"]
    handled, dropped = report["received_ever"], stats["messages_dropped"]
    assert published["messages_sent"] == handled + stats["messages_lost"] + dropped


def test_unwanted_messages_reach_the_receiver_that_refuses_them(arena: Arena) -> None:
    ours, bare = measure_unwanted(arena, PLAN)
    assert (ours.row, bare.row) == ("jsonbus", "bare-recv")
    assert ours.extra["received"] == ours.extra["sent"] > 0


def test_memory_is_read_while_messages_come(arena: Arena) -> None:
    samples = {sample.row: sample for sample in measure_memory(arena, PLAN)}
    assert samples["at the end"].extra["received"] == 400
    assert samples["at the end"].value > 1
    assert resident_mb(os.getpid()) > 1


def test_growth_is_measured_at_every_size(arena: Arena) -> None:
    sizes = [(sample.measure, sample.row) for sample in measure_growth(arena, PLAN)]
    topics, nodes = "growth-topics", "growth-nodes"
    assert sizes == [(topics, "1"), (topics, "10"), (nodes, "1"), (nodes, "10")]


def test_a_process_that_fails_is_told_with_its_last_words(arena: Arena) -> None:
    with pytest.raises(RunError, match="no-such-system"):
        Run(arena, "no-such-system")


def test_a_publisher_has_no_more_messages_under_way_than_its_window() -> None:
    slots, under_way = _make_slots(2), []
    credit = Credit(slots, window=16)
    credit.begin()
    published = 0

    def handle_all() -> None:
        # Called before it would wait: the subscribers catch up.
        under_way.append(published - min(slots))
        slots[0] = slots[1] = published

    for chunk in credit.chunks(100, handle_all):
        published += chunk
        slots[0] = published  # one is always up to date: the slowest counts
    assert published == 100
    assert under_way and max(under_way) <= 16


def test_a_subscriber_tells_how_far_it_is_and_when_all_has_come() -> None:
    slots = _make_slots(1)
    tally = Tally(slots, 0, window=80, has_stamps=False, handler_us=0.0)
    handle = tally.handler(lambda message: message)
    handle("probe")
    assert slots[0] == 1
    tally.begin(25)
    told = []
    for _ in range(25):
        handle("message")
        told.append(slots[0])
    assert sorted(set(told)) == [1, 11, 21, 26]
    report = tally.report()
    assert (report["received"], report["received_ever"]) == (25, 26)
    assert report["ended_at"] is not None


def test_a_floor_batches_every_message_within_its_datagrams() -> None:
    datagrams: list[bytes] = []
    batcher = Batcher(datagrams.append, 1_400)
    batcher.put("a", SENSOR, 100)
    batcher.put("b", SENSOR, 50)
    batcher.push()
    batcher.push()
    received: dict[str, list[object]] = {"a": [], "b": []}
    missing = take_batches(datagrams, {name: received[name].append for name in received})
    assert (len(received["a"]), len(received["b"]), missing) == (100, 50, 0)
    assert received["a"][0] == SENSOR
    assert max(map(len, datagrams)) <= 1_400
    assert take_batches([datagrams[0], datagrams[2]], {"a": id, "b": id}) > 0


@pytest.mark.parametrize("size_bytes", [SENSOR_BYTES, 1_024, 1_600, 16_384])
def test_values_have_exactly_the_size_asked_for(size_bytes: int) -> None:
    assert len(json.dumps(make_value(size_bytes), separators=(",", ":"))) == size_bytes


def test_the_window_fits_the_receive_buffer() -> None:
    assert window_for(74, 4 << 20) == 2_048
    assert window_for(16_384, 4 << 20) == 128
    assert window_for(74, 208 << 10) < 208


def test_the_cpu_clock_of_a_process_is_its_own() -> None:
    assert 0 < cpu_clock_s(os.getpid()) <= cpu_clock_s(os.getpid())


def test_a_ratio_compares_within_one_repetition_and_decides_about_the_target() -> None:
    measures = {"flood": Measure("flood", "µs", ("floor",), {"ours": Target(2.0)})}
    pairs = [(1.0, 1.9), (10.0, 19.0), (100.0, 300.0)]
    samples = [
        Sample("flood", row, value, {"received": 9, "sent": 9})
        for pair in pairs
        for row, value in zip(("floor", "ours"), pair, strict=True)
    ]
    rows = make_rows(samples, measures)
    floor, ours = rows["flood"]
    assert (floor.median, ours.median) == (10.0, 19.0)
    assert ours.ratio("floor") == pytest.approx(1.9)
    assert (floor.is_met, ours.is_met) == (None, True)
    table = make_table(measures["flood"], rows["flood"])
    assert "| ours  | 19 | 1.90 – 300 |      all |    1.90 |  ≤ 2 × | ✓ |" in table
    summary = make_summary(rows, measures)
    assert "ours" in summary and "1.90 ×" in summary and "✓" in summary


def test_a_loss_shows_in_the_table() -> None:
    measures = {"flood": Measure("flood", "µs")}
    samples = [Sample("flood", "ours", 1.5, {"received": 7, "sent": 9})]
    table = make_table(measures["flood"], make_rows(samples, measures)["flood"])
    assert "7 of 9" in table


def test_every_loop_of_the_wire_benchmark_runs(tmp_path: Path) -> None:
    result = tmp_path / "wire.json"
    arguments = ["--messages", "120", "--repetitions", "1", "--json", str(result)]
    assert bench_wire.main(arguments) == 0
    measures = json.loads(result.read_text())["measures"]
    shown = {name: [row["row"] for row in measures[name]["rows"]] for name in measures}
    assert shown == {name: list(loops) for name, loops in bench_wire.LOOPS.items()}


def test_one_loop_alone_runs_for_an_instruction_counter() -> None:
    assert bench_wire.main(["--loop", "node-receive", "--messages", "120", "--prepare", "240"]) == 0


def test_the_bus_benchmark_writes_a_table_and_all_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, chart = tmp_path / "bus.json", tmp_path / "bus.png"
    arguments = ["--here", "--only", "start,growth", "--quick", "--messages", "400", "--peers", ""]
    assert bench_bus.main([*arguments, "--json", str(result), "--chart", str(chart)]) == 0
    measures = json.loads(result.read_text())["measures"]
    assert list(measures) == ["start", "growth-topics", "growth-nodes"]
    assert measures["start"]["rows"][0].keys() >= {"median", "least", "most", "target", "is_met"}
    shown = capsys.readouterr()
    assert "### CPU to import jsonbus and open a bus" in shown.out
    assert "### Targets" in shown.out
    obstacle = bench_chart.find_obstacle()
    assert chart.exists() == (obstacle is None)
    assert ("no chart" in shown.err) == (obstacle is not None)


@pytest.mark.parametrize("arguments", [["--only", "floods"], ["--peers", "carrier-pigeon"]])
def test_a_name_that_is_not_known_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_bus.main(arguments)


def _make_slots(count: int) -> memoryview:
    fd = make_slots(count)
    try:
        return open_slots(fd, count)
    finally:
        os.close(fd)
