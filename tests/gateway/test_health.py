"""/health tells the truth: of a disk that hangs or is full, within a bounded time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi")

from jsonbus.gateway import health
from jsonbus.gateway.gateway import Gateway, GatewayConfig
from jsonbus.gateway.webhooks.database import RESERVE_BYTES, RESERVE_NAME
from jsonbus.gateway.webhooks.ledger import PROBED_S
from tests.aio.running import asynctest
from tests.gateway.webhooks.test_ledger_full import fill
from tests.helpers import find_free_port
from tests.small_disk import small_disk

#: Holds a lease on a file: whoever opens the file waits in the kernel, as with a disk that hangs,
#: until this program ends.
HOLDER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"held\n":
            pytest.skip("no leases on files here")
        yield holder


@asynccontextmanager
async def serving(folder: Path | None) -> AsyncIterator[httpx.AsyncClient]:
    config = GatewayConfig(data_dir=folder, text_port=None)
    async with Gateway(config, port=find_free_port(), interface="lo") as gateway:
        base = "http://{}:{}".format(*gateway.http_address)
        async with httpx.AsyncClient(base_url=base, timeout=60, trust_env=False) as client:
            yield client


async def until_healthy(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while (await client.get("/health")).status_code != 200:  # noqa: ASYNC110  # over HTTP
            await asyncio.sleep(0.05)


@asynctest
async def test_a_gateway_without_a_disk_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "STORE_S_MAX", 60.0)  # for machines that are busy
    async with serving(None) as client:
        assert (await client.get("/health")).json()["status"] == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="leases on files are Linux's")
@asynctest
async def test_a_disk_that_hangs_is_told_while_other_requests_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "STORE_S_MAX", 0.2)
    with held(tmp_path / RESERVE_NAME) as holder:
        async with serving(tmp_path) as client:
            one, two = await asyncio.gather(client.get("/health"), client.get("/health"))
            for answer in (one, two, await client.get("/health")):
                assert answer.status_code == 503
                hangs = "the disk of the webhooks' store has not answered for "
                assert answer.json()["error"].startswith(hangs)
            assert (await client.get("/publish?topic=a&message=1")).status_code == 200
            assert holder.stdin is not None
            holder.stdin.close()
            await until_healthy(client)


@asynctest
async def test_a_disk_that_is_full_is_told_though_nothing_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "STORE_S_MAX", 60.0)
    with small_disk(tmp_path, 3 * RESERVE_BYTES) as disk:
        async with serving(disk / "data") as client:
            await until_healthy(client)
            ballast = fill(disk)
            await asyncio.sleep(PROBED_S)  # until then the last result holds
            answer = await client.get("/health")
            assert answer.status_code == 503
            assert answer.json() == {"error": "the disk of the webhooks' store is full"}
            ballast.unlink()
            await until_healthy(client)
            assert [path.name for path in (disk / "data").glob("*.probe")] == []
