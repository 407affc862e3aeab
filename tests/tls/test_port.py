"""What the connections of one port share."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from jsonbus.tls import port as tls_port
from tests.aio.running import asynctest, until
from tests.certificates import Authority
from tests.tls.test_connection import HandClient, serving


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynctest
async def test_the_oldest_handshake_makes_room_and_honest_clients_are_served(
    authority: Authority,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tls_port, "HANDSHAKES_MAX", 5)
        async with serving(authority) as served:
            silent = [await asyncio.open_connection(*served.address) for _ in range(8)]
            for _, writer in silent:
                writer.write(b"\x16\x03")
            assert await until(lambda: served.figures("handshakes_late") == [3])
            assert served.figures("handshakes_waiting") == [5]
            for reader, _ in silent[:3]:
                with suppress(ConnectionError):  # an end is as good as a reset
                    await reader.read()
            _, writer = await served.connect()
            assert served.figures("handshakes", "handshakes_late") == [1, 4]
            writer.close()
            for _, writer in silent:
                writer.close()


@asynctest
async def test_closing_gives_up_handshakes_under_way(authority: Authority) -> None:
    async with serving(authority) as served:
        reader, writer = await asyncio.open_connection(*served.address)
        assert await until(lambda: served.figures("handshakes_waiting") == [1])
        served.port.close()
        assert await until(lambda: served.figures("handshakes_waiting") == [0])
        writer.close()


@asynctest
async def test_each_reason_of_failure_is_one_warning(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("jsonbus.tls")
    logger.addHandler(handler)
    try:
        async with serving(authority) as served:
            served.trusted = other.client()
            for _ in range(3):
                client = HandClient(served)
                await client.connect()
                with pytest.raises(ssl.SSLCertVerificationError):
                    await client.shake_hands()
                await client.send(client.taken())  # says why
                while await client.receive():
                    pass
                client.close()
            assert served.figures("handshakes_failed", "handshakes") == [3, 0]
    finally:
        logger.removeHandler(handler)
    warnings = [each.getMessage() for each in records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("the TLS handshake of the client at 127.0.0.1:")
    assert warnings[0].endswith("failed: tlsv1 alert unknown ca")
