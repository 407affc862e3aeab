from __future__ import annotations

import dataclasses
import socket
from typing import Any

import pytest

import jsonbus
from jsonbus.cli.commands import nodes
from jsonbus.cli.lib.output import Output
from jsonbus.frontend.requests import Pong
from tests.cli.running import Run, json_lines
from tests.helpers import wait_until


@pytest.mark.slow
def test_the_other_nodes_are_shown(run: Run, bus: jsonbus.Bus, port: int) -> None:
    bus.subscribe("a/*", lambda message: None)
    bus.subscribe("b", lambda message: None)
    bus.serve("add", lambda message: None)
    with jsonbus.Bus(name="another", mode="delayed"):
        results = []

        def are_shown() -> bool:
            results.append(run("nodes", "--name", "looking"))
            lines = json_lines(results[-1].stdout)
            return [(line["name"], line["patterns"], line["serves"]) for line in lines] == [
                ("another", [], []),
                ("other", ["a/*", "b"], ["add"]),
            ]

        assert wait_until(are_shown)
    assert results[-1].exit_code == 0
    other = json_lines(results[-1].stdout)[1]
    assert other["node"] == bus.id
    fields = {field.name for field in dataclasses.fields(jsonbus.NodeInfo)}
    assert set(other) == fields | {"serves"}


@pytest.mark.slow
def test_a_bus_with_nobody_else_is_told(run: Run, port: int) -> None:
    result = run("nodes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"nobody else is on 239.255.24.16:{port}" in result.stderr


@pytest.mark.slow
def test_nodes_of_another_group_are_not_shown(run: Run, bus: jsonbus.Bus) -> None:
    result = run("nodes", "--group", "239.255.24.17")
    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.slow
def test_every_node_is_shown_with_where_and_what_it_is(
    run: Run, bus: jsonbus.Bus, port: int
) -> None:
    with jsonbus.Bus(name="third"):
        results = []

        def are_shown() -> bool:
            results[:] = json_lines(run("nodes").stdout)
            return len(results) == 2

        assert wait_until(are_shown)
    host = socket.gethostname()[: len(results[0]["host"])]
    for line in results:
        assert (line["host"], line["version"]) == (host, jsonbus.__version__)
        assert line["address"].startswith("127.")


def make_info(**changes: Any) -> jsonbus.NodeInfo:
    facts: dict[str, Any] = {
        "node": "abcdefghijklmnop",
        "name": "kitchen",
        "host": "desk",
        "version": "0.2.0",
        "channel_port": 40123,
        "incarnation": 1,
        "entry_version": 3,
        "mode": "delayed",
        "is_master": False,
        "patterns": ("a/*", "jsonbus.request/add"),
        "heard_s_ago": 0.12,
        "address": "192.168.100.100:54321",
        "received": 12345678,
        "lost": 1234,
        "is_self": False,
        "is_plain": False,
    }
    return jsonbus.NodeInfo(**{**facts, **changes})


def test_pipe_tells_what_a_node_has_counted_under_its_names() -> None:
    counted = jsonbus.Totals(sent=3, suppressed=2, shares=1)
    assert nodes._as_dict(make_info(totals=counted))["totals"] == {
        "sent": 3,
        "suppressed": 2,
        "received": 0,
        "lost": 0,
        "repaired": 0,
        "shares": 1,
    }
    assert nodes._as_dict(make_info())["totals"] is None


def table(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: int,
    *infos: jsonbus.NodeInfo,
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    nodes.write_table(Output(), infos)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_table_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = table(
        monkeypatch,
        capsys,
        80,
        make_info(),
        make_info(name="boss", mode="master", is_master=True, heard_s_ago=9.96, lost=0),
        make_info(name="[red]", host=None, version=None, address=None, heard_s_ago=599.0),
    )
    assert lines == [
        "NAME              HOST                   MODE     VERSION    AGE  RECEIVED  LOST",
        "kitchen           desk                   delayed  0.2.0    0.1 s  12345678  1234",
        "abcdefghijklmnop  192.168.100.100:54321",
        "boss              desk                   master   0.2.0     10 s  12345678     0",
        "abcdefghijklmnop  192.168.100.100:54321  answers",
        "[red]             -                      delayed  -        599 s  12345678  1234",
        "abcdefghijklmnop  -",
    ]


def test_long_names_are_folded_and_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = table(monkeypatch, capsys, 80, make_info(name="n" * 60, host="h" * 60))
    assert max(map(len, lines)) <= 80
    text = "".join(lines)
    assert (text.count("n"), text.count("h")) == (60 + 1, 60 + 1)  # in the id, too
    assert "12345678  1234" in text


def test_wide_terminal_shows_subscriptions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = table(monkeypatch, capsys, 120, make_info())
    assert lines[0].endswith("LOST  SUBSCRIBES TO  SERVES")
    assert lines[1].endswith("1234  a/*            add")


class FakeBus:
    """Knows some nodes; whoever answers a ping tells what it is, unless it is too old for that."""

    def __init__(self, *infos: jsonbus.NodeInfo, answering: tuple[str, ...], old: bool) -> None:
        self._infos = list(infos)
        self._answering = answering
        self._is_old = old
        self.pings = 0

    def nodes(self) -> list[jsonbus.NodeInfo]:
        return self._infos

    def ping(self, timeout: float) -> list[Pong]:
        self.pings += 1
        if not self._is_old:
            self._infos = [
                dataclasses.replace(each, version="0.2.0") if each.node in self._answering else each
                for each in self._infos
            ]
        return [Pong(node, "x", 0.001) for node in self._answering]


SILENT = {"host": None, "version": None}


@pytest.mark.parametrize(
    ("bus", "pings"),
    [
        (FakeBus(answering=(), old=False), 0),
        (FakeBus(make_info(), answering=(), old=False), 0),
        (FakeBus(make_info(is_plain=True, **SILENT), answering=(), old=False), 0),
        (FakeBus(make_info(is_self=True, **SILENT), answering=(), old=False), 0),
        (FakeBus(make_info(node="a", **SILENT), answering=("a",), old=False), 1),
        (FakeBus(make_info(node="a", **SILENT), answering=("a",), old=True), 1),
        (FakeBus(make_info(node="a", **SILENT), answering=(), old=False), nodes.ASK_MAX),
    ],
    ids=["nobody", "told", "plain", "self", "answers", "too old to tell", "crashed"],
)
def test_nodes_are_asked_until_all_told_who_they_are(bus: FakeBus, pings: int) -> None:
    nodes.hear_everybody(bus)  # type: ignore[arg-type]
    assert bus.pings == pings
