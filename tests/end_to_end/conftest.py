from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end import processes


@pytest.fixture
def desk() -> Iterator[processes.Desk]:
    with processes.desk() as opened:
        yield opened
