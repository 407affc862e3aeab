"""A channel that is given up looks to the other side as one that was lost."""

from __future__ import annotations

import pytest

from jsonbus.errors import ChannelClosedError
from tests.aio.running import asynctest, buses


@asynctest
async def test_a_channel_that_is_given_up_is_lost_to_the_other_side() -> None:
    async with buses() as open_bus:
        binding = open_bus(name="garage").bind("files")
        ours = await open_bus().connect("garage", "files", timeout=30)
        theirs = await binding.accept(timeout=30)
        await ours.send(1)
        assert await theirs.receive(timeout=30) == 1
        ours.abort()
        with pytest.raises(ChannelClosedError, match="is gone") as there:
            await theirs.receive(timeout=30)
        assert there.value.is_lost
        with pytest.raises(ChannelClosedError, match="it was given up here"):
            await ours.receive(timeout=30)
        assert not await ours.close()


@asynctest
async def test_a_block_that_fails_gives_its_channel_up() -> None:
    async with buses() as open_bus:
        binding = open_bus(name="garage").bind("files")
        with pytest.raises(ZeroDivisionError):
            async with await open_bus().connect("garage", "files", timeout=30):
                theirs = await binding.accept(timeout=30)
                _ = 1 / 0
        with pytest.raises(ChannelClosedError) as there:
            await theirs.receive(timeout=30)
        assert there.value.is_lost
