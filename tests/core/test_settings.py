"""What a node is told at birth."""

from __future__ import annotations

import pytest

from jsonbus.core.settings import NodeSettings


def test_settings_are_frozen_and_mode_delayed_is_the_default() -> None:
    settings = NodeSettings("k3v9", 1, "kitchen")
    assert (settings.mode, settings.is_master, settings.share_delay_s) == ("delayed", False, None)
    assert (settings.datagram_bytes_max, settings.batching) == (1400, True)
    with pytest.raises(AttributeError):
        settings.name = "hall"  # type: ignore[misc]
