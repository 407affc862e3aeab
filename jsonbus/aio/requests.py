"""Requests and pings with tasks: each request waits for a separate future."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from jsonbus.aio.workers import current_subscription
from jsonbus.core.message import Message
from jsonbus.errors import RequestTimeoutError
from jsonbus.frontend.options import Handler
from jsonbus.frontend.requests import Answer, BaseRequests, Pong, read_answer

if TYPE_CHECKING:
    from jsonbus.aio.loop import Loop


class Requests(BaseRequests):
    """The requests of one `AsyncBus`."""

    _loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, nullcontext())

    async def request(self, topic: str, value: Any, timeout_s: float) -> Any:
        """See `AsyncBus.request`."""
        answered: asyncio.Future[Answer] = self._loop.event_loop.create_future()

        def give(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        is_handler = self._loop.workers.are_current() and current_subscription() is not None
        with self._waiting_for(topic, is_handler=is_handler):
            request_id = self._loop.call(self._ask(topic, value, timeout_s, give))
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await answered
            except TimeoutError:
                raise RequestTimeoutError(topic, timeout_s) from None
            finally:
                self._replies.pop(request_id, None)
                self._cancel(request_id)  # does nothing if it was answered
        return read_answer(answer, topic)

    async def ping(self, timeout_s: float) -> list[Pong]:
        """See `AsyncBus.ping`."""
        with self._pinging() as pongs:
            await self._loop.wait_for(lambda node: False, timeout_s)
        return pongs

    async def _answer(self, handler: Handler, message: Message) -> None:
        if not self._may_run(message):
            return
        value: Any = None
        failure: BaseException | None = None
        try:
            value = handler(message)
            if inspect.isawaitable(value):
                value = await value
        except asyncio.CancelledError as error:
            value, failure = None, error
            raise
        except Exception as error:
            value, failure = None, error
            self._loop.log.fail("the handler that serves %r failed", message.topic)
        finally:
            self._reply(message, value, failure)
