from __future__ import annotations

import pytest

import jsonbus
from tests.cli.running import Run, json_lines
from tests.helpers import wait_until


@pytest.mark.slow
def test_a_wanted_topic_is_explained(run: Run, bus: jsonbus.Bus) -> None:
    bus.subscribe("a/*", lambda message: None)
    explanations = []

    def is_known() -> bool:
        explanations.extend(json_lines(run("explain", "a/b").stdout))
        return bool(explanations[-1]["wanted_by"])

    assert wait_until(is_known)
    assert (explanations[-1]["topic"], explanations[-1]["verdict"]) == ("a/b", "sent")
    assert explanations[-1]["wanted_by"] == ["other"]


@pytest.mark.slow
def test_a_topic_that_nobody_wants_is_explained(run: Run) -> None:
    (explanation,) = json_lines(run("explain", "a").stdout)
    assert (explanation["verdict"], explanation["wanted_by"]) == ("suppressed", [])
    assert explanation["reason"]


def test_in_mode_basic_everything_is_sent(run: Run) -> None:
    (explanation,) = json_lines(run("explain", "--mode", "basic", "a").stdout)
    assert explanation["verdict"] == "sent"


@pytest.mark.slow
def test_a_topic_that_cannot_be_is_wrong_usage(run: Run) -> None:
    assert run("explain", "a/**").exit_code == 2
