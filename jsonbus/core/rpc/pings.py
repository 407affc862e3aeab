"""Pings: round trips to every node that hears."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from jsonbus.core.events import Event, PongReceived
from jsonbus.core.limits import PINGS_OPEN_MAX, PONG_AT_ONCE_NODES, PONG_SPREAD_S, PONGS_WAITING_MAX
from jsonbus.core.membership.membership import Membership
from jsonbus.core.outbox import Outbox
from jsonbus.core.roster import Peer
from jsonbus.core.wire.encode import encode_ping, encode_pong
from jsonbus.core.wire.frames import PingFrame, PongFrame, Totals


class Pings:
    """This node's pings, and the pongs that wait to be sent. A pong describes its sender."""

    def __init__(
        self,
        own_node: str,
        membership: Membership,
        totals: Callable[[], Totals],
        outbox: Outbox,
        rng: random.Random,
        emit: Callable[[Event], None],
    ) -> None:
        self._own_node = own_node
        self._membership = membership
        self._totals = totals
        self._outbox = outbox
        self._rng = rng
        self._emit = emit
        self._last_id = 0
        self._sent_at: dict[int, float] = {}
        self._pongs: list[tuple[float, str, int]] = []

    def start(self, now: float) -> int:
        """Send a ping; return its id."""
        self._last_id += 1
        if len(self._sent_at) >= PINGS_OPEN_MAX:
            del self._sent_at[next(iter(self._sent_at))]
        self._sent_at[self._last_id] = now
        self._outbox.put_control(encode_ping(self._last_id), now)
        return self._last_id

    def receive_ping(self, frame: PingFrame, peer: Peer, now: float) -> None:
        """Answer at once in a small group, after a random delay in a large one."""
        if len(self._membership.list) <= PONG_AT_ONCE_NODES:
            self._send_pong(frame.header.node, frame.ping_id, now)
        elif len(self._pongs) < PONGS_WAITING_MAX:
            at = now + self._rng.random() * PONG_SPREAD_S
            self._pongs.append((at, frame.header.node, frame.ping_id))

    def receive_pong(self, frame: PongFrame, peer: Peer, now: float) -> None:
        if frame.to != self._own_node:
            return
        sent_at = self._sent_at.get(frame.ping_id)
        if sent_at is not None:
            self._emit(PongReceived(frame.ping_id, peer.node, peer.name, now - sent_at))

    def timer_at(self) -> float:
        return min(self._pongs)[0] if self._pongs else math.inf

    def handle_timer(self, due: float, now: float) -> None:
        if not self._pongs:
            return
        waiting = self._pongs
        self._pongs = [pong for pong in waiting if pong[0] > due]
        for _, to, ping_id in sorted(pong for pong in waiting if pong[0] <= due):
            self._send_pong(to, ping_id, now)

    def _send_pong(self, to: str, ping_id: int, now: float) -> None:
        control = encode_pong(to, ping_id, self._membership.about, self._totals())
        self._outbox.put_control(control, now)
