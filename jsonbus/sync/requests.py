"""Requests and pings: ask and wait for the answer; serve others.

A request waits on a lock of its own, which the receive thread opens when the answer is there: many
threads may wait, and each is woken for its own answer only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from jsonbus.core.message import Message
from jsonbus.core.node import Node
from jsonbus.core.rpc.requests import Request
from jsonbus.errors import RequestTimeoutError
from jsonbus.frontend.events import Answer, Pong, describe_failure, read_answer
from jsonbus.frontend.waits import ServiceWaits
from jsonbus.sync.loop import Loop
from jsonbus.sync.subscription import Handler, Subscription
from jsonbus.sync.thread_pool import current_subscription


class Requests:
    """What `Bus` offers about requests; `loop` is its loop. Any thread."""

    def __init__(self, loop: Loop, workers: int) -> None:
        self._loop = loop
        self._services: dict[str, Subscription] = {}
        self._waits = ServiceWaits(workers)
        self._waits_lock = threading.Lock()

    def serve(self, service: Subscription, node: Node, now: float) -> None:
        """Have the node bring requests to the service. Under the node's lock."""
        node.serve(service.pattern, service, now)
        self._services[service.pattern] = service

    def stop_serving(self, service: Subscription, node: Node, now: float) -> None:
        """The reverse. Under the node's lock."""
        node.unserve(service.pattern, now)
        del self._services[service.pattern]

    def answer(self, handler: Handler, message: Message) -> None:
        """Run the handler of a service, and send what it gives. As a handler."""
        assert isinstance(message, Request)
        value, failure = None, None
        try:
            value = handler(message)
        except BaseException as error:
            failure = describe_failure(error)
            self._loop.log.fail("the handler that serves %r failed", message.topic)
        if not self._loop.is_closed:
            self._loop.call(lambda node, now: node.reply(message, value, failure, now))

    def request(self, topic: str, value: Any, timeout_s: float) -> Any:
        """See `Bus.request`."""
        deadline = monotonic() + timeout_s
        given: list[Answer] = []
        answered = threading.Lock()
        answered.acquire()

        def give(answer: Answer) -> None:
            given.append(answer)
            answered.release()

        def ask(node: Node, now: float) -> int:
            request_id = node.request(topic, value, timeout_s, now)
            self._loop.answers.expect_reply(request_id, give)
            return request_id

        with self._waiting_for(topic):
            request_id = self._loop.call(ask)
            self._loop.workers.will_wait()
            try:
                answered.acquire(timeout=max(0.0, deadline - monotonic()))
            finally:
                self._loop.answers.forget_reply(request_id)
                if not given:
                    self._loop.look(lambda node, now: node.cancel_request(request_id))
        if not given:
            raise RequestTimeoutError(topic, timeout_s)
        return read_answer(given[0], topic)

    def ping(self, timeout_s: float) -> list[Pong]:
        """See `Bus.ping`."""

        def start(node: Node, now: float) -> int:
            ping_id = node.ping(now)
            self._loop.answers.expect_pongs(ping_id)
            return ping_id

        ping_id = self._loop.call(start)
        try:
            self._loop.wait_for(lambda node: False, timeout_s)
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
        with self._waits_lock:
            self._waits.begin(handler, service, topic)
        try:
            yield
        finally:
            with self._waits_lock:
                self._waits.end(handler)
