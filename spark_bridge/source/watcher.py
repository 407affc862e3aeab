"""Waits for news from one bridge or several at once, in the driver.

Each bridge has a separate connection here, with at most one `poll` outstanding. A poll whose
bridge had no news stays outstanding when `observe` returns because of another bridge: no reply
means no news, so the next `observe` need not ask again. That is why one thread is enough.

A bridge that is down is tried again and again until the timeout, counted from when it was first
missed. Meanwhile the others go on.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable
from typing import Any

from .client import Connection, Endpoint, Patience
from .errors import OptionError, RefusedError
from .offsets import LogState

#: How often a bridge that is down or silent is checked.
STEP_S = 0.1
#: How long a bridge that should answer at once may hold up the others.
GRACE_S = 0.5


class Watch:
    """One bridge: the connection, if there is one, and its last reply."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.address = endpoint.address
        self.state: LogState | None = None
        #: None while the bridge is down.
        self.connection: Connection | None = None
        #: When the reply to the outstanding poll is overdue; None if there is none.
        self.overdue_at: float | None = None
        #: Whether that poll is to be answered at once, news or not.
        self.is_prompt = False
        self._endpoint = endpoint
        self._patience = Patience(endpoint)
        self._try_at = 0.0

    @property
    def is_up(self) -> bool:
        return self.connection is not None and self.state is not None

    def poll(self, wait_s: float) -> None:
        """Ask for news, unless a poll is outstanding; connect if it is time to."""
        now = time.monotonic()
        if self.overdue_at is not None:
            if now >= self.overdue_at:
                self._fail(TimeoutError("it accepts requests, but does not answer"))
            return
        if self.connection is None and now < self._try_at:
            return
        try:
            if self.connection is None:
                self.connection = Connection(*self._endpoint)
                if self.state is not None and self.state.epoch != self.connection.log_id:
                    self.state = None
                wait_s = 0.0
            known = None if self.state is None else list(self.state.end)
            body: dict[str, Any] = {"op": "poll", "known": known, "wait_ms": round(1000 * wait_s)}
            self.connection.send(body)
            self.overdue_at = time.monotonic() + wait_s + self._endpoint.timeout_s
            self.is_prompt = wait_s == 0.0
        except (OSError, RefusedError) as error:
            self._fail(error)

    def receive(self) -> None:
        """Take the reply that has arrived."""
        assert self.connection is not None
        self.overdue_at = None
        self.is_prompt = False
        try:
            reply = self.connection.receive()
        except (OSError, RefusedError) as error:
            self._fail(error)
            return
        self._patience.succeeded()
        self.state = LogState(
            self.address, self.connection.log_id, tuple(reply["first"]), tuple(reply["end"])
        )

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = self.overdue_at = None
        self.is_prompt = False

    def _fail(self, error: Exception) -> None:
        self.close()
        self._try_at = time.monotonic() + self._patience.failed(error)


class Watcher:
    """All bridges of a query."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._watches = [Watch(each) for each in endpoints]

    def states(self) -> list[LogState]:
        """The last known states; without bridges that were never up."""
        return [watch.state for watch in self._watches if watch.state is not None]

    def is_down(self, address: str) -> bool:
        """Return whether the bridge is down now."""
        return any(each.address == address and not each.is_up for each in self._watches)

    def look(self) -> list[LogState]:
        """Get fresh news of every bridge; waits for those that are down.

        Raises UnreachableError, and OptionError if two addresses belong to the same bridge.
        """
        self._exchange(lambda: False, 0.0, all_up=True)
        return self._checked()

    def observe(self, is_enough: Callable[[], bool], wait_s: float, all_up: bool) -> list[LogState]:
        """Collect news until there is enough or the time is over; `all_up`: and every bridge
        answered.

        Bridges that were never up are awaited in any case.
        """
        self._exchange(is_enough, 0.0 if is_enough() else wait_s, all_up)
        return self._checked()

    def close(self) -> None:
        for watch in self._watches:
            watch.close()

    def _exchange(self, is_enough: Callable[[], bool], wait_s: float, all_up: bool) -> None:
        ends_at = time.monotonic() + wait_s
        self._receive(0.0)  # replies since the last call: news that may be old
        asked: set[Watch] = set()
        while True:
            # A bridge that has answered is not asked again once there is enough: the answer would
            # be old by the next time. But each is asked once, even if old news is enough.
            left_s = 0.0 if is_enough() else max(0.0, ends_at - time.monotonic())
            for watch in self._watches:
                if left_s or watch not in asked or not watch.is_up:
                    watch.poll(left_s)
                    asked.add(watch)
            now = time.monotonic()
            prompt = any(watch.is_prompt for watch in self._watches)
            if prompt and not all_up and now >= ends_at + GRACE_S:
                prompt = False
            missing = any(
                watch.state is None or (all_up and not watch.is_up) for watch in self._watches
            )
            if not missing and not prompt and (is_enough() or now >= ends_at):
                return
            self._receive(STEP_S if missing or prompt else left_s)

    def _receive(self, timeout_s: float) -> None:
        """Take the replies that come first."""
        waiting = [watch for watch in self._watches if watch.overdue_at is not None]
        if len(waiting) < len(self._watches):
            timeout_s = min(timeout_s, STEP_S)
        if not waiting:
            time.sleep(timeout_s)
            return
        with selectors.DefaultSelector() as selector:
            for watch in waiting:
                assert watch.connection is not None
                selector.register(watch.connection, selectors.EVENT_READ, watch)
            ready = [key.data for key, _ in selector.select(timeout_s)]
        for watch in ready:
            watch.receive()

    def _checked(self) -> list[LogState]:
        states = self.states()
        for state in states:
            same = [other.address for other in states if other.epoch == state.epoch]
            if len(same) > 1:
                raise OptionError(
                    f"option bridge: {' and '.join(same)} are the same bridge (log {state.epoch}): "
                    "its rows would be read twice"
                )
        return states
