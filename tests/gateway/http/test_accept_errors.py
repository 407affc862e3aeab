"""What happens when the process may open no more files."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jsonbus.gateway.http.accept_errors import AcceptErrors
from tests.aio.running import asynctest
from tests.gateway.text.clients import serving, until


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Nothing in this process can be opened; what is open works."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
@asynctest
async def test_without_descriptors_clients_wait_and_one_line_tells_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = AcceptErrors()
    watch.begin()
    loop = asyncio.get_running_loop()
    async with serving() as (server, _):
        with socket.socket() as waiting:
            waiting.setblocking(False)
            with no_more_descriptors():
                await loop.sock_connect(waiting, server.address)
                await until(lambda: watch.stats()["accept_pauses"] >= 2)
            async with asyncio.timeout(30):
                assert await loop.sock_recv(waiting, 100) == b"connection_ack 1\n"
    watch.end()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "too many open files" in caplog.text


@pytest.mark.slow
@asynctest
async def test_a_server_that_is_closed_meanwhile_does_not_listen_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = AcceptErrors()
    watch.begin()
    with socket.socket() as waiting:
        waiting.setblocking(False)
        async with serving() as (server, _):
            with no_more_descriptors():
                await asyncio.get_running_loop().sock_connect(waiting, server.address)
                await until(lambda: watch.stats()["accept_pauses"] == 1)
        await asyncio.sleep(1.1)  # asyncio's pause
    watch.end()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@asynctest
async def test_other_errors_go_where_they_went_before() -> None:
    loop = asyncio.get_running_loop()
    seen = []
    loop.set_exception_handler(lambda _, context: seen.append(context["message"]))
    watch = AcceptErrors()
    watch.begin()
    loop.call_exception_handler({"message": "one"})
    watch.end()
    watch.end()
    loop.call_exception_handler({"message": "two"})
    assert seen == ["one", "two"]
    assert watch.stats() == {"accept_pauses": 0}


@asynctest
async def test_without_a_handler_before_the_loop_logs_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = AcceptErrors()
    watch.begin()
    asyncio.get_running_loop().call_exception_handler({"message": "one"})
    watch.end()
    assert asyncio.get_running_loop().get_exception_handler() is None
    assert "one" in caplog.text
