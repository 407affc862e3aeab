from __future__ import annotations

import pytest

from jsonbus.cli.lib import copy_progress
from jsonbus.cli.lib.copy_progress import ProgressMeter


@pytest.fixture(autouse=True)
def renewed_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_progress, "RENEWED_EVERY_S", 0.0)


def test_both_directions_are_shown_with_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    meter = ProgressMeter(2_000_000, at_once=True)
    meter.add_sent(500_000)
    meter.add_received(3_000)
    meter.add_sent(500_000)
    meter.stop()
    meter.stop()
    sent, received = capsys.readouterr().err.strip().splitlines()
    assert sent.startswith("sent") and "1.0 MB of 2.0 MB" in sent
    assert received.startswith("received") and "3.0 kB" in received and " of " not in received
    assert (meter.sent, meter.received) == (1_000_000, 3_000)


def test_what_is_over_soon_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    meter = ProgressMeter(10)
    meter.add_sent(10)
    meter.stop()
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_where_bytes_come_to_the_same_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    meter = ProgressMeter(None, at_once=True, gives_way=True)
    meter.add_received(10)
    meter.add_sent(10)
    meter.stop()
    assert capsys.readouterr().err == ""
    assert (meter.sent, meter.received) == (10, 10)
