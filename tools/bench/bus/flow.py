"""How fast a publisher may go, and what a subscriber counts: the same for every system.

Theory of operation. A datagram that finds the receiver's buffer full is lost, and a system that
loses messages would look cheap. So at most `window` messages are under way: every subscriber writes
how many it has handled into its slot of a piece of shared memory, every few hundred messages, and
the publisher looks there as often. With too many under way it sleeps until half of them were
handled, so that waking up costs little per message. Floors, jsonbus and peers all pay the same for
this: some 0.05 µs per message. What a thread spends on waiting is taken off its publisher's CPU
time, else a system whose subscriber is the slower side would pay for looking at the slots. In an
event loop waiting cannot be told from the system's own work, and is part of the figure.

If nothing moves for STALL_S, what is under way counts as lost and the publisher goes on: a run ends
whatever happens, and tells how much arrived.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from time import monotonic, monotonic_ns, process_time, thread_time
from typing import Any

SLOT_BYTES = 8
#: How many times per window a subscriber tells how far it is, and a publisher looks.
STEPS_PER_WINDOW = 8
PAUSE_S = 0.0005
STALL_S = 5.0


def make_slots(count: int) -> int:
    """Shared memory for so many subscribers, all at 0; a file descriptor to be inherited."""
    fd = os.memfd_create("bench-slots")
    os.ftruncate(fd, SLOT_BYTES * count)
    return fd


def open_slots(fd: int, count: int) -> memoryview:
    """The slots as integers, seen by all processes."""
    return memoryview(mmap.mmap(fd, SLOT_BYTES * count)).cast("q")


class Credit:
    """The publisher's side: how many more messages it may publish now."""

    def __init__(self, slots: memoryview, window: int) -> None:
        self._slots = slots
        self._window = window
        self._step = max(1, window // STEPS_PER_WINDOW)
        self._published = 0  # since the beginning, like the slots
        self._moved_at = 0.0
        self._least = 0
        self.waited_cpu_s = 0.0

    def begin(self) -> None:
        """All that was published before has arrived, or never will."""
        self._published = min(self._slots)
        self.waited_cpu_s = 0.0

    def chunks(self, count: int, push: Callable[[], None]) -> Iterator[int]:
        """Numbers of messages to publish next, `count` in all.

        Before it waits it calls `push`: what the publisher keeps back would never be handled.
        """
        while count:
            if self._is_used_up(self._window):
                push()
                begun_cpu_s = thread_time()
                while self._is_used_up(self._window // 2):
                    time.sleep(PAUSE_S)
                self.waited_cpu_s += thread_time() - begun_cpu_s
            chunk = self._take(count)
            count -= chunk
            yield chunk

    async def async_chunks(self, count: int) -> AsyncIterator[int]:
        """The same in an event loop."""
        import asyncio  # here: a process without an event loop does without it

        while count:
            if self._is_used_up(self._window):
                # Other processes set no event.
                while self._is_used_up(self._window // 2):  # noqa: ASYNC110
                    await asyncio.sleep(PAUSE_S)
            chunk = self._take(count)
            count -= chunk
            yield chunk

    def _take(self, count: int) -> int:
        chunk = min(self._step, count)
        self._published += chunk
        self._moved_at = monotonic()
        return chunk

    def _is_used_up(self, window: int) -> bool:
        least = min(self._slots)
        if least != self._least:
            self._least = least
            self._moved_at = monotonic()
        if self._published - least <= window - self._step:
            return False
        if monotonic() - self._moved_at > STALL_S:
            self._published = least
            return False
        return True


class Tally:
    """The subscriber's side: counts, and the instants and CPU times that belong to them."""

    def __init__(
        self, slots: memoryview, index: int, window: int, *, has_stamps: bool, handler_us: float
    ) -> None:
        self._slots = slots
        self._index = index
        self._step = max(1, window // STEPS_PER_WINDOW)
        self._has_stamps = has_stamps
        self._handler_us = handler_us
        self._expected = 1  # the first message is told at once
        self._begun_at_count = 0
        self._begun_cpu_s = 0.0
        self._ended_cpu_s: float | None = None
        self._ended_at: float | None = None
        self._delays_ns: list[int] = []
        self._count, self._get_count, self._set_mark = self._make_counter()

    def handler(self, value_of: Callable[[Any], Any]) -> Callable[[Any], None]:
        """What to call with every message; `value_of` gets the value out of one."""
        count, delays_ns, busy_s = self._count, self._delays_ns, self._handler_us / 1e6
        if self._has_stamps:

            def handle_stamp(message: Any) -> None:
                now_ns = monotonic_ns()
                sent_ns = value_of(message).get("at")
                if sent_ns is not None:  # probes have none
                    delays_ns.append(now_ns - sent_ns)
                count(message)

            return handle_stamp
        if busy_s:

            def handle_slowly(message: Any) -> None:
                until = monotonic() + busy_s
                while monotonic() < until:
                    pass
                count(message)

            return handle_slowly
        return count

    def begin(self, expected: int) -> None:
        """From now on, so many messages; what came before does not count."""
        self._begun_at_count = self._get_count()
        self._expected = self._begun_at_count + expected
        self._ended_cpu_s = self._ended_at = None
        self._delays_ns.clear()
        self._set_mark(min(self._expected, self._begun_at_count + self._step))
        self._begun_cpu_s = process_time()

    def report(self) -> dict[str, Any]:
        """What came since `begin`, and the CPU time until the last expected one, or until now."""
        ended_cpu_s = process_time() if self._ended_cpu_s is None else self._ended_cpu_s
        return {
            "received": self._get_count() - self._begun_at_count,
            "received_ever": self._get_count(),
            "cpu_s": ended_cpu_s - self._begun_cpu_s,
            "ended_at": self._ended_at,
            "delays_ns": list(self._delays_ns),
        }

    def _make_counter(
        self,
    ) -> tuple[Callable[[Any], None], Callable[[], int], Callable[[int], None]]:
        # Variables of a closure: this is called for every message of every system.
        received, mark = 0, 1

        def count(_message: Any) -> None:
            nonlocal received, mark
            received += 1
            if received >= mark:
                mark = self._tell(received)

        def get_count() -> int:
            return received

        def set_mark(new_mark: int) -> None:
            nonlocal mark
            mark = new_mark

        return count, get_count, set_mark

    def _tell(self, received: int) -> int:
        """Write down how far this is; the count at which to be called again."""
        self._slots[self._index] = received
        if received >= self._expected:
            if self._ended_cpu_s is None:
                self._ended_cpu_s = process_time()
                self._ended_at = monotonic()
            return received + 1  # whatever else comes is told one by one
        return min(received + self._step, self._expected)
