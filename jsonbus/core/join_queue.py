"""Messages that wait until the node is sure whether anybody wants them.

Bounded in messages and bytes. What does not fit pushes out the oldest, which are sent: holding may
cost packets, never data. Messages of one topic keep their order, because whoever sends a message
of a topic sends what is held of that topic first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from jsonbus.core.limits import HOLD_BYTES_MAX, HOLD_MESSAGES_MAX

Held = tuple[str, bytes, bool, bool]  # topic, payload, whether to be reliable, and retained


class HoldQueue:
    __slots__ = ("_bytes", "_messages")

    def __init__(self) -> None:
        self._messages: deque[Held] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(
        self, topic: str, payload: bytes, is_reliable: bool = False, is_retained: bool = False
    ) -> list[Held]:
        """Hold a message; what has to be sent instead, oldest first."""
        self._messages.append((topic, payload, is_reliable, is_retained))
        self._bytes += len(payload)
        overflow: list[Held] = []
        while len(self._messages) > HOLD_MESSAGES_MAX or self._bytes > HOLD_BYTES_MAX:
            oldest = self._messages.popleft()
            self._bytes -= len(oldest[1])
            overflow.append(oldest)
        return overflow

    def take_all(self) -> list[Held]:
        held = list(self._messages)
        self._messages.clear()
        self._bytes = 0
        return held

    def take_where(self, is_wanted: Callable[[str], bool]) -> list[Held]:
        """Messages of topics that are wanted by now, in order."""
        held = self.take_all()
        wanted = []
        for message in held:
            if is_wanted(message[0]):
                wanted.append(message)
            else:
                self._messages.append(message)
                self._bytes += len(message[1])
        return wanted
