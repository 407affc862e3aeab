"""Warnings that are not repeated all the time."""

from __future__ import annotations

import pytest

from jsonbus.gateway import rate_limited_log as seldom
from jsonbus.gateway.rate_limited_log import Seldom


def test_first_occasion_is_warned_of_and_the_next_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(seldom.time, "monotonic", lambda: now)
    warning = Seldom()
    assert [warning.is_due() for _ in range(3)] == [True, False, False]
    now += seldom.PAUSE_S
    assert [warning.is_due() for _ in range(2)] == [True, False]
