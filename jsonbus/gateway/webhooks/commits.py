"""The commit thread: commands that come while a commit runs go into the next one.

    event loop                              thread "jsonbus-gateway-store"
    submit() --- append, notify ----------> take all that wait (one group)
                                            store.commit(group): one transaction, one fsync
    on_commit(group) <-- call_soon_threadsafe --+     (one call for the whole group)

`_changed` guards `_waiting` and `_is_closing`; it is not held during a commit. Groups form by
themselves: an fsync takes about as long as the arrival of dozens of publishes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from jsonbus.errors import ClosedError, StoreError
from jsonbus.gateway.webhooks.commands import FREEING, Accept, Command, Committed, Contents
from jsonbus.gateway.webhooks.store import WebhookStore

log = logging.getLogger("jsonbus.gateway.store")

#: The messages of one transaction, and the bytes after which it takes no more. The rest waits for
#: the next commit, but the WAL stays near its usual size.
GROUP_MESSAGES_MAX = 1000
GROUP_BYTES_MAX = 4 << 20

#: How long to wait for the end of the store: a disk that hangs may never come back.
CLOSE_S = 10.0


class Task(NamedTuple):
    command: Command
    future: asyncio.Future[Any]


OnCommit = Callable[[list[Task], Committed], None]


class CommitThread:
    """Runs a WebhookStore in its own thread. Call it in the event loop that opened it."""

    def __init__(self, store: WebhookStore, on_commit: OnCommit) -> None:
        """`on_commit` runs in the loop after each commit, before the callers that wait for it."""
        self._store = store
        self._on_commit = on_commit
        self._changed = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: asyncio.Future[Contents] | None = None
        self._closed: asyncio.Future[None] | None = None

    async def open(self) -> Contents:
        """Start the thread and open the store in it; raises StoreError."""
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.create_future()
        self._closed = self._loop.create_future()
        # A daemon: a program that ends without close() must not hang, and loses nothing.
        thread = threading.Thread(target=self._run, name="jsonbus-gateway-store", daemon=True)
        thread.start()
        self._thread = thread
        return await self._opened

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Queue a command for the next commit. Raises ClosedError.

        The future gets the result once it is on disk, or a StoreError if nothing was done.
        """
        if self._loop is None or self._is_closing:
            raise ClosedError("the store of the webhooks is not open")
        task = Task(command, self._loop.create_future())
        with self._changed:
            self._waiting.append(task)
            if len(self._waiting) == 1:
                self._changed.notify()
        return task.future

    async def close(self) -> None:
        """Commit what was submitted, then close the store. A second call waits for the same end.

        Gives up after CLOSE_S if the disk hangs; commands without a result may be lost.
        """
        if self._closed is None or self._thread is None:
            return
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.wait([self._closed], timeout=CLOSE_S)
        if self._closed.done():
            self._thread.join()  # it resolves `_closed` last
        else:
            log.error(
                "the disk of the webhooks' store did not answer for %g s: ending without it; "
                "messages that were not stored were not acknowledged",
                CLOSE_S,
            )

    # ---- In the thread

    def _run(self) -> None:
        try:
            self._serve()
        except RuntimeError:
            log.debug("= the event loop ended before its store was closed", exc_info=True)
        finally:
            try:
                self._call(resolve, self._closed, None)
            except RuntimeError:
                pass  # the loop is gone, and nobody waits

    def _serve(self) -> None:
        try:
            contents = self._store.open()
        except Exception as error:
            self._call(resolve, self._opened, _to_store_error(error))
            return
        try:
            self._call(resolve, self._opened, contents)
            while group := self._take():
                self._call(self._on_commit, group, self._commit(group))
        finally:
            self._store.close()

    def _take(self) -> list[Task]:
        """Wait for commands and take a group of them; empty once the store is closing."""
        group: list[Task] = []
        messages = size_bytes = 0
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            while self._waiting:
                command = self._waiting[0].command
                if isinstance(command, Accept):
                    messages += len(command.messages)
                    if group and messages > GROUP_MESSAGES_MAX:
                        break
                    size_bytes += sum(len(payload) for _, payload, _ in command.messages)
                group.append(self._waiting.popleft())
                if size_bytes > GROUP_BYTES_MAX:
                    break
        return group

    def _commit(self, group: list[Task]) -> Committed:
        try:
            return self._store.commit([task.command for task in group])
        except Exception as error:
            failure = _to_store_error(error)
        # Commands that free room must not fail because the others do.
        freeing = [task.command for task in group if isinstance(task.command, FREEING)]
        if freeing and len(freeing) < len(group):
            try:
                freed = self._store.commit(freeing)
            except Exception as error:
                failure = _to_store_error(error)
            else:
                done = iter(freed.results)
                results = [
                    next(done) if isinstance(task.command, FREEING) else failure for task in group
                ]
                return Committed(results, freed.batches, failure)
        return Committed([failure] * len(group), [], failure)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *arguments)


def resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result, or its exception if the result is one."""
    if future.done():  # the caller was cancelled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _to_store_error(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    log.error("the store of the webhooks failed unexpectedly", exc_info=error)
    return StoreError(f"the store failed ({error}): try again later")
