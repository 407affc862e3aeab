"""The benchmark of channels measures what it says: everything arrives. Times are not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.bench.arena import INSIDE, Arena
from tools.bench.channel import command as bench_channel
from tools.bench.channel.command import MEASURES, PARTS, Plan
from tools.bench.channel.pair import Pair
from tools.bench.child import RunError
from tools.bench.report import make_report

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CPU clocks of other processes are Linux's"
)

PLAN = Plan(
    repetitions=1,
    large=20,
    small=100,
    trips=20,
    connects=1,
    transfer=4,
    channels=(1, 5),
    idle_s=0.1,
)

BYTES = ["asyncio stream", "blocking socket", "Bus", "AsyncBus"]
JSON = ["asyncio stream, JSON", "Bus, JSON", "AsyncBus, JSON"]
HANDLERS = ["Bus, handler", "AsyncBus, handler"]
OPEN = ["asyncio stream: 5", "Bus: 5", "AsyncBus: 5"]
HELD = ["asyncio stream: 1", OPEN[0], "Bus: 1", OPEN[1], "AsyncBus: 1", OPEN[2]]

#: By part: the rows of each of its measures.
ROWS = {
    "large": {"large": BYTES + JSON},
    "trip": {name: BYTES + JSON + HANDLERS for name in ("trip-p50", "trip-p99")},
    "small": {"small": BYTES + JSON},
    "connect": {
        "connect": [BYTES[0], *BYTES[2:], "Bus, node never heard", "AsyncBus, node never heard"]
    },
    "many": {
        "many-time": OPEN,
        "many-memory": [f"{row}, {role}" for row in OPEN for role in ("caller", "listener")],
        "many-idle": HELD,
        "many-threads": HELD,
    },
    "transfer": {"transfer": BYTES},
}


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Arena:
    monkeypatch.delenv(INSIDE, raising=False)
    return Arena()


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_its_rows(arena: Arena, part: str) -> None:
    samples = list(PARTS[part](arena, PLAN))
    rows: dict[str, list[str]] = {}
    for sample in samples:
        rows.setdefault(sample.measure, []).append(sample.row)
    assert rows == ROWS[part]
    report = make_report(arena.describe(), samples, MEASURES)
    assert all(f"| {row}" in report for names in rows.values() for row in names)


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(
    "system", ["stream", "jsonbus", "jsonbus-aio", "jsonbus-sealed", "jsonbus-aio-sealed"]
)
def test_messages_go_one_way_and_there_and_back(arena: Arena, system: str, is_json: bool) -> None:
    with Pair(arena, system) as pair:
        flow = pair.flow(30, 1_000, is_json)
        assert (flow.messages, flow.size_bytes) == (30, 1_000)
        assert flow.seconds > 0 and flow.sender_cpu_s > 0 and flow.receiver_cpu_s > 0
        assert len(pair.ping(10, 1_000, is_json)) == 10
        assert pair.connect() > 0  # what follows goes over the new one
        assert len(pair.ping(10, 1_000, is_json)) == 10


@pytest.mark.parametrize("system", ["jsonbus", "jsonbus-aio"])
def test_channels_that_are_held_add_no_thread(arena: Arena, system: str) -> None:
    with Pair(arena, system) as pair:
        pair.hold(2)
        before = pair.threads()
        pair.hold(20)
        assert pair.threads() == before
        assert all(size_mb > 1 for size_mb in pair.memory_mb())


def test_a_side_that_fails_is_told_with_its_last_words(arena: Arena) -> None:
    with pytest.raises(RunError, match="hold"), Pair(arena, "socket") as pair:
        pair.hold(1)  # a socket has nothing for it


@pytest.mark.slow
def test_the_tool_prints_tables_and_writes_all_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_channel, "QUICK", PLAN)
    file = tmp_path / "channel.json"
    given = ["--quick", "--here", "--sealed", "--only", "large,transfer", "--json", str(file)]
    assert bench_channel.main(given) == 0
    printed = capsys.readouterr().out
    assert "### messages of 64 KB, one way" in printed and "### Targets" in printed
    measures = json.loads(file.read_text())["measures"]
    sealed = ["Bus, sealed", "AsyncBus, sealed"]
    sealed_json = [f"{row}, JSON" for row in sealed]
    assert [row["row"] for row in measures["large"]["rows"]] == [
        *(BYTES + sealed),
        *(JSON + sealed_json),
    ]
    assert [row["row"] for row in measures["transfer"]["rows"]] == BYTES + sealed
