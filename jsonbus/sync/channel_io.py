"""ChannelIO: the one thread that reads and writes all channels of a bus.

It sleeps in a selector until a connection is ready, a timer of the manager is due, or the waker
wakes it. It runs no code of the application: the thread pool runs handlers.
"""

from __future__ import annotations

import math
import selectors
import socket
import threading
import time
from time import monotonic

from jsonbus.errors import TransportError
from jsonbus.frontend.channels.connection import Connection
from jsonbus.frontend.channels.manager import ChannelManager
from jsonbus.frontend.log import BusLog
from jsonbus.sync.waker import Waker

#: The pause after an unexpected error, which might repeat at once.
TROUBLE_PAUSE_S = 0.1

#: How much longer than its deadline `close` waits for the thread, which ends at the deadline.
END_GRACE_S = 0.5


class ChannelIO:
    """See the head of this file, and frontend/channels/manager.py."""

    def __init__(self, manager: ChannelManager, name: str, log: BusLog) -> None:
        """Raises TransportError if the system has no thread left."""
        self._manager = manager
        self._log = log
        self._waker = Waker()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._waker.socket, selectors.EVENT_READ, self._waker)
        self._ends_at = math.inf
        manager.watcher = self
        self._thread = threading.Thread(
            target=self._run, name=f"jsonbus-channels-{name}", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            self.release()
            raise TransportError(f"no thread for channels can be started: {error}") from error
        except BaseException:  # a signal's handler raised: nobody will end the thread
            manager.is_over = True
            self._waker.wake()
            raise

    def close(self, deadline: float) -> None:
        """Close all channels; drop what was not delivered by the deadline. Any thread."""
        self._ends_at = deadline
        self._manager.post(self._manager.close)
        self._thread.join(max(0.0, deadline - monotonic()) + END_GRACE_S)

    # For the manager:

    def wake(self) -> None:
        """Have the thread call `tend`. Any thread."""
        self._waker.wake()

    def watch(
        self, sock: socket.socket, connection: Connection | None, reads: bool, writes: bool
    ) -> None:
        events = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * writes
        if not events:
            self.forget(sock)
        elif sock in self._selector.get_map():
            self._selector.modify(sock, events, connection)
        else:
            self._selector.register(sock, events, connection)

    def forget(self, sock: socket.socket) -> None:
        if sock in self._selector.get_map():
            self._selector.unregister(sock)

    # In the thread:

    def _run(self) -> None:
        manager = self._manager
        while not manager.is_over:
            try:
                self._step(manager)
            except Exception:
                self._log.fail("channels failed and continue: this is a bug")
                time.sleep(TROUBLE_PAUSE_S)
        self.release()

    def _step(self, manager: ChannelManager) -> None:
        until = min(manager.tend(), self._ends_at)
        if manager.is_closing and (manager.is_quiet or monotonic() >= self._ends_at):
            manager.finish()
            return
        timeout_s = None if until == math.inf else max(0.0, until - monotonic())
        for key, events in self._selector.select(timeout_s):
            target = key.data
            if target is self._waker:
                self._waker.clear()
            elif target is None:
                manager.listener.accept(key.fileobj)  # type: ignore[arg-type]  # it is a socket
            else:
                self._serve(target, events)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._manager.writable(connection)
            if events & selectors.EVENT_READ and not connection.is_dialing:
                self._manager.readable(connection)
        except Exception:
            self._log.fail("the channel to %r failed: this is a bug", connection.end.name)
            self._manager.drop(connection, "a bug at this end")

    def release(self) -> None:
        """Close the descriptors. Alone in a forked child, which has no such thread."""
        # The parent shares the kernel's object behind the selector: close it, do not change it.
        self._selector.close()
        self._waker.close()
