"""The thread that commits: whatever came while the last commit ran goes into the next one.

    event loop                              thread "jsonbus-gateway-store"
    submit() --- append, notify ----------> take all that wait (one group)
                                            store.commit(group): one transaction, one fsync
    on_commit(group) <-- call_soon_threadsafe --+     (one call for the whole group)

`_waiting` and `_is_closing` are shared and guarded by `_changed`; nobody holds it during a commit.
Groups form by themselves: an fsync takes about as long as dozens of publishes need to come in.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from jsonbus.errors import ClosedError, StoreError
from jsonbus.gateway.webhooks.commands import FREEING, Accept, Batch, Contents, Work
from jsonbus.gateway.webhooks.store import WebhookStore

log = logging.getLogger("jsonbus.gateway.store")

#: A transaction takes at most so many messages, and stops after the one that goes beyond so many
#: bytes: what waits then waits for two commits, but the WAL stays near its usual size.
GROUP_MESSAGES_MAX = 1000
GROUP_BYTES_MAX = 4 << 20

#: So long the end of the store is waited for: a disk that hangs may never come back.
CLOSE_S = 10.0


class Task(NamedTuple):
    work: Work
    future: asyncio.Future[Any]


class Outcome(NamedTuple):
    """What became of a group: a result or a StoreError for each task, and the batches cut."""

    results: list[Any]
    batches: list[Batch]
    error: StoreError | None  # the transaction failed, with or without a remedy


OnCommit = Callable[[list[Task], Outcome], None]


class CommitThread:
    """Runs a WebhookStore in its own thread. All methods are for the event loop that opened it."""

    def __init__(self, store: WebhookStore, on_commit: OnCommit) -> None:
        """`on_commit` runs in the loop after each commit, before anybody who waited for it."""
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
        # A daemon: a program that dies without close() must not hang; nothing is lost by that.
        thread = threading.Thread(target=self._run, name="jsonbus-gateway-store", daemon=True)
        thread.start()
        self._thread = thread
        return await self._opened

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Have a work done by the next commit; raises ClosedError.

        The future gets its result once it is on disk, or a StoreError if it was not done.
        """
        if self._loop is None or self._is_closing:
            raise ClosedError("the store of the webhooks is not open")
        task = Task(work, self._loop.create_future())
        with self._changed:
            self._waiting.append(task)
            if len(self._waiting) == 1:
                self._changed.notify()
        return task.future

    async def close(self) -> None:
        """Commit what was submitted, then close the store; again waits for the same end.

        Bounded: a disk that hangs is left to the thread, with what nobody was told is stored.
        """
        if self._closed is None or self._thread is None:
            return
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.wait([self._closed], timeout=CLOSE_S)
        if self._closed.done():
            self._thread.join()  # its last act was to say so
        else:
            log.error(
                "the disk of the webhooks' store did not answer for %g s: ending without it; what "
                "was not stored was not acknowledged",
                CLOSE_S,
            )

    # ---- In the thread

    def _run(self) -> None:
        try:
            self._work()
        except RuntimeError:
            log.debug("= the event loop ended before its store was closed", exc_info=True)
        finally:
            self._store.close()
            try:
                self._call(_resolve, self._closed, None)
            except RuntimeError:
                pass  # the loop is gone, and so is everybody who could wait

    def _work(self) -> None:
        try:
            contents = self._store.open()
        except Exception as error:
            self._call(_resolve, self._opened, _to_store_error(error))
            return
        self._call(_resolve, self._opened, contents)
        while group := self._take():
            self._call(self._on_commit, group, self._commit(group))

    def _take(self) -> list[Task]:
        """Wait for works, then take a group of them; none once the store is to be closed."""
        group: list[Task] = []
        messages = size_bytes = 0
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            while self._waiting:
                work = self._waiting[0].work
                if isinstance(work, Accept):
                    messages += len(work.messages)
                    if group and messages > GROUP_MESSAGES_MAX:
                        break
                    size_bytes += sum(len(payload) for _, payload, _ in work.messages)
                group.append(self._waiting.popleft())
                if size_bytes > GROUP_BYTES_MAX:
                    break
        return group

    def _commit(self, group: list[Task]) -> Outcome:
        try:
            return Outcome(*self._store.commit([task.work for task in group]), None)
        except Exception as error:
            failure = _to_store_error(error)
        # What is delivered or unsubscribed frees room and must not fail for the others' sake.
        freeing = [task.work for task in group if isinstance(task.work, FREEING)]
        if not freeing or len(freeing) == len(group):
            return Outcome([failure] * len(group), [], failure)
        try:
            results, batches = self._store.commit(freeing)
        except Exception as error:
            failure = _to_store_error(error)
            return Outcome([failure] * len(group), [], failure)
        done = iter(results)
        return Outcome(
            [next(done) if isinstance(task.work, FREEING) else failure for task in group],
            batches,
            failure,
        )

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *arguments)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():  # whoever waited was cancelled
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
