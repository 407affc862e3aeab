"""What channels plan is done in time, whatever the event loop was doing when it was planned."""

from __future__ import annotations

import asyncio

import pytest

from jsonbus.core.channel import liveness

from .running import asynctest, buses


@pytest.mark.slow
@asynctest
async def test_channels_on_which_nothing_is_said_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    # The side that answers plans its beats while it reads, when nothing else is planned.
    monkeypatch.setattr(liveness, "BEAT_S", 0.05)
    monkeypatch.setattr(liveness, "SILENCE_S", 0.8)
    async with buses() as open_one:
        caller, listener = open_one(name="caller"), open_one(name="listener")
        binding = listener.bind("idle")
        near = await caller.connect("listener", "idle")
        far = await binding.accept(5.0)
        await asyncio.sleep(1.5)
        assert (near.state, far.state) == ("open", "open")
