"""Requests and pings with threads.

Each request waits on a separate lock, which the receive thread releases when the answer arrives.
Many threads may wait, and each is woken for its answer only.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.core.message import Message
from jsonbus.errors import RequestTimeoutError
from jsonbus.frontend.options import Handler
from jsonbus.frontend.requests import Answer, BaseRequests, Pong, read_answer
from jsonbus.sync.thread_pool import current_subscription

if TYPE_CHECKING:
    from jsonbus.sync.loop import Loop


class Requests(BaseRequests):
    """The requests of one `Bus`. Any thread."""

    _loop: Loop

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, threading.Lock())

    def request(self, topic: str, value: Any, timeout_s: float) -> Any:
        """See `Bus.request`."""
        deadline = monotonic() + timeout_s
        given: list[Answer] = []
        answered = threading.Lock()
        answered.acquire()

        def give(answer: Answer) -> None:
            given.append(answer)
            answered.release()

        workers = self._loop.workers
        is_handler = workers.are_current() and current_subscription() is not None
        with self._waiting_for(topic, is_handler=is_handler):
            request_id = self._loop.call(self._ask(topic, value, timeout_s, give))
            workers.will_wait()
            try:
                answered.acquire(timeout=max(0.0, deadline - monotonic()))
            finally:
                self._replies.pop(request_id, None)
                if not given:
                    self._cancel(request_id)
        if not given:
            raise RequestTimeoutError(topic, timeout_s)
        return read_answer(given[0], topic)

    def ping(self, timeout_s: float) -> list[Pong]:
        """See `Bus.ping`."""
        with self._pinging() as pongs:
            self._loop.wait_for(lambda node: False, timeout_s)
        return pongs

    def _answer(self, handler: Handler, message: Message) -> None:
        if not self._may_run(message):
            return
        value, failure = None, None
        try:
            value = handler(message)
        except BaseException as error:
            failure = error
            self._loop.log.fail("the handler that serves %r failed", message.topic)
        self._reply(message, value, failure)
