"""Requests: answered, failed, unserved, late, and never waiting for themselves."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

import jsonbus
from jsonbus.errors import (
    ClosedError,
    LocalError,
    RequestFailedError,
    RequestTimeoutError,
)
from tests.aio.running import asynctest, buses, until


def is_served(topic: str, bus: jsonbus.AsyncBus) -> bool:
    """Whether the bus knows a node that serves the topic."""
    return any(f"jsonbus.request/{topic}" in node.patterns for node in bus.nodes())


@pytest.mark.parametrize("is_async", [False, True])
@asynctest
async def test_a_request_gets_what_the_handler_of_another_bus_returns(is_async: bool) -> None:
    def plain(message: jsonbus.Message) -> int:
        return int(message.value["a"] + message.value["b"])

    async def handler(message: jsonbus.Message) -> int:
        await asyncio.sleep(0)
        return plain(message)

    async with buses() as open_bus:
        asking, serving = open_bus(), open_bus()
        serving.serve("add", handler if is_async else plain)
        assert await until(lambda: is_served("add", asking))
        assert await asking.request("add", {"a": 1, "b": 2}, timeout=30) == 3


@asynctest
async def test_many_tasks_each_get_their_own_answer() -> None:
    async with buses() as open_bus:
        asking, serving = open_bus(), open_bus(workers=2)
        serving.serve("double", lambda message: 2 * message.value)
        assert await until(lambda: is_served("double", asking))
        requests = [asking.request("double", number, timeout=60) for number in range(20)]
        assert await asyncio.gather(*requests) == [2 * number for number in range(20)]


@asynctest
async def test_no_answer_in_time_is_a_timeout() -> None:
    async with buses() as open_bus:
        asking, serving = open_bus(), open_bus()
        go_on = asyncio.Event()
        serving.serve("slow", lambda message: go_on.wait())
        assert await until(lambda: is_served("slow", asking))
        with pytest.raises(RequestTimeoutError) as caught:
            await asking.request("slow", timeout=0.05)
        assert (caught.value.topic, caught.value.timeout_s) == ("slow", 0.05)
        go_on.set()


@asynctest
async def test_a_request_may_be_cancelled() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=2)
        go_on = asyncio.Event()
        bus.serve("slow", lambda message: go_on.wait())
        asking = asyncio.create_task(bus.request("slow", timeout=60))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go_on.set()
        assert await bus.request("slow", timeout=30) is True


@asynctest
async def test_a_handler_may_ask_another_bus() -> None:
    async with buses() as open_bus:
        front, back = open_bus(), open_bus()
        back.serve("back", lambda message: message.value + 1)
        assert await until(lambda: is_served("back", front))

        async def ask_back(message: jsonbus.Message) -> int:
            return int(await front.request("back", message.value, timeout=30) * 10)

        front.serve("front", ask_back)
        assert await front.request("front", 1, timeout=30) == 20


@asynctest
async def test_a_handler_that_would_wait_for_its_own_worker_is_told() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=1)
        raised: list[LocalError] = []

        async def handler(message: jsonbus.Message) -> None:
            try:
                await bus.request("helper", timeout=60)
            except LocalError as error:
                raised.append(error)

        bus.serve("helper", lambda message: 1)
        bus.subscribe("x", handler)
        await bus.publish("x", 1)
        assert await until(lambda: raised)
        assert "more workers" in str(raised[0])


@asynctest
async def test_with_another_worker_a_handler_may_ask_its_own_bus() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=2)
        got: list[object] = []

        async def handler(message: jsonbus.Message) -> None:
            got.append(await bus.request("helper", timeout=60))

        bus.serve("helper", lambda message: 1)
        bus.subscribe("x", handler)
        await bus.publish("x", 1)
        await bus.publish("x", 1)
        assert await until(lambda: got == [1, 1])


@asynctest
async def test_services_that_would_wait_for_each_other_are_told() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=2)
        bus.serve("a", lambda message: bus.request("b", timeout=60))
        bus.serve("b", lambda message: bus.request("a", timeout=60))
        with pytest.raises(RequestFailedError, match="LocalError"):
            await bus.request("a", timeout=60)
        bus.serve("self", lambda message: bus.request("self", timeout=60))
        with pytest.raises(RequestFailedError, match="LocalError"):
            await bus.request("self", timeout=60)


@asynctest
async def test_closing_ends_a_request_that_waits() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        serving, go_on = asyncio.Event(), asyncio.Event()

        async def serve(message: jsonbus.Message) -> None:
            serving.set()
            await go_on.wait()

        bus.serve("slow", serve)
        asking = asyncio.create_task(bus.request("slow", timeout=60))
        await asyncio.wait_for(serving.wait(), 30)
        await bus.close(timeout=0)
        with pytest.raises(ClosedError):
            await asking


class SlowService:
    """Serves "slow" on a bus; each call of its handler waits until it `may_end`."""

    def __init__(self, bus: jsonbus.AsyncBus) -> None:
        self.ran: list[object] = []
        self.may_end = asyncio.Event()
        self._service = bus.serve("slow", self._handle)

    @property
    def pending(self) -> int:
        return self._service.pending

    async def _handle(self, message: jsonbus.Message) -> object:
        self.ran.append(message.value)
        await self.may_end.wait()
        return message.value


@asynctest
async def test_requests_that_timed_out_are_not_run_before_a_later_one() -> None:
    async with buses() as open_bus:
        asking, serving = open_bus(), open_bus(workers=1)
        slow = SlowService(serving)
        assert await until(lambda: is_served("slow", asking))
        first = asyncio.create_task(asking.request("slow", "first", timeout=60))
        assert await until(lambda: slow.ran)
        given_up = [asking.request("slow", number, timeout=0.05) for number in range(20)]
        for error in await asyncio.gather(*given_up, return_exceptions=True):
            assert isinstance(error, RequestTimeoutError)
        assert await until(lambda: slow.pending == 20)
        all_here_at = monotonic()
        assert await until(lambda: monotonic() > all_here_at + 0.05)
        slow.may_end.set()
        assert await first == "first"
        assert await asking.request("slow", "later", timeout=60) == "later"
        assert slow.ran == ["first", "later"]
        # On a busy machine a caller's time may be over before the node's: then it is cancelled.
        stats = serving.stats()
        assert stats["requests_expired"] + stats["requests_cancelled"] == 20


@asynctest
async def test_cancelled_requests_are_not_run_before_a_later_one() -> None:
    async with buses() as open_bus:
        asking, serving = open_bus(), open_bus(workers=1)
        slow = SlowService(serving)
        assert await until(lambda: is_served("slow", asking))
        requests = [asyncio.create_task(asking.request("slow", n, timeout=60)) for n in range(21)]
        assert await until(lambda: slow.ran and slow.pending == 20)
        first = slow.ran[0]  # it runs already: its reply is dropped
        for request in requests:
            request.cancel()
        await asyncio.wait(requests)
        assert await until(lambda: serving.stats()["requests_cancelled"] == 20)
        slow.may_end.set()
        assert await asking.request("slow", "later", timeout=60) == "later"
        assert slow.ran == [first, "later"]
        assert asking.stats()["replies_too_late"] == 0


@asynctest
async def test_closing_cancels_a_request_that_waits_for_its_handler() -> None:
    async with buses() as open_bus:
        asking, closing, serving = open_bus(), open_bus(), open_bus(workers=1)
        slow = SlowService(serving)
        assert await until(lambda: is_served("slow", asking) and is_served("slow", closing))
        first = asyncio.create_task(asking.request("slow", "first", timeout=60))
        assert await until(lambda: slow.ran)
        closed = asyncio.create_task(closing.request("slow", "closed", timeout=60))
        assert await until(lambda: slow.pending == 1)
        await closing.close()
        with pytest.raises(ClosedError):
            await closed
        assert await until(lambda: serving.stats()["requests_cancelled"] == 1)
        slow.may_end.set()
        assert await first == "first"
        assert await asking.request("slow", "later", timeout=60) == "later"
        assert slow.ran == ["first", "later"]


@asynctest
async def test_own_requests_that_were_cancelled_are_not_run() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=1)
        slow = SlowService(bus)
        requests = [asyncio.create_task(bus.request("slow", n, timeout=60)) for n in range(3)]
        assert await until(lambda: slow.ran)
        for request in requests[1:]:
            request.cancel()
        await asyncio.wait(requests[1:])
        slow.may_end.set()
        assert await requests[0] == 0
        assert await bus.request("slow", "later", timeout=60) == "later"
        assert slow.ran == [0, "later"]
        assert bus.stats()["requests_cancelled"] == 2
