"""Look-ups of names: shared, bounded, and left behind by those who stop waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from jsonbus.gateway.webhooks.targets import NameLookup
from tests.gateway.receiver import run, until


class Resolver:
    """In place of the system's: nothing may be asked of a real name server here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.is_free = threading.Event()
        monkeypatch.setattr("jsonbus.gateway.webhooks.targets.socket.getaddrinfo", self.look_up)

    def look_up(self, host: str, port: int, *, type: int) -> list[Any]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.is_free.wait(30)
        if host.startswith("unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        if host.startswith("odd"):
            raise UnicodeError("label too long")
        return [
            (socket.AF_INET6, type, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, type, 6, "", ("127.0.0.1", port)),
        ]


def test_localhost_is_known() -> None:
    async def main() -> None:
        assert "127.0.0.1" in await NameLookup()("localhost", 80)

    run(main())


def test_addresses_come_in_the_resolvers_order(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch)

    async def main() -> None:
        assert await NameLookup()("quick", 80) == ["::1", "127.0.0.1"]

    run(main())


@pytest.mark.parametrize("host", ["unknown", "odd"])
def test_a_name_without_address_is_an_os_error(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    Resolver(monkeypatch)

    async def main() -> None:
        with pytest.raises(OSError):
            await NameLookup()(host, 80)

    run(main())


def test_those_who_ask_for_the_same_name_share_a_look_up_and_others_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver(monkeypatch)

    async def main() -> None:
        look_up = NameLookup()
        asking = [asyncio.create_task(look_up("slow", 80)) for _ in range(3)]
        await until(lambda: resolver.asked)
        assert await look_up("quick", 80)
        asking[0].cancel()
        await asyncio.wait(asking[:1])
        resolver.is_free.set()
        assert await asyncio.gather(*asking[1:]) == [["::1", "127.0.0.1"]] * 2
        assert resolver.asked == ["slow", "quick"]

    run(main())


def test_no_more_look_ups_run_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch)

    async def main() -> None:
        look_up = NameLookup(threads_max=2)
        asking = [asyncio.create_task(look_up(f"slow{each % 5}", 80)) for each in range(10)]
        await until(lambda: len(resolver.asked) == 2)
        await asyncio.sleep(0.01)
        assert len(resolver.asked) == 2
        resolver.is_free.set()
        assert len(await asyncio.gather(*asking)) == 10
        assert len(resolver.asked) <= 10

    run(main())


def test_the_program_ends_while_a_look_up_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch)

    async def main() -> None:
        asking = asyncio.create_task(NameLookup()("slow", 80))
        await until(lambda: resolver.asked)
        asking.cancel()

    run(main())  # closes the loop, and does not wait
    assert not resolver.is_free.is_set()
    resolver.is_free.set()
