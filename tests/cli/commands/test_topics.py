from __future__ import annotations

import pytest

import jsonbus
from tests.cli.running import Run, json_lines
from tests.helpers import wait_until


@pytest.mark.slow
def test_every_pattern_is_shown_with_those_who_want_it(
    run: Run, bus: jsonbus.Bus, port: int
) -> None:
    bus.subscribe("a/*", lambda message: None)
    bus.serve("add", lambda message: None)
    with jsonbus.Bus(name="another") as another:
        another.subscribe("a/*", lambda message: None)

        def are_shown() -> bool:
            result = run("topics")
            assert result.exit_code == 0
            lines = json_lines(result.stdout)
            for line in lines:
                line["nodes"].sort()
                line["names"].sort()
            return lines == [
                {
                    "pattern": "a/*",
                    "served": False,
                    "nodes": sorted([another.id, bus.id]),
                    "names": ["another", "other"],
                },
                {"pattern": "add", "served": True, "nodes": [bus.id], "names": ["other"]},
            ]

        assert wait_until(are_shown)


@pytest.mark.slow
def test_that_nothing_is_wanted_is_told(run: Run, bus: jsonbus.Bus) -> None:
    result = run("topics")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nobody subscribes to anything" in result.stderr
