from __future__ import annotations

import jsonbus
from tests.cli.running import Run, json_lines


def test_every_pattern_is_shown_with_those_who_want_it(
    run: Run, bus: jsonbus.Bus, port: int
) -> None:
    bus.subscribe("a/*", lambda message: None)
    bus.serve("add", lambda message: None)
    with jsonbus.Bus(name="another") as another:
        another.subscribe("a/*", lambda message: None)
        # What another node announced a moment ago may still be on its way to the one who answers.
        assert bus.wait_for_subscribers("a/x", timeout=30)
        result = run("topics")
        assert result.exit_code == 0
        wishes = {(each["pattern"], each["served"]): each for each in json_lines(result.stdout)}
        assert set(wishes) == {("a/*", False), ("add", True)}
        assert sorted(wishes["a/*", False]["names"]) == ["another", "other"]
        assert sorted(wishes["a/*", False]["nodes"]) == sorted([another.id, bus.id])
        assert wishes["add", True]["names"] == ["other"]


def test_that_nothing_is_wanted_is_told(run: Run, bus: jsonbus.Bus) -> None:
    result = run("topics")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nobody subscribes to anything" in result.stderr
