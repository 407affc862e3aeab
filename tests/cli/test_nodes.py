from __future__ import annotations

import dataclasses

import jsonbus
from tests.cli.running import Run, json_lines
from tests.helpers import wait_until


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


def test_a_bus_with_nobody_else_is_told(run: Run, port: int) -> None:
    result = run("nodes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"nobody else is on 239.255.24.16:{port}" in result.stderr


def test_nodes_of_another_group_are_not_shown(run: Run, bus: jsonbus.Bus) -> None:
    result = run("nodes", "--group", "239.255.24.17")
    assert (result.exit_code, result.stdout) == (0, "")
