"""For folders whose tests hold on an open bus and on a sealed one: each runs with both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sealed.material import ring, write_ring


@pytest.fixture(autouse=True, params=["open", "sealed"])
def sealing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every bus of the test has the same keys, or none has any."""
    if request.param == "sealed":
        monkeypatch.setenv("JSONBUS_KEY_FILE", str(write_ring(tmp_path / "plant.key", ring())))
