"""Requests and pings: ask and wait for the answer; serve others."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jsonbus.aio.loop import Loop
from jsonbus.aio.subscription import Handler, Subscription
from jsonbus.aio.workers import current_subscription
from jsonbus.core.message import Message
from jsonbus.core.node import Node
from jsonbus.core.rpc.requests import Request
from jsonbus.errors import RequestTimeoutError
from jsonbus.frontend.events import Answer, Pong, describe_failure, read_answer
from jsonbus.frontend.waits import ServiceWaits


class Requests:
    """What `AsyncBus` offers about requests; `loop` is its loop."""

    def __init__(self, loop: Loop, workers: int) -> None:
        self._loop = loop
        self._services: dict[str, Subscription] = {}
        self._waits = ServiceWaits(workers)

    def serve(self, service: Subscription, node: Node, now: float) -> None:
        """Have the node bring requests to the service."""
        node.serve(service.pattern, service, now)
        self._services[service.pattern] = service

    def stop_serving(self, service: Subscription, node: Node, now: float) -> None:
        """The reverse."""
        node.unserve(service.pattern, now)
        del self._services[service.pattern]

    async def answer(self, handler: Handler, message: Message) -> None:
        """Run the handler of a service, and send what it gives. In a worker."""
        assert isinstance(message, Request)
        value, failure = None, None
        try:
            value = handler(message)
            if inspect.isawaitable(value):
                value = await value
        except asyncio.CancelledError as error:
            failure = describe_failure(error)
            raise
        except Exception as error:
            failure = describe_failure(error)
            self._loop.log.fail("the handler that serves %r failed", message.topic)
        finally:
            if not self._loop.is_closed:
                self._loop.call(lambda node, now: node.reply(message, value, failure, now))

    async def request(self, topic: str, value: Any, timeout_s: float) -> Any:
        """See `AsyncBus.request`."""
        answered: asyncio.Future[Answer] = self._loop.event_loop.create_future()

        def give(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        def ask(node: Node, now: float) -> int:
            request_id = node.request(topic, value, timeout_s, now)
            self._loop.answers.expect_reply(request_id, give)
            return request_id

        with self._waiting_for(topic):
            request_id = self._loop.call(ask)
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await answered
            except TimeoutError:
                raise RequestTimeoutError(topic, timeout_s) from None
            finally:
                self._loop.answers.forget_reply(request_id)
                self._loop.look(lambda node, now: node.cancel_request(request_id))
        return read_answer(answer, topic)

    async def ping(self, timeout_s: float) -> list[Pong]:
        """See `AsyncBus.ping`."""

        def start(node: Node, now: float) -> int:
            ping_id = node.ping(now)
            self._loop.answers.expect_pongs(ping_id)
            return ping_id

        ping_id = self._loop.call(start)
        try:
            await self._loop.wait_for(lambda node: False, timeout_s)
        finally:
            pongs = self._loop.answers.take_pongs(ping_id)
        return pongs

    @contextmanager
    def _waiting_for(self, topic: str) -> Iterator[None]:
        """Note a wait for a service of this very bus; raises LocalError if it would not end."""
        service = self._services.get(topic)
        handler = current_subscription() if self._loop.workers.are_current() else None
        if service is None or handler is None:
            yield
            return
        self._waits.begin(handler, service, topic)
        try:
            yield
        finally:
            self._waits.end(handler)
