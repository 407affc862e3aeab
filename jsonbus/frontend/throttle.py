"""Whether the next datagram may leave, by the rate limit and the receive queues of this host.

The pacer's answer is kept until it is used up, so that most datagrams only count it down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic

from jsonbus.core.pacing import Fill, Pacer
from jsonbus.transport.base import Sender, Transport


class Throttle:
    """One per bus, for the thread or task that is sending.

    `smallest_buffer` returns the smallest receive buffer of the nodes on this host, given its
    addresses.
    """

    def __init__(
        self,
        transport: Transport,
        rate_limit: float | None,
        smallest_buffer: Callable[[frozenset[str]], int | None],
    ) -> None:
        self._transport = transport
        self._smallest_buffer = smallest_buffer
        self._pacer = Pacer(rate_limit)
        self._per_datagram, self._per_byte = self._pacer.per_datagram, self._pacer.per_byte
        if (seal := transport.describe().seal) is not None:
            self._per_datagram += self._per_byte * seal.added_bytes
        self._left = 0.0  # of the pacer's last answer
        self._is_doubted = False
        self._senders: frozenset[Sender] = frozenset()
        self._hosts: frozenset[str] = frozenset()
        #: Whether there is a rate limit.
        self.is_limited = rate_limit is not None
        #: When the pacer was last asked.
        self.asked_at = -math.inf

    @property
    def retry_s(self) -> float:
        """The pause before the next try if it is not open."""
        return self._pacer.retry_s

    @property
    def backlog_bytes_max(self) -> float:
        """How much output may wait for it."""
        return self._pacer.backlog_bytes_max

    @property
    def figures(self) -> dict[str, int]:
        """The entries of stats()."""
        return {"pacing_waits": self._pacer.waits, "pacing_given_up": self._pacer.given_up}

    @property
    def room_bytes(self) -> float:
        """How much may leave before the pacer is asked again; not above 0 if it has to be."""
        return self._left / self._per_byte

    def is_open(self) -> bool:
        """Whether a datagram, however large, may leave now."""
        return (self._left > 0 and not self._is_doubted) or self._ask()

    def let_through(self, size_bytes: int, datagrams: int = 1) -> None:
        """Count datagrams that were sent."""
        self._left -= self._per_datagram * datagrams + self._per_byte * size_bytes

    def doubt(self) -> None:
        """Ask the pacer before the next datagram, because much may have changed."""
        self._is_doubted = True

    def _ask(self) -> bool:
        self._is_doubted = False
        fill = None
        queued = self._transport.queued_bytes()
        if queued is not None:
            limit = self._smallest_buffer(self._look_at_hosts())
            if limit is not None:
                fill = Fill(queued, limit)
        self.asked_at = monotonic()
        self._left = self._pacer.allowance(self._left, self.asked_at, fill)
        return self._left > 0

    def _look_at_hosts(self) -> frozenset[str]:
        """Return the addresses of this host: the same object until one changes."""
        senders = self._transport.own_addresses
        if senders is not self._senders:
            self._senders = senders
            self._hosts = frozenset(host for host, _ in senders)
        return self._hosts
