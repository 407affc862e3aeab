"""SealedTransport: another transport, whose datagrams travel sealed.

The thread that sends seals, the thread that receives opens, and `rejoin`, which comes every few
seconds, reads the key file again and chooses the key. They share nothing but the ring and the key,
each one reference that `rejoin` sets and the others compare: there is no lock.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Sequence

from jsonbus.sealed.datagrams import SALT_BYTES, SEAL_BYTES, Sealer
from jsonbus.sealed.keys import KeySource
from jsonbus.sealed.opener import Opener
from jsonbus.transport.base import Received, Seal, Sender, Transport, TransportInfo

_log = logging.getLogger("jsonbus.sealed")

#: Addresses whose clock was warned of, which is done once.
_WARNED_MAX = 256


class SealedTransport:
    """See `Transport` for what each method promises. Owns the other transport, and closes it.

    With `hears_itself`, its own datagrams are opened like all others.
    """

    def __init__(self, inner: Transport, keys: KeySource, *, hears_itself: bool = False) -> None:
        self._inner = inner
        self._keys = keys
        self._hears_itself = hears_itself
        self._key = keys.ring.sealing_key(time.time())
        salt = os.urandom(SALT_BYTES)
        self._sealer = Sealer(keys.ring, self._key, salt)
        self._opener = Opener(
            keys.ring, None if hears_itself else salt, os.urandom, self._warn_of_clock
        )
        # What `send` was given last, and the same sealed: until it is sent, or something else is.
        self._run: Sequence[bytes] = ()
        self._sealed: Sequence[bytes] = ()
        self._reply: Sequence[bytes] = ()
        self._warned: set[str] = set()

    @property
    def send_failures(self) -> int:
        return self._inner.send_failures

    @property
    def offload_refusals(self) -> int:
        return self._inner.offload_refusals

    @property
    def own_addresses(self) -> frozenset[Sender]:
        return self._inner.own_addresses

    def sockets(self) -> list[socket.socket]:
        return self._inner.sockets()

    def receive(self, sock: socket.socket) -> Received | None:
        received = self._inner.receive(sock)
        if received is None:
            return None
        opener, sender = self._opener, received[1]
        if sender in self._inner.own_addresses and not self._hears_itself:
            return (), sender
        if opener.ring is not self._keys.ring:
            opener.renew(self._keys.ring)
        now, wall = time.monotonic(), time.time()
        opened = [opener.open(data, sender, now, wall) for data in received[0]]
        return [data for data in opened if data is not None], sender

    def send(self, run: Sequence[bytes]) -> bool:
        sealer = self._sealer
        if sealer.key is not self._key:
            sealer.use(self._keys.ring, self._key)
        if (self._reply or self._opener.replies) and not self._send_replies():
            return False
        if run is not self._run:
            self._run, self._sealed = run, tuple(map(sealer.seal, run))
        if not self._inner.send(self._sealed):
            return False
        self._run = self._sealed = ()
        return True

    def wait_writable(self, timeout_s: float) -> bool:
        return self._inner.wait_writable(timeout_s)

    def rejoin(self) -> bool:
        self._keys.renew()
        self._key = self._keys.ring.sealing_key(time.time())
        return self._inner.rejoin()

    def describe(self) -> TransportInfo:
        seal = Seal(self._keys.ring.bus, self._key.id, SEAL_BYTES, self._opener.figures)
        return self._inner.describe()._replace(seal=seal)

    def kernel_drops(self) -> int:
        return self._inner.kernel_drops()

    def queued_bytes(self) -> int | None:
        return self._inner.queued_bytes()

    def close(self) -> None:
        self._inner.close()

    def _send_replies(self) -> bool:
        """Send challenges and answers before the next datagrams; False if there is no room."""
        replies = self._opener.replies
        while self._reply or replies:
            if not self._reply:
                self._reply = (self._sealer.seal(replies.popleft()),)
            if not self._inner.send(self._reply):
                return False
            self._reply = ()
        return True

    def _warn_of_clock(self, address: str, ahead_s: float) -> None:
        if address in self._warned or len(self._warned) >= _WARNED_MAX:
            return
        self._warned.add(address)
        if math.isinf(ahead_s):
            return  # it has no time at all: no node of ours
        _log.warning(
            "the clock of %s is %.0f s %s this machine's, unless somebody plays back a recording: "
            "it is heard once it has shown, within seconds, that it is there; set the clock",
            address,
            abs(ahead_s),
            "ahead of" if ahead_s > 0 else "behind",
        )
