"""What several tests of the package share: building it takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.packages import build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, which is beside it."""
    return build(tmp_path_factory.mktemp("package") / "dist")
