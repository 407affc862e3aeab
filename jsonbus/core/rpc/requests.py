"""Requests and replies: asking, and serving.

A request goes to the nodes that serve its topic. They name the topic in their entry of the
subscription list, so an asking node knows at once when no node serves it. Request and reply may be
lost: the asking node repeats its request, at growing intervals, until a reply comes or the time is
over. A serving node keeps its latest replies and answers a repeated request with them, so that a
handler runs once per request. Several nodes may serve one topic: the first reply counts.

A request that nobody waits for any more is not run. It carries the time that is left, as a duration
because the clocks of two hosts differ, and its handler is not begun after that time. An asking node
that gives up earlier sends a cancellation: a reply to itself, which older nodes ignore. Cancelling
does not stop a handler that runs already; its reply is not sent.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jsonbus.core.counters import Counters
from jsonbus.core.events import Event, ReplyReceived, RequestUnserved
from jsonbus.core.limits import (
    CANCEL_LEFT_S_MIN,
    REPLIES_KEPT_BYTES_MAX,
    REPLIES_KEPT_MAX,
    REQUEST_REPEAT_S,
    REQUESTS_SERVED_MAX,
)
from jsonbus.core.membership.joining import JOINING, SURE
from jsonbus.core.message import Message, Origin
from jsonbus.core.outbox import Outbox
from jsonbus.core.roster import Peer
from jsonbus.core.routing.router import Inbox, Router
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire import codec
from jsonbus.core.wire.encode import encode_reply, encode_request
from jsonbus.core.wire.encode_messages import MESSAGE_OVERHEAD_BYTES
from jsonbus.core.wire.frames import ReplyFrame, RequestFrame
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX, ERROR_CHARS_MAX, SERVED_PREFIX
from jsonbus.core.wire.topics import check_topic
from jsonbus.errors import ClosedError, LocalError, PayloadTooLargeError

# Requests and replies have more around them than messages: a topic, ids, an error text.
REQUEST_BYTES_MAX = DATAGRAM_BYTES_MAX - MESSAGE_OVERHEAD_BYTES - 1024

# Identifies a request permanently: node and incarnation that ask, and their count of requests.
RequestKey = tuple[str, int, int]


class Request(Message):
    """A message that wants an answer: give it to `Requests.reply`."""

    __slots__ = ("request_key", "timeout_s")

    def __init__(
        self, topic: str, value: Any, origin: Origin, request_key: RequestKey, timeout_s: float
    ) -> None:
        self.topic = topic
        self.value = value
        self.sequence = None
        self.origin = origin
        self.request_key = request_key
        self.timeout_s = timeout_s


@dataclass(slots=True)
class _Asked:
    """A request of this node that waits for its reply."""

    topic: str
    payload: bytes
    ends_at: float
    is_own: bool  # this node serves it itself
    repeat_s: float = REQUEST_REPEAT_S
    repeat_at: float = math.inf  # not sent yet


@dataclass(slots=True)
class _Served:
    """A request of any node that waits for its handler here, or whose handler runs."""

    ends_at: float  # until then somebody waits for the reply
    is_running: bool = False
    is_cancelled: bool = False  # only while it runs: one that waits is forgotten instead


class Requests:
    """The requests of one node: asking, serving, and a node that asks itself.

    `state` returns the node's state. `check_room(pattern)` raises LocalError if the node's entry
    cannot hold another served topic, and `announce(now)` sends the entry after that changed.
    """

    def __init__(
        self,
        settings: NodeSettings,
        router: Router,
        outbox: Outbox,
        counters: Counters,
        *,
        emit: Callable[[Event], None],
        state: Callable[[], str],
        check_room: Callable[[str], None],
        announce: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._router = router
        self._outbox = outbox
        self._counters = counters
        self._emit = emit
        self._state = state
        self._check_room = check_room
        self._announce = announce
        self._asked: dict[int, _Asked] = {}
        self._last_id = 0
        self._inboxes: dict[str, Inbox] = {}  # by topic that this node serves
        self._under_way: dict[RequestKey, _Served] = {}
        self._replies: OrderedDict[RequestKey, tuple[bytes, str | None]] = OrderedDict()
        self._replies_bytes = 0
        self._is_closed = False

    def close(self, now: float) -> None:
        """Cancel this node's requests. Send no replies from now on, and accept no requests."""
        for request_id in list(self._asked):
            self.cancel(request_id, now)
        self._is_closed = True

    # --- Asking ---------------------------------------------------------------------------------

    def request(self, topic: str, value: Any, timeout_s: float, now: float) -> int:
        """Ask the nodes that serve the topic; return the request's id.

        A ReplyReceived or RequestUnserved event with that id follows, or none in time.
        """
        self._check_open()
        topic = check_topic(topic)
        payload = codec.dumps(value, nan_as_null=self._settings.nan_as_null)
        if len(payload) > REQUEST_BYTES_MAX:
            raise PayloadTooLargeError(topic, len(payload), REQUEST_BYTES_MAX)
        self._last_id = request_id = self._last_id + 1
        is_own = topic in self._inboxes
        self._asked[request_id] = _Asked(topic, payload, now + timeout_s, is_own)
        if not is_own:
            self.review(now)
            return request_id
        own = self._settings
        wall = now + self._outbox.wall_offset_s
        origin = Origin(own.node, own.name, own.incarnation, wall, wall)
        key = (own.node, own.incarnation, request_id)
        self._accept(Request(topic, codec.loads(payload), origin, key, timeout_s), now)
        return request_id

    def cancel(self, request_id: int, now: float) -> bool:
        """Forget a request of this node; return whether there is now a datagram to send about it.

        Idempotent. One whose time is over needs no datagram: the serving nodes know.
        """
        asked = self._asked.pop(request_id, None)
        if asked is None or self._is_closed or asked.ends_at - now < CANCEL_LEFT_S_MIN:
            return False
        own = self._settings
        self._cancel_served((own.node, own.incarnation, request_id))
        if asked.repeat_at == math.inf:
            return False
        self._outbox.put_control(encode_reply(own.node, request_id, b"null", None), now)
        return True

    def receive_reply(self, frame: ReplyFrame, peer: Peer, now: float) -> None:
        if frame.to == peer.node:
            self._cancel_served((peer.node, frame.header.incarnation, frame.request_id))
        elif frame.to == self._settings.node:
            self._settle(frame.request_id, frame.value, peer.node, peer.name, frame.error)

    def review(self, now: float) -> None:
        """Send what can be sent, and give up what cannot, after the state or the list changed."""
        if not self._asked:
            return
        state = self._state()
        # Basic nodes do not announce what they serve: while one is here, only a timeout decides.
        is_certain = state == SURE and not self._router.has_basic_nodes
        is_certain = is_certain and self._settings.mode != "basic"
        may_ask = state != JOINING and not is_certain
        for request_id, asked in list(self._asked.items()):
            if asked.is_own and asked.topic in self._inboxes:
                continue  # the handler has it: other nodes must not run it, too
            if may_ask or self._is_served(asked.topic):
                if asked.repeat_at == math.inf:
                    self._counters.requests_sent += 1
                    self._ask(request_id, asked, now)
            elif is_certain:
                del self._asked[request_id]
                self._emit(RequestUnserved(request_id))

    def timer_at(self) -> float:
        return min((asked.repeat_at for asked in self._asked.values()), default=math.inf)

    def handle_timer(self, due: float, now: float) -> None:
        for request_id, asked in list(self._asked.items()):
            if asked.ends_at <= due:
                del self._asked[request_id]  # the front end keeps its own deadline, and is there
            elif asked.repeat_at <= due:
                self._counters.requests_repeated += 1
                self._ask(request_id, asked, now)

    def _is_served(self, topic: str) -> bool:
        return topic in self._inboxes or self._router.is_served_elsewhere(topic)

    def _ask(self, request_id: int, asked: _Asked, now: float) -> None:
        asked.repeat_at = min(now + asked.repeat_s, asked.ends_at)
        asked.repeat_s *= 2
        timeout_ms = max(1, round((asked.ends_at - now) * 1000))
        control = encode_request(asked.topic, asked.payload, request_id, timeout_ms)
        self._outbox.put_control(control, now)

    def _settle(self, request_id: int, value: Any, node: str, name: str, error: str | None) -> None:
        """Report the first reply to a request of this node."""
        if self._asked.pop(request_id, None) is None:
            self._counters.replies_too_late += 1
        else:
            self._emit(ReplyReceived(request_id, value, node, name, error))

    # --- Serving --------------------------------------------------------------------------------

    def serve(self, topic: str, sink: object, now: float) -> None:
        """Deliver requests for the topic to `sink`, as Request objects; answer with `reply`."""
        self._check_open()
        topic = check_topic(topic)
        self._check_room(SERVED_PREFIX + topic)
        if topic in self._inboxes:
            raise LocalError(f"this node serves {topic!r} already: close that first")
        self._inboxes[topic] = Inbox(sink)
        self._announce(now)

    def unserve(self, topic: str, now: float) -> None:
        """Stop serving the topic. Idempotent."""
        if self._inboxes.pop(topic, None) is not None:
            self._announce(now)

    def patterns(self) -> list[str]:
        """Return the patterns by which this node's entry names the topics it serves."""
        return [SERVED_PREFIX + topic for topic in self._inboxes]

    def receive_request(self, frame: RequestFrame, peer: Peer, now: float) -> None:
        header = frame.header
        key = (header.node, header.incarnation, frame.request_id)
        served = self._under_way.get(key)
        timeout_s = frame.timeout_ms / 1000
        if key in self._replies:
            self._send_reply(key, now)
        elif served is not None:
            # The datagram that was delayed least tells best how much time is left.
            served.ends_at = min(served.ends_at, now + timeout_s)
        elif frame.topic in self._inboxes:
            wall, sent_at = now + self._outbox.wall_offset_s, header.sent_us / 1_000_000
            origin = Origin(header.node, peer.name, header.incarnation, sent_at, wall)
            self._accept(Request(frame.topic, frame.value, origin, key, timeout_s), now)
        else:
            self._router.refuse_misplaced(frame.topic)

    def begin(self, request: Request, now: float) -> bool:
        """Return whether to run the handler now: False if nobody waits for the reply any more.

        To be called before the handler. True at most once for each request.
        """
        served = self._under_way.get(request.request_key)
        if served is None or served.is_running:
            return False  # it was cancelled or forgotten, and may have come again since
        if served.ends_at <= now:
            del self._under_way[request.request_key]
            self._counters.requests_expired += 1
            return False
        served.is_running = True
        return True

    def reply(self, request: Request, value: Any, error: str | None, now: float) -> str | None:
        """Answer a request; return the error that the asker sees, if there is one.

        A value that cannot be sent becomes such an error.

        A second answer, or one so late that the request was forgotten, is ignored. The answer to a
        request that was cancelled meanwhile is kept but not sent: should the request come again,
        its handler does not run again.
        """
        key, own = request.request_key, self._settings
        is_own = key[0] == own.node
        if self._is_closed and not is_own:
            return None
        served = self._under_way.pop(key, None)
        if served is None:
            return None
        self._counters.requests_served += 1
        payload, error = encode_answer(value, error, nan_as_null=own.nan_as_null)
        if is_own:
            self._settle(key[2], codec.loads(payload), own.node, own.name, error)
            return error
        self._replies[key] = (payload, error)
        self._replies_bytes += len(payload)
        while len(self._replies) > 1 and (
            len(self._replies) > REPLIES_KEPT_MAX or self._replies_bytes > REPLIES_KEPT_BYTES_MAX
        ):
            _, (oldest, _) = self._replies.popitem(last=False)
            self._replies_bytes -= len(oldest)
        if not served.is_cancelled:
            self._send_reply(key, now)
        return error

    def _accept(self, request: Request, now: float) -> None:
        """Hand a request to the inbox of its topic, unless too many are under way."""
        if len(self._under_way) >= REQUESTS_SERVED_MAX:
            # Handlers that never answer must not use up the room for good.
            for key, served in list(self._under_way.items()):
                if served.ends_at <= now:
                    del self._under_way[key]
                    self._counters.requests_expired += not served.is_running
        if len(self._under_way) >= REQUESTS_SERVED_MAX:
            self._counters.requests_refused += 1
            return
        self._under_way[request.request_key] = _Served(now + request.timeout_s)
        self._router.deliveries.add(self._inboxes[request.topic], request)

    def _cancel_served(self, key: RequestKey) -> None:
        """Forget a request that waits for its handler; drop the reply of one that runs."""
        served = self._under_way.get(key)
        if served is None:
            return
        if served.is_running:
            served.is_cancelled = True
        else:
            del self._under_way[key]
            self._counters.requests_cancelled += 1

    def _send_reply(self, key: RequestKey, now: float) -> None:
        self._outbox.put_control(encode_reply(key[0], key[2], *self._replies[key]), now)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the bus is closed")


def encode_answer(
    value: Any, error: str | None, *, nan_as_null: bool = False
) -> tuple[bytes, str | None]:
    """Return the reply's payload, and the error; a value that cannot be sent becomes an error."""
    if error is None:
        try:
            payload = codec.dumps(value, nan_as_null=nan_as_null)
        except ValueError as problem:
            error = f"the reply is not JSON: {problem}"
        else:
            size = len(payload)
            if size <= REQUEST_BYTES_MAX:
                return payload, None
            error = f"the reply takes {size:,} bytes, a datagram holds {REQUEST_BYTES_MAX:,}"
    return b"null", error[:ERROR_CHARS_MAX]
