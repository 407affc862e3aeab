"""The threads of a bus: a leader/followers pool. One receives, the others run handlers; they swap.

Theory of operation. Waking a thread for a message costs more than most handlers do: some 20 µs, and
as much delay. So the thread that received a message runs its handler itself, *in place*, if

- the handler has been quick (`Subscription.is_quick`): cheaper than waking a thread;
- no subscription waits for a worker;
- a *slot* is free. There are as many as `workers`: no more handlers than that run at once, in place
  or not.

Any other handler goes into the queue, for a worker.

A handler must not stop receiving. Even a quick one may block some day, so while handlers run in
place, an idle thread *watches*: if one of them takes longer than WATCH_S, an idle thread becomes
the receiver, and the thread in the handler is a worker when it comes back. A handler that is about
to wait for the bus itself gives the role away before (`will_wait`). There is always a thread to
take it, and one to watch: there is one thread more than handlers may run.

    receiver   has the role (`_receiver` is its ident): in Receiving.step, or in a handler in place
    worker     in a handler from the queue
    idle       waits for the role or the queue; one of them watches while handlers run in place

A subscription is in the queue, due, with one thread, or has nothing to do; it comes back while it
has messages. So its handler never runs twice at once, and a busy subscription waits behind the
others after each batch.

The pool's lock is held for a few instructions only, and never together with another one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from jsonbus.errors import TransportError
from jsonbus.frontend.log import BusLog

if TYPE_CHECKING:
    from jsonbus.core.message import Message
    from jsonbus.sync.receiving import Receiving
    from jsonbus.sync.subscription import Subscription

#: How long a handler may keep the receiver from receiving. The kernel's buffer holds much more than
#: arrives in that time, and no timer of the bus is so exact.
WATCH_S = 0.02

#: Checks without a handler in place after which watching ends: one second.
WATCH_IDLE_MAX = 50


class Handled(Hashable, Protocol):
    """A subscription, watch or channel, whose handler the pool runs."""

    @property
    def is_quick(self) -> bool:
        """True if running the handler is cheaper than waking a thread for it."""

    def run_handler(self, batch: Any = None) -> bool:
        """See `Subscription.run_handler`. A batch is given only to what is quick."""


class _Here(threading.local):
    """The subscription whose handler this thread is running."""

    subscription: Handled | None = None


_here = _Here()


def current_subscription() -> Handled | None:
    """Return the subscription, of any bus, whose handler made this call; None outside handlers."""
    return _here.subscription


class ThreadPool:
    """One thread to receive, and, once there is a handler, as many more as there are workers."""

    def __init__(self, name: str, workers: int, log: BusLog) -> None:
        self._name = name
        self._workers = workers
        self._log = log
        self._receiving: Receiving | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # role, queue, slots, watch, stop
        self._threads: list[threading.Thread] = []
        self._receiver: int | None = None
        #: For the receiver to run or to hand on.
        self.due: deque[Handled] = deque()
        self._queue: deque[Handled] = deque()
        # Taken and given back by single operations, which are atomic among threads.
        self._slots: list[None] = [None] * workers
        # When the handler in place was begun. The thread that empties it decides: its own thread is
        # done and goes on receiving, or another one takes the role.
        self._claim: list[float] = []
        self._runs = 0  # handlers begun in place
        self._is_watched = False
        self._watcher: int | None = None
        self._is_stopping = False
        self._is_finished = False  # no thread receives any more
        self._finished = threading.Event()

    def start(self, receiving: Receiving) -> None:
        """Begin to receive. Raises TransportError if the system has no thread left."""
        self._receiving = receiving
        try:
            self._start_thread(f"jsonbus-receive-{self._name}")
        except RuntimeError as error:
            raise TransportError(f"the receive thread cannot be started: {error}") from error

    def start_workers(self) -> None:
        """Start the other threads, for the first handler, unless they run. Any thread.

        Raises TransportError if the system has no thread left; one is enough to go on.
        """
        failure: RuntimeError | None = None
        with self._lock:
            if len(self._threads) != 1 or self._is_stopping:
                return
            for number in range(1, self._workers + 1):
                try:
                    self._start_thread(f"jsonbus-worker-{self._name}-{number}")
                except RuntimeError as error:
                    failure = error
                    break
            started = len(self._threads) - 1
            if started:
                del self._slots[started:]
        if failure is not None:
            if not started:
                raise TransportError(f"no worker can be started: {failure}") from failure
            self._log.warn_once("workers", "only %d workers run: %s", started, failure)

    def schedule(self, subscription: Handled) -> None:
        """Have the handler run. Any thread; never waits."""
        if get_ident() == self._receiver:
            self.due.append(subscription)
            if get_ident() != self._receiver and self._receiving is not None:
                # This handler just took too long: the new receiver checks again.
                self._receiving.wake()
            return
        with self._lock:
            self._queue.append(subscription)
            self._changed.notify()

    def are_current(self) -> bool:
        """Return whether the calling thread is one of the pool."""
        return threading.current_thread() in self._threads

    def will_wait(self) -> None:
        """Give the role away before waiting for something that has to be received. Any thread."""
        if get_ident() == self._receiver and self._claim:
            with self._lock:
                self._give_role_away()

    def run_due(self) -> bool:
        """Run or queue what is due; return whether this thread is still the receiver.

        For the receive thread.
        """
        due = self.due
        while due:
            subscription = due.popleft()
            if subscription.is_quick and not self._queue and self._take_slot():
                if not self._run_claimed(subscription):
                    return False
            else:
                with self._lock:
                    self._queue.append(subscription)
                    self._changed.notify()
        return True

    def run_in_place(self, subscription: Subscription, batch: list[Message]) -> bool | None:
        """Let the receive thread run this handler for messages that it just received, if it may.

        They never were in the mailbox, so nothing may be before them. Returns whether this thread
        is still the receiver; None if the messages have to be delivered.
        """
        if not subscription.is_quick or self._queue or self.due:
            return None
        try:
            self._slots.pop()
        except IndexError:
            return None
        if subscription.begin():
            return self._run_claimed(subscription, batch)
        self._slots.append(None)
        if self._queue:  # put there meanwhile, and perhaps refused because of the slot
            with self._lock:
                self._changed.notify()
        return None

    def request_stop(self) -> None:
        """Let each thread end after the handler it is running. Any thread, never waits."""
        with self._lock:
            self._is_stopping = True
            self._give_role_away()  # a handler in place may run for long
            self._changed.notify_all()

    def join(self, deadline: float, grace_s: float) -> None:
        """Wait for the threads to end, except for the one that calls.

        Handlers have until the deadline; receiving, which ends by itself, a little longer.
        """
        if not self.are_current():  # the receiver, which may call this, ends only afterwards
            self._finished.wait(max(0.0, deadline - monotonic()) + grace_s)
        for thread in self._threads:
            if thread is threading.current_thread():
                continue
            thread.join(max(0.0, deadline - monotonic()))
            if thread.is_alive() and self._is_finished:
                self._log.warn_once(("worker", thread.name), "%s still runs a handler", thread.name)

    def _start_thread(self, name: str) -> None:
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        while True:
            with self._lock:
                has_task, subscription = self._wait_for_task()
            if not has_task:
                return
            if subscription is None:
                self._receive()
            else:
                self._work(subscription)
            # An idle thread must not keep a subscription, and thereby its bus, alive.
            del subscription

    def _wait_for_task(self) -> tuple[bool, Handled | None]:
        """Return a subscription to handle, None to receive; (False, None) at the end. Lock held."""
        me = get_ident()
        while True:
            if self._receiver is None and not self._is_finished:
                self._receiver = me
                return True, None
            if self._is_stopping:
                return False, None
            if self._queue and self._take_slot():
                if self._is_watched and self._watcher is None:
                    self._changed.notify()  # for another thread to watch
                return True, self._queue.popleft()
            if self._is_watched and self._watcher is None:
                self._watch(me)
            else:
                self._changed.wait()

    def _watch(self, me: int) -> None:
        """Watch until other work may have come, or no handler runs in place. Lock held."""
        self._watcher = me
        runs, idle = self._runs, 0
        while idle < WATCH_IDLE_MAX and not self._changed.wait(WATCH_S):
            # A copy: it may be emptied at any time.
            if any(monotonic() - began_at >= WATCH_S for began_at in tuple(self._claim)):
                self._give_role_away()
            # A wait may both time out and be notified.
            if self._queue or self._receiver is None or self._is_stopping:
                break
            idle = idle + 1 if runs == self._runs else 0
            runs = self._runs
        self._watcher = None
        self._is_watched = False
        # A thread begins a handler in place before it checks whether that is watched. A wait
        # may also have ended for something else than that handler: then it is watched on.
        if self._claim:
            self._is_watched = True

    def _receive(self) -> None:
        me, receiving = get_ident(), self._receiving
        assert receiving is not None
        # The last receiver may have cleared the waker and then run into a long handler.
        receiving.wake()
        while self._receiver == me and not self._is_stopping:
            receiving.step()
        with self._lock:
            if self._receiver != me:
                return
            self._is_finished = True
        receiving.finish()
        self._finished.set()

    def _work(self, subscription: Handled) -> None:
        has_more = self._handle(subscription)
        with self._lock:
            self._slots.append(None)
            if has_more:
                self._queue.append(subscription)

    def _run_claimed(self, handled: Handled, batch: list[Message] | None = None) -> bool:
        """Run a handler in place, with a slot; return whether this thread is still the receiver.

        The thread keeps the role unless that takes too long.
        """
        claim = self._claim = [monotonic()]
        self._runs += 1
        if not self._is_watched:
            with self._lock:
                self._is_watched = True
                self._changed.notify()
        has_more = self._handle(handled, batch)
        self._slots.append(None)
        if has_more or self._queue:
            with self._lock:
                if has_more:
                    self._queue.append(handled)
                self._changed.notify()
        try:
            claim.pop()
        except IndexError:
            return False
        return True

    def _take_slot(self) -> bool:
        try:
            self._slots.pop()
        except IndexError:
            return False
        return True

    def _handle(self, subscription: Handled, batch: list[Message] | None = None) -> bool:
        """Handle one batch of messages; return whether there are more."""
        _here.subscription = subscription
        try:
            return subscription.run_handler(batch)
        except Exception:
            self._log.fail("a worker failed: this is a bug")
            return False
        finally:
            _here.subscription = None

    def _give_role_away(self) -> None:
        """Let another thread receive, if the receiver is in a handler. Lock held."""
        try:
            self._claim.pop()
        except IndexError:
            return
        self._receiver = None
        self._changed.notify_all()


class ReceiveThread(ThreadPool):
    """The pool of a bus that is part of another one: it receives, and that one's runs handlers."""

    def __init__(self, name: str, handling: ThreadPool, log: BusLog) -> None:
        super().__init__(name, 0, log)
        self._handling = handling

    def start_workers(self) -> None:
        self._handling.start_workers()

    def schedule(self, subscription: Handled) -> None:
        self._handling.schedule(subscription)

    def are_current(self) -> bool:
        return super().are_current() or self._handling.are_current()

    def will_wait(self) -> None:
        self._handling.will_wait()
