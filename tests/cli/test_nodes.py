from __future__ import annotations

import dataclasses

import jsonbus
from tests.cli.running import Run, json_lines


def test_the_other_nodes_are_shown(run: Run, bus: jsonbus.Bus, port: int) -> None:
    bus.subscribe("a/*", lambda message: None)
    bus.subscribe("b", lambda message: None)
    with jsonbus.Bus(name="another", mode="delayed"):
        result = run("nodes", "--name", "looking")
    assert result.exit_code == 0
    nodes = {line["name"]: line for line in json_lines(result.stdout)}
    assert set(nodes) == {"another", "other"}
    assert nodes["other"]["node"] == bus.id
    assert nodes["other"]["patterns"] == ["a/*", "b"]
    assert set(nodes["other"]) == {field.name for field in dataclasses.fields(jsonbus.NodeInfo)}


def test_a_bus_with_nobody_else_is_told(run: Run, port: int) -> None:
    result = run("nodes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"nobody else is on 239.255.24.16:{port}" in result.stderr


def test_nodes_of_another_group_are_not_shown(run: Run, bus: jsonbus.Bus) -> None:
    result = run("nodes", "--group", "239.255.24.17")
    assert (result.exit_code, result.stdout) == (0, "")
