"""Figures become the right tables and verdicts, and the two scripts run. Times are not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.bench.bus import command as bench_bus
from tools.bench.bus.floods import BISECTIONS, Offer, search_highest_rate
from tools.bench.bus.overview import LINES, make_overview
from tools.bench.bus.publish import Pace
from tools.bench.measures import MEASURES, Measure, Sample, Target
from tools.bench.report import make_rows, make_summary, make_table
from tools.bench.wire import command as bench_wire
from tools.bench.wire.instructions import COUNTED, measure_instructions
from tools.bench.wire.instructions import make_table as make_instructions_table
from tools.pictures import bench_chart

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CPU clocks of other processes are Linux's"
)


def test_a_pace_makes_up_for_lost_time_but_never_in_a_burst() -> None:
    pace = Pace(rate=0.001)
    first_s, second_s = pace.next_pause_s(), pace.next_pause_s()
    assert first_s == pytest.approx(1_000, rel=0.1)
    assert second_s == pytest.approx(2_000, rel=0.1)  # nobody slept: it is due after two periods
    late = Pace(rate=1e9)
    assert all(late.next_pause_s() > 0 for _ in range(3))


@pytest.mark.parametrize(("limit", "lucky"), [(1e9, 0), (600.0, 0), (600.0, 1), (0.0, 1)])
def test_the_highest_rate_is_found_in_spite_of_stray_luck_and_losses(
    limit: float, lucky: int
) -> None:
    offered: list[float] = []

    def offer(rate: float) -> Offer:
        # One try in a row of the same goes the other way.
        is_first = rate not in offered
        offered.append(rate)
        reached = rate or 1_000.0
        is_lossless = reached <= limit
        return Offer(is_lossless != is_first if lucky else is_lossless, reached)

    found = search_highest_rate(offer, 1_000.0)
    assert found == pytest.approx(min(limit, 1_000.0), abs=1_000 / 2**BISECTIONS)
    assert max(offered.count(rate) for rate in offered) <= 3


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


def test_a_target_may_name_the_floor_it_is_about() -> None:
    target = Target(2.0, floor="large")
    measures = {"flood": Measure("flood", "µs", ("small", "large"), {"ours": target})}
    samples = [
        Sample("flood", row, value)
        for row, value in (("small", 4.0), ("large", 1.0), ("ours", 3.0))
    ]
    rows = make_rows(samples, measures)
    assert rows["flood"][2].target_ratio == pytest.approx(3.0)
    assert rows["flood"][2].is_met is False
    assert "3.00 × that of large" in make_summary(rows, measures)


def test_every_target_is_about_a_floor_of_its_measure() -> None:
    for measure in MEASURES.values():
        targets = [*measure.targets.values(), *([measure.target] if measure.target else [])]
        assert all(each.floor in (None, *measure.floors) for each in targets)
        assert not any(each.is_ratio for each in targets) or measure.floors


def test_a_loss_shows_in_the_table() -> None:
    measures = {"flood": Measure("flood", "µs")}
    samples = [Sample("flood", "ours", 1.5, {"received": 7, "sent": 9})]
    table = make_table(measures["flood"], make_rows(samples, measures)["flood"])
    assert "7 of 9" in table


def test_words_have_a_column_of_their_own() -> None:
    measures = {"flood": Measure("flood", "µs")}
    samples = [Sample("flood", "ours", 1.5, {"means": "1,400 B, offload"})]
    table = make_table(measures["flood"], make_rows(samples, measures)["flood"])
    assert "datagrams" in table and "1,400 B, offload" in table


def test_the_overview_begins_with_what_was_measured_between_hosts() -> None:
    samples = [
        Sample(measure, row, figure)
        for measure, floor in (("flood", "raw-8k"), ("lan-flood", "raw-1400"))
        for row, figure in ((floor, 1.0), ("jsonbus", 2.0), ("pyzmq", 3_000.0))
    ]
    header, _, between_hosts, loopback = make_overview(make_rows(samples, MEASURES)).splitlines()
    assert "floor with offload" in header
    assert between_hosts.startswith("| CPU per message, flood ")
    assert "2.00 µs" in between_hosts and "3.00 ms" in between_hosts
    assert loopback.startswith("| loopback: CPU per message, flood ")
    assert make_overview({}) == ""


def test_every_line_of_the_overview_is_of_a_measure_that_there_is() -> None:
    for line in LINES:
        known = MEASURES[line.measure].floors
        assert {line.floor, line.with_offload} - {""} <= {*known, "bare-recv"}, line


def test_every_loop_of_the_wire_benchmark_runs(tmp_path: Path) -> None:
    result = tmp_path / "wire.json"
    arguments = ["--messages", "120", "--repetitions", "1", "--json", str(result)]
    assert bench_wire.main(arguments) == 0
    measures = json.loads(result.read_text())["measures"]
    shown = {name: [row["row"] for row in measures[name]["rows"]] for name in measures}
    assert shown == {name: list(loops) for name, loops in bench_wire.LOOPS.items()}


def test_instructions_are_told_of_what_could_be_counted() -> None:
    figures = {"floor-publish": 2_000.0, "node-publish": 5_000.0, "node-refuse": None}
    table = make_instructions_table("by hand", figures)
    assert "| 5,000 | 2.50 |" in table
    assert "| not counted |  |" in table
    assert set(COUNTED) <= set(bench_wire.MAKERS)


def test_without_a_counter_of_instructions_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda command: None)
    assert measure_instructions(print).count("\n") == 0


def test_one_loop_alone_runs_for_an_instruction_counter() -> None:
    assert bench_wire.main(["--loop", "node-receive", "--messages", "120", "--prepare", "240"]) == 0


@pytest.mark.slow
def test_the_bus_benchmark_writes_a_table_and_all_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, chart = tmp_path / "bus.json", tmp_path / "bus.png"
    arguments = ["--here", "--only", "start,growth", "--quick", "--messages", "400", "--peers", ""]
    assert bench_bus.main([*arguments, "--json", str(result), "--chart", str(chart)]) == 0
    measures = json.loads(result.read_text())["measures"]
    assert list(measures) == [
        "start",
        "growth-topics",
        "growth-nodes",
        "growth-receive",
        "growth-idle",
    ]
    assert measures["start"]["rows"][0].keys() >= {"median", "least", "most", "target", "is_met"}
    shown = capsys.readouterr()
    assert "### CPU to import jsonbus and open a bus" in shown.out
    assert "### Targets" in shown.out
    obstacle = bench_chart.find_obstacle()
    assert chart.exists() == (obstacle is None)
    assert ("no chart" in shown.err) == (obstacle is not None)


@pytest.mark.parametrize(
    "arguments",
    [["--only", "floods"], ["--peers", "carrier-pigeon"], ["--network", "wifi"]],
)
def test_a_name_that_is_not_known_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_bus.main(arguments)
