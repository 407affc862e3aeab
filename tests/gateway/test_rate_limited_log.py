"""Warnings that are not repeated all the time."""

from __future__ import annotations

import logging

import pytest

from jsonbus.gateway import rate_limited_log
from jsonbus.gateway.rate_limited_log import RateLimitedLog


def test_warns_at_the_first_occasion_and_again_only_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_000.0
    monkeypatch.setattr(rate_limited_log.time, "monotonic", lambda: now)
    caplog.set_level(logging.DEBUG)
    log = RateLimitedLog(logging.getLogger("jsonbus.gateway"))
    log.warning("refused %s", "a")
    log.warning("refused %s", "b")
    now += rate_limited_log.PAUSE_S
    log.warning("refused %s", "c")
    log.exception("failed")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "refused a"),
        ("DEBUG", "refused b"),
        ("WARNING", "refused c"),
        ("DEBUG", "failed"),
    ]


def test_writes_the_traceback_of_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(logging.getLogger("jsonbus.gateway"))
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("a page was not updated")
    assert caplog.records[0].levelname == "ERROR"
    assert "ValueError: broken" in caplog.text
