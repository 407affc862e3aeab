"""Bounds the memory that messages of all channels take, and decides which may go on reading.

Each channel bounds the complete messages that wait for its application. But a message may have 64
MiB, and a node thousands of channels: so all of them together have a bound, too. When it is
reached, only channels that hold very little are read. If incomplete messages took all of it, none
could ever be completed: therefore one of them, the *favourite*, goes on until it is complete.
Complete messages wait until applications take them.
"""

from __future__ import annotations

from collections.abc import Hashable

from jsonbus.core.channel.limits import MEMORY_BYTES_MAX, MEMORY_EACH_BYTES


class Budget:
    """What each channel holds, by any key. One thread."""

    def __init__(
        self, bytes_max: int = MEMORY_BYTES_MAX, each_bytes: int = MEMORY_EACH_BYTES
    ) -> None:
        self._bytes_max = bytes_max
        self._each_bytes = each_bytes
        self._held: dict[
            Hashable, tuple[int, int]
        ] = {}  # bytes of complete messages, of partial ones
        self._complete = 0
        self._partial = 0
        self._favourite: Hashable | None = None

    @property
    def held_bytes(self) -> int:
        return self._complete + self._partial

    @property
    def is_short(self) -> bool:
        """True if not everybody may read."""
        return self._complete + self._partial >= self._bytes_max

    def note(self, channel: Hashable, complete: int, partial: int) -> bool:
        """Note what a channel holds now; return whether others that had to wait may go on."""
        was_short, was_full = self.is_short, self._is_full
        had_complete, had_partial = self._held.get(channel, (0, 0))
        self._complete += complete - had_complete
        self._partial += partial - had_partial
        if complete or partial:
            self._held[channel] = complete, partial
        else:
            self._held.pop(channel, None)
        # The bytes may have begun the next message, too. That is no reason to stay the favourite,
        # of which nothing more is read if its application takes nothing.
        is_complete = not partial or partial < had_partial or complete > had_complete
        is_done = channel == self._favourite and is_complete
        if is_done:
            self._favourite = None
        return was_short and (is_done or not self.is_short or (was_full and not self._is_full))

    def may_read(self, channel: Hashable) -> bool:
        """Return whether a channel may be read now."""
        if not self.is_short:
            return True
        complete, partial = self._held.get(channel, (0, 0))
        if complete + partial < self._each_bytes:
            return True
        if self._is_full or not partial:
            return False
        if self._favourite is None:
            self._favourite = channel
        return channel == self._favourite

    @property
    def _is_full(self) -> bool:
        """Return whether complete messages take everything: then even a favourite waits."""
        return self._complete >= self._bytes_max
