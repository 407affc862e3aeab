"""Requests and replies of one node: asking, serving, and a node that asks itself.

requests.py has the two halves; here they meet with what is known of the bus: who serves what, and
whether this node may rely on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonbus.core.counters import Counters
from jsonbus.core.events import Event
from jsonbus.core.membership.joining import JOINING, SURE
from jsonbus.core.message import Origin
from jsonbus.core.outbox import Outbox
from jsonbus.core.routing.router import Deliveries, Inbox, Router
from jsonbus.core.rpc.requests import Asking, Request, Serving, encode_answer
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire import codec
from jsonbus.core.wire.encode_messages import MESSAGE_OVERHEAD_BYTES
from jsonbus.core.wire.frames import ReplyFrame, RequestFrame
from jsonbus.core.wire.limits import DATAGRAM_BYTES_MAX
from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.errors import LocalError, PayloadTooLargeError

# Requests and replies have more around them than messages: a topic, ids, an error text.
REQUEST_BYTES_MAX = DATAGRAM_BYTES_MAX - MESSAGE_OVERHEAD_BYTES - 1024


class Dialogue:
    """Topics are valid wherever they are given."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        router: Router,
        outbox: Outbox,
        deliveries: Deliveries,
        counters: Counters,
        emit: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        self._router = router
        self._deliveries = deliveries
        self._asking = Asking(outbox, counters, emit)
        self._serving = Serving(outbox, counters)

    def serve(self, topic: str, sink: object) -> None:
        if topic in self._serving.inboxes:
            raise LocalError(f"this node serves {topic!r} already: close that first")
        self._serving.inboxes[topic] = Inbox(sink)

    def unserve(self, topic: str) -> bool:
        """False if it was not served."""
        return self._serving.inboxes.pop(topic, None) is not None

    def serves(self, topic: str) -> bool:
        return topic in self._serving.inboxes

    def patterns(self) -> list[str]:
        """What the own entry says of the topics served."""
        return [SERVED_PREFIX + topic for topic in self._serving.inboxes]

    def request(
        self, topic: str, value: Any, timeout_s: float, origin: Origin, state: str, now: float
    ) -> int:
        """See Node.request; `origin` is this node's own."""
        payload = codec.dumps(value)
        if len(payload) > REQUEST_BYTES_MAX:
            raise PayloadTooLargeError(topic, len(payload), REQUEST_BYTES_MAX)
        request_id = self._asking.ask(topic, payload, timeout_s, now)
        if topic not in self._serving.inboxes:
            self.look_again(state, now)
            return request_id
        key = (self._settings.node, self._settings.incarnation, request_id)
        value = codec.loads(payload)
        request = self._serving.accept(topic, value, origin, key, timeout_s, now)
        if request is not None:
            self._deliver(request)
        return request_id

    def cancel(self, request_id: int) -> None:
        self._asking.cancel(request_id)

    def reply(
        self, request: Request, value: Any, error: str | None, now: float, *, is_closed: bool
    ) -> None:
        """See Node.reply."""
        key = request.request_key
        payload, error = encode_answer(value, error, REQUEST_BYTES_MAX)
        if key[0] == self._settings.node:
            if self._serving.finish(key):
                node, name = self._settings.node, self._settings.name
                self._asking.settle(key[2], codec.loads(payload), node, name, error)
        elif not is_closed:
            self._serving.reply(key, payload, error, now)

    def receive_request(self, frame: RequestFrame, origin: Origin, now: float) -> None:
        request = self._serving.receive(frame, origin, now)
        if request is not None:
            self._deliver(request)

    def receive_reply(self, frame: ReplyFrame, name: str) -> None:
        if frame.to == self._settings.node:
            self._asking.receive(frame, name)

    def look_again(self, state: str, now: float) -> None:
        """The state, or what is served, changed: send what can be sent, give up what cannot."""
        if not self._asking:
            return
        # Basic nodes do not tell what they serve: with one here, only time tells.
        is_certain = state == SURE and not self._router.has_basic_nodes
        is_certain = is_certain and self._settings.mode != "basic"
        self._asking.look(self._is_served, may_ask=state != JOINING, is_certain=is_certain, now=now)

    def timer_at(self) -> float:
        return self._asking.timer_at()

    def handle_timer(self, due: float, now: float) -> None:
        if self._asking:
            self._asking.handle_timer(due, now)

    def _is_served(self, topic: str) -> bool:
        return self.serves(topic) or self._router.is_served_elsewhere(topic)

    def _deliver(self, request: Request) -> None:
        self._deliveries.add(self._serving.inboxes[request.topic], request)
