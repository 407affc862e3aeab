"""What the core tells: logged, or handed to whoever waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from jsonbus.core.events import (
    DatagramRejected,
    Event,
    GapFound,
    MasterMissing,
    MessagesLost,
    NodeJoined,
    NodeLeft,
    PongReceived,
    ReplyReceived,
    RequestUnserved,
    StateChanged,
)
from jsonbus.errors import ClosedError, NobodyServesError, RequestFailedError

_log = logging.getLogger("jsonbus.bus")

#: Causes whose warning was given. Beyond, new causes are debug lines only: whoever has that many
#: different troubles has read enough warnings.
WARNED_MAX = 1024

#: Of a failure's text. It travels in one datagram, in which a character may take six bytes.
FAILURE_CHARACTERS_MAX = 150

#: What a request gets: the reply, the news that nobody serves it, or None when the bus is closed.
Answer = ReplyReceived | RequestUnserved | None


@dataclass(frozen=True, slots=True)
class Pong:
    """A node that answered a ping."""

    node: str
    name: str
    round_trip_s: float


class BusLog:
    """The log of one bus. Safe from any thread: at worst two of them warn of the same cause.

    Text that came from the network is logged as its repr: it cannot forge a line.
    """

    def __init__(self, bus_name: str) -> None:
        self._bus = bus_name
        self._warned: set[Hashable] = set()

    def warn_once(self, cause: Hashable, text: str, *arguments: object) -> None:
        """A warning the first time for a cause, then a debug line."""
        level = logging.DEBUG
        if cause not in self._warned and len(self._warned) < WARNED_MAX:
            self._warned.add(cause)
            level = logging.WARNING
        _log.log(level, "%s: " + text, self._bus, *arguments)

    def fail(self, text: str, *arguments: object) -> None:
        """An exception of the application's, or a bug: an error with the traceback at hand."""
        _log.exception("%s: " + text, self._bus, *arguments)

    def report(self, event: Event) -> None:
        """One line for an event that people want to know of."""
        match event:
            case NodeJoined(node, name):
                _log.info("%s: node %r (%s) joined", self._bus, name, node)
            case NodeLeft(node, name, "left"):
                _log.info("%s: node %r (%s) left", self._bus, name, node)
            case NodeLeft(node, name, _):
                _log.info("%s: node %r (%s) expired: not heard any more", self._bus, name, node)
            case StateChanged(state, reason):
                _log.debug("%s: = %s: %s", self._bus, state, reason)
            case MasterMissing():
                self.warn_once(
                    MasterMissing,
                    "no master answers, so this node may not know every subscription: "
                    "start one node with --master",
                )
            case DatagramRejected(cause, sender, detail):
                # The core reports each cause and sender once.
                _log.warning(
                    "%s: datagrams from %s are dropped (%s: %r)", self._bus, sender, cause, detail
                )
            case MessagesLost(node, name, count):
                self.warn_once(
                    (MessagesLost, node),
                    "%d messages of node %r (%s) did not arrive; reliable ones are asked for again",
                    count,
                    name,
                    node,
                )
            case GapFound(node, name, topic, first, last):
                self.warn_once(
                    (GapFound, node, topic),
                    "%d messages of node %r (%s) to the reliable topic %r were given up",
                    last - first + 1,
                    name,
                    node,
                    topic,
                )
            case _:
                pass


class Answers:
    """Who waits for which reply or pong.

    `expect_…` is called in the same breath as the node's `request` or `ping`, before the node
    can tell anything about it: under the lock, or without awaiting in between.
    """

    def __init__(self) -> None:
        self._requests: dict[int, Callable[[Answer], None]] = {}
        self._pings: dict[int, list[Pong]] = {}

    def expect_reply(self, request_id: int, give: Callable[[Answer], None]) -> None:
        self._requests[request_id] = give

    def expect_pongs(self, ping_id: int) -> None:
        self._pings[ping_id] = []

    def forget_reply(self, request_id: int) -> None:
        self._requests.pop(request_id, None)

    def take_pongs(self, ping_id: int) -> list[Pong]:
        """What came so far, nearest node first; whatever comes later is nobody's."""
        return sorted(self._pings.pop(ping_id, ()), key=lambda pong: pong.round_trip_s)

    def give(self, event: Event) -> bool:
        """Hand an event to whoever waits for it; False if it is not of that kind."""
        match event:
            case ReplyReceived() | RequestUnserved():
                give = self._requests.pop(event.request_id, None)
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
        """The bus is closed: nobody gets an answer any more."""
        while self._requests:
            self._requests.popitem()[1](None)


def handle_events(events: Iterable[Event], answers: Answers, log: BusLog) -> None:
    """Hand on what somebody waits for, log the rest. Runs without a lock: logging may block."""
    for event in events:
        if not answers.give(event):
            log.report(event)


def read_answer(answer: Answer, topic: str) -> object:
    """The value of a reply; raises what a request raises instead of one."""
    if answer is None:
        raise ClosedError(f"the bus was closed before a reply to {topic!r} came")
    if isinstance(answer, RequestUnserved):
        raise NobodyServesError(topic)
    if answer.error is not None:
        raise RequestFailedError(topic, answer.node, answer.error)
    return answer.value


def describe_failure(error: BaseException) -> str:
    """What the node that asked is told about a handler that failed."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= FAILURE_CHARACTERS_MAX else text[: FAILURE_CHARACTERS_MAX - 1] + "…"
