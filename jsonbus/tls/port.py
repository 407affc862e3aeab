"""TlsPort: what the TLS connections of one port share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .certificate import ServerCertificate
from .connection import TlsConnection

logger = logging.getLogger("jsonbus.tls")

#: The time for a handshake, which takes some round trips.
HANDSHAKE_S = 10.0

#: Connections in their handshake; each takes some 50 KB. One more, and the oldest is given up: an
#: honest client is done in a fraction of a second, those that never finish are always older.
HANDSHAKES_MAX = 1_000

#: Bytes of one connection that are taken from its socket at a time.
RECEIVE_BYTES = 65_536

#: OpenSSL has some hundred reasons; each is worth one warning.
_REASONS_MAX = 100


class TlsPort:
    """TLS on one port. Use it in the event loop of its connections.

    `plain_answer` is sent to a client that does not speak TLS, in the words of its protocol.
    """

    def __init__(self, certificate: ServerCertificate, plain_answer: bytes) -> None:
        self.context = certificate.context
        self.plain_answer = plain_answer
        #: Shared: a connection copies what it received before the next one receives.
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._waiting: dict[TlsConnection, asyncio.TimerHandle] = {}  # the oldest first
        self._reasons: set[str] = set()
        self._done = self._failed = self._late = self._plain = 0

    def wrap(
        self, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> Callable[[], TlsConnection]:
        """Return the protocol factory for `create_server`, given that of the port without TLS."""
        return lambda: TlsConnection(self, make_protocol())

    def close(self) -> None:
        """Give up all handshakes. Connections that are open end by their protocols."""
        for connection in list(self._waiting):
            connection.abort()

    def stats(self) -> dict[str, int]:
        return {
            "tls_handshakes": self._done,
            "tls_handshakes_failed": self._failed,
            "tls_handshakes_late": self._late,
            "tls_handshakes_waiting": len(self._waiting),
            "tls_plain_clients": self._plain,
        }

    # ---- Called by connections

    def begin(self, connection: TlsConnection) -> None:
        """Note that a handshake begins, and limit its time."""
        if len(self._waiting) >= HANDSHAKES_MAX:
            self._give_up(next(iter(self._waiting)))
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(HANDSHAKE_S, self._give_up, connection)

    def end(self, connection: TlsConnection) -> bool:
        """Note that a handshake is over, in whatever way. Returns False if it was already."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def count_done(self) -> None:
        self._done += 1

    def count_failed(self, peer: str, reason: str) -> None:
        """Count and log a handshake that failed."""
        self._failed += 1
        self._log(peer, reason)

    def count_plain(self, peer: str) -> None:
        """Count and log a client that does not speak TLS."""
        self._plain += 1
        self._log(peer, "it does not speak TLS")

    def _give_up(self, connection: TlsConnection) -> None:
        self._late += 1
        self._log(connection.peer, "it did not finish in time")
        connection.give_up()

    def _log(self, peer: str, reason: str) -> None:
        """Log at WARNING what fails for a new reason, and all else at DEBUG."""
        is_new = reason not in self._reasons and len(self._reasons) < _REASONS_MAX
        if is_new:
            self._reasons.add(reason)
        level = logging.WARNING if is_new else logging.DEBUG
        logger.log(level, "the TLS handshake of the client at %s failed: %s", peer, reason)
