"""Sessions: the browsers that have shown a token to the dashboard, in memory and bounded.

A browser gets a random key in a cookie, not the token. The gateway keeps the digest of the key and
the rights of the token, so that no disk, URL or memory dump holds anything to log in with.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

#: A session ends when it was unused for IDLE_S_MAX, and at the age of AGE_S_MAX.
IDLE_S_MAX = 12 * 3600.0
AGE_S_MAX = 7 * 86_400.0

#: More than one bus has observers; the session unused for longest ends first.
SESSIONS_MAX = 1_000


@dataclass(slots=True, eq=False)
class Session:
    """The rights of one browser, until `is_over`."""

    rights: frozenset[str]
    clock: Callable[[], float] = time.monotonic
    is_lasting: bool = False  # it ends only with the gateway
    is_ended: bool = False
    began_at: float = field(init=False)
    used_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_at = self.used_at = self.clock()

    @property
    def is_over(self) -> bool:
        if self.is_ended or self.is_lasting:
            return self.is_ended
        now = self.clock()
        return now - self.used_at > IDLE_S_MAX or now - self.began_at > AGE_S_MAX

    def use(self) -> None:
        """Note that the session is in use: it does not become idle."""
        self.used_at = self.clock()


class Sessions:
    """The sessions of one gateway."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, rights: frozenset[str]) -> str:
        """Begin a session; return the key that its browser has to show."""
        self._drop_old()
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)[1].is_ended = True
        key = secrets.token_urlsafe(32)
        self._sessions[_digest(key)] = Session(rights, self._clock)
        return key

    def find(self, key: str | None) -> Session | None:
        """Return the session with this key and note its use; None if there is none."""
        if not key:
            return None
        digest = _digest(key)
        # Found by its digest, so the time of the search reveals nothing about a key.
        session = self._sessions.get(digest)
        if session is None:
            return None
        if session.is_over:
            del self._sessions[digest]
            return None
        session.use()
        self._sessions.move_to_end(digest)
        return session

    def end(self, key: str | None) -> None:
        """End a session: the browser logs out. Idempotent."""
        session = self._sessions.pop(_digest(key or ""), None)
        if session is not None:
            session.is_ended = True

    def _drop_old(self) -> None:
        for digest in [each for each, session in self._sessions.items() if session.is_over]:
            del self._sessions[digest]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
