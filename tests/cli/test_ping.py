from __future__ import annotations

import pytest

import jsonbus
from tests.cli.running import Run, json_lines


def test_every_node_answers(run: Run, bus: jsonbus.Bus) -> None:
    result = run("ping", "--count", "2", "--interval", "0", "--timeout", "2")
    assert result.exit_code == 0
    pongs = json_lines(result.stdout)
    assert {pong["node"] for pong in pongs} == {bus.id}
    assert {pong["name"] for pong in pongs} == {"other"}
    assert all(0 < pong["round_trip_ms"] < 2000 for pong in pongs)


def test_that_nobody_answers_is_a_timeout(run: Run) -> None:
    result = run("ping", "--timeout", "0.01")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "nobody answered within 0.01 s" in result.stderr


@pytest.mark.parametrize("arguments", [("--count", "0"), ("--timeout", "-1"), ("somebody",)])
def test_what_cannot_be_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("ping", *arguments).exit_code == 2
