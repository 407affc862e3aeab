"""The benchmarks measure what they say: counts add up, ratios are right. Never how long it takes."""

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
    with Run(arena, "jsonbus", receive_buffer_bytes=16_384, handler_us=20.0, mailbox=64) as run:
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
    assert sizes == [(name, row) for name in ("growth-topics", "growth-nodes") for row in "1 10".split()] \
        if False else sizes == [
            ("growth-topics", "1"), ("growth-topics", "10"), ("growth-nodes", "1"), ("growth-nodes", "10"),
        ]


def test_a_process_that_fails_is_told_with_its_last_words(arena: Arena) -> None:
    with pytest.raises(RunError, match="no-such-system"):
        Run(arena, "no-such-system")
