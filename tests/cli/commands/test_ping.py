from __future__ import annotations

import pytest

import jsonbus
from tests.cli.running import Run, json_lines
from tests.helpers import wait_until


@pytest.mark.slow
def test_every_node_answers(run: Run, bus: jsonbus.Bus) -> None:
    results = []

    def answered() -> bool:
        results.append(run("ping", "--count", "2", "--interval", "0", "--timeout", "0.25"))
        return len(results[-1].stdout.splitlines()) == 2

    assert wait_until(answered)
    assert results[-1].exit_code == 0
    for pong in json_lines(results[-1].stdout):
        assert pong["node"] == bus.id
        assert pong["name"] in ("other", bus.id)  # a joiner may hear an answer before a name
        assert pong["round_trip_ms"] > 0


@pytest.mark.slow
def test_that_nobody_answers_is_a_timeout(run: Run) -> None:
    result = run("ping", "--timeout", "0.01")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "nobody answered within 0.01 s" in result.stderr


@pytest.mark.parametrize("arguments", [("--count", "0"), ("--timeout", "-1"), ("somebody",)])
def test_what_cannot_be_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("ping", *arguments).exit_code == 2
