"""Requests and pings, as far as they are the same with threads and tasks.

A request waits for one answer; a ping collects pongs for a while. The loop hands in the core's
events.

Requests to a service are answered side by side, by as many workers as there are.

A handler may send a request. If its own bus serves the topic, the reply needs another worker of the
same bus. Whether one can be left is known beforehand, so a request that could only time out is
refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from jsonbus.core.events import Event, PongReceived, ReplyReceived, RequestUnserved
from jsonbus.core.message import Message
from jsonbus.core.node import Node
from jsonbus.core.rpc.requests import Request
from jsonbus.errors import ClosedError, LocalError, NobodyServesError, RequestFailedError
from jsonbus.frontend.options import Handler

if TYPE_CHECKING:
    from jsonbus.frontend.loop import BaseLoop

#: The length of a failure's text. It travels in one datagram, where a character may take six bytes.
FAILURE_CHARACTERS_MAX = 150

#: What a request gets: a reply, the news that nobody serves it, or None when the bus is closed.
Answer = ReplyReceived | RequestUnserved | None


@dataclass(frozen=True, slots=True)
class Pong:
    """A node that answered a ping."""

    #: The id of the node.
    node: str
    name: str
    round_trip_s: float


class BaseRequests:
    """The requests and pings of one bus; the base of `Requests` in both front ends.

    `lock` guards which handlers wait.
    """

    def __init__(self, loop: BaseLoop[Any, Any], lock: AbstractContextManager[Any]) -> None:
        self._loop = loop
        # Filled in the same step as the node's `request` or `ping` (under the loop's lock, or
        # without awaiting in between), before the node can report anything about it.
        self._replies: dict[int, Callable[[Answer], None]] = {}
        self._pings: dict[int, list[Pong]] = {}
        self._waits = 0  # handlers that wait for a service of this bus
        self._waits_lock = lock

    def give(self, event: Event) -> bool:
        """Hand an answer to whoever waits for it; False if the event is not an answer."""
        match event:
            case ReplyReceived() | RequestUnserved():
                give = self._replies.pop(event.request_id, None)
                if give is not None:
                    give(event)
            case PongReceived(ping_id, node, name, round_trip_s):
                pongs = self._pings.get(ping_id)
                if pongs is not None:
                    pongs.append(Pong(node, name, round_trip_s))
            case _:
                return False
        return True

    def give_up(self) -> None:
        """End all waits because the bus is closed."""
        while self._replies:
            self._replies.popitem()[1](None)

    def make_service(self, handler: Handler) -> Handler:
        """Return a handler of requests that replies with what `handler` returns."""
        return partial(self._answer, handler)

    def _answer(self, handler: Handler, message: Message) -> Any:
        """Run the handler of a service if it `_may_run`, then `_reply`."""
        raise NotImplementedError

    def _may_run(self, request: Message) -> bool:
        """Begin a request; False if nobody waits for its reply any more."""
        assert isinstance(request, Request)
        return self._loop.look(lambda node, now: node.requests.begin(request, now))

    def _reply(self, request: Message, value: Any, error: BaseException | None) -> None:
        """Send the result of a service's handler, unless the bus is closed."""
        assert isinstance(request, Request)
        failure = None if error is None else describe_failure(error)
        if self._loop.is_closed:
            return
        told = self._loop.call(lambda node, now: node.requests.reply(request, value, failure, now))
        if told is not None and error is None:
            self._loop.log.fail_to_reply(request.topic, told)

    def _ask(
        self, topic: str, value: Any, timeout_s: float, give: Callable[[Answer], None]
    ) -> Callable[[Node, float], int]:
        """Return a call for the node that sends the request and returns its id."""

        def act(node: Node, now: float) -> int:
            request_id = node.requests.request(topic, value, timeout_s, now)
            self._replies[request_id] = give
            return request_id

        return act

    def _cancel(self, request_id: int) -> None:
        """End a request without an answer, and have the serving nodes told if it ends early."""
        if self._loop.look(lambda node, now: node.requests.cancel(request_id, now)):
            self._loop.tend_soon()  # to send here could wait, while the caller's time is over

    @contextmanager
    def _pinging(self) -> Iterator[list[Pong]]:
        """Send a ping; give a list to which the pongs that came are added at the end."""

        def act(node: Node, now: float) -> int:
            ping_id = node.ping(now)
            self._pings[ping_id] = []
            return ping_id

        ping_id, pongs = self._loop.call(act), list[Pong]()
        try:
            yield pongs
        finally:
            pongs += sorted(self._pings.pop(ping_id), key=lambda pong: pong.round_trip_s)

    @contextmanager
    def _waiting_for(self, topic: str, *, is_handler: bool) -> Iterator[None]:
        """Note that a handler of this bus waits, if the bus serves the topic itself.

        Raises LocalError if the wait could not end.
        """
        if not is_handler or topic not in self._loop.services:
            yield
            return
        with self._waits_lock:
            if self._waits + 1 >= self._loop.workers_max:
                raise LocalError(
                    f"all workers of this bus would wait for {topic!r}, which it serves itself: "
                    "give it more workers, or call the function instead"
                )
            self._waits += 1
        try:
            yield
        finally:
            with self._waits_lock:
                self._waits -= 1


def read_answer(answer: Answer, topic: str) -> object:
    """Return the value of a reply; raise the error that a request gets instead of one."""
    if answer is None:
        raise ClosedError(f"the bus was closed before a reply to {topic!r} came")
    if isinstance(answer, RequestUnserved):
        raise NobodyServesError(topic)
    if answer.error is not None:
        raise RequestFailedError(topic, answer.node, answer.error)
    return answer.value


def describe_failure(error: BaseException) -> str:
    """Return the text about a failed handler that the requesting node gets."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= FAILURE_CHARACTERS_MAX else text[: FAILURE_CHARACTERS_MAX - 1] + "…"
