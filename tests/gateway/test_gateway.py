"""The gateway put together: it begins whole or not at all, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from jsonbus.errors import TransportError
from jsonbus.gateway.gateway import Gateway, GatewayConfig
from jsonbus.gateway.webhooks.store import WebhookStore
from tests.helpers import find_free_port


def open_descriptors() -> set[str]:
    """What this process has open, apart from what looking at it opens."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            pass
    return {each for each in found if "/fd" not in each}


def check_folder_is_free(folder: Path) -> None:
    store = WebhookStore(folder)
    store.open()  # raises StoreError while another has it
    store.close()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc")
def test_whenever_its_start_is_broken_off_nothing_is_left(tmp_path: Path) -> None:
    port = find_free_port()

    async def open_for(rounds: int) -> bool:
        """Open it for so many rounds of the event loop; whether it was open by then."""
        before = open_descriptors()
        gateway = Gateway(GatewayConfig(data_dir=tmp_path), port=port, interface="lo")
        opening = asyncio.create_task(gateway.__aenter__())
        for _ in range(rounds):
            await asyncio.sleep(0)
            if opening.done():
                break
        is_open = not opening.cancel()
        await asyncio.wait([opening])
        await gateway.close()
        assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        assert "jsonbus-gateway-store" not in [each.name for each in threading.enumerate()]
        assert open_descriptors() <= before
        check_folder_is_free(tmp_path)
        return is_open

    async def run() -> None:
        rounds = 0
        while not await open_for(rounds):
            # Every round at first, in which one part after the other starts; then there is
            # the wait for the bus, and after that the servers start.
            rounds += 1 if rounds < 12 else max(1, rounds // 2)
            assert rounds < 10_000_000

    asyncio.run(run())


@pytest.mark.slow
def test_a_port_in_use_leaves_the_folder_free(tmp_path: Path) -> None:
    async def run(http_port: int, text_port: int) -> None:
        with pytest.raises(TransportError, match="listen"):
            config = GatewayConfig(http_port=http_port, text_port=text_port, data_dir=tmp_path)
            async with Gateway(config, interface="lo"):
                pass
        check_folder_is_free(tmp_path)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        asyncio.run(run(number, 0))
        asyncio.run(run(0, number))
