"""The benchmark of the gateway measures what it says: everything arrives. Times are not tested."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.bench.gateway.command import (
    make_report,
    measure_bus,
    measure_http,
    measure_publish,
    measure_text,
)

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CPU clocks of other processes are Linux's"
)


@pytest.mark.slow
def test_all_that_another_node_publishes_reaches_clients_of_every_kind() -> None:
    figures = measure_bus(500, followers=(2,))
    rows = ["bare subscriber", "2 text clients", "2 event streams", "webhook in memory"]
    assert list(figures) == rows
    assert [figures[row]["arrived"] for row in rows] == [1.0] * 4
    assert all(figures[row]["cpu_us"] > 0 for row in rows)
    assert "from the bus" in make_report([{"bus": figures}])


@pytest.mark.slow
def test_durable_publishes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    figures = measure_publish(0.1, stores=["in memory", "on disk"])
    for figure in figures.values():
        assert figure["per_s"] > 0 and figure["cpu_us"] > 0 and figure["p99_ms"] > 0
    assert "on disk / in memory" in make_report([{"publish": figures}])


@pytest.mark.slow
def test_every_kind_of_request_is_answered() -> None:
    figures = measure_http(0.1)
    assert set(figures) == {"query", "form", "json", "value"}
    assert "value" in make_report([{"http": figures}])


@pytest.mark.slow
def test_a_line_reaches_all_text_clients() -> None:
    figures = measure_text(2, clients=3)
    assert figures["gateway"]["cpu_us"] > 0 and figures["bare"]["cpu_us"] > 0
    assert "one line" in make_report([{"text": figures}])
