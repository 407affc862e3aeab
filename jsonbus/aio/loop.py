"""Where transport, clock and core meet, in an event loop.

Theory of operation. Everything happens in the thread of one event loop, in short calls that never
wait: a socket is readable (receiving.py), the node's timer is due, or the application calls. After
each of them `_tend` passes on what it caused: datagrams (outgoing.py), messages, events, and the
instant of the next timer. There is no lock and no thread; using the bus from another loop or thread
is refused, since nothing would hold against it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from jsonbus.aio.outgoing import Outgoing
from jsonbus.aio.publishing import HISTORY_WAIT_S, Publishing
from jsonbus.aio.receiving import Deliveries, Receiving
from jsonbus.aio.signal import Signal
from jsonbus.aio.subscription import Subscription
from jsonbus.aio.timer import Timer
from jsonbus.aio.workers import Workers
from jsonbus.config import BusConfig
from jsonbus.core.node import Node
from jsonbus.errors import ClosedError, LocalError
from jsonbus.frontend.channels.figures import NO_CHANNELS
from jsonbus.frontend.events import Answers, BusLog, handle_events
from jsonbus.frontend.lifetime import closed_error, forked_error, note_closed, note_open
from jsonbus.frontend.opening import INTERFACES_S, datagram_bytes, transport_figures
from jsonbus.frontend.subscription import DiscardCounter
from jsonbus.frontend.watches import Watches
from jsonbus.transport.base import Sender, Transport

if TYPE_CHECKING:
    # At run time where it is used: few programs watch.
    from jsonbus.aio.channels import Channels
    from jsonbus.aio.watch import EventHandler, Watch
    from jsonbus.frontend.watch import E, Subject

T = TypeVar("T")

#: A node that did not listen for this long may have missed what others announced.
DEAF_S = 1.0

CLOSE_S = 1.0

#: What close() keeps of its time for saying goodbye.
CLOSE_RESERVE_S = 0.2

#: How much longer than it was given a second close() may wait for the first.
END_GRACE_S = 0.5


class Loop:
    """Drives one node. All methods are for the event loop's thread unless they say otherwise."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        config: BusConfig,
        event_loop: asyncio.AbstractEventLoop,
    ) -> None:
        name = node.settings.name
        self.log = BusLog(name)
        self.answers = Answers()
        self.discards = DiscardCounter()
        self.workers = Workers(name, config.workers, event_loop, self.log)
        self.event_loop = event_loop
        self._config = config
        self._node = node
        self._transport = transport
        self._changed = Signal(event_loop)  # events came, or the bus is closing
        self._receiving = Receiving(
            transport,
            event_loop,
            self.log,
            take=self._take_datagram,
            tend=self._tend_if_stirred,
            hear_again=self._hear_again,
        )
        self._outgoing = Outgoing(
            node, transport, event_loop, self.log, config.rate_limit, self._tend_soon
        )
        self.publishing = Publishing(
            node, self._outgoing, event_loop, self.check_here, self._set_timer
        )
        self._subscriptions: set[Subscription] = set()
        self._watches = Watches(nullcontext())
        #: Made by the bus when it is first asked for a channel.
        self.channels: Channels | None = None
        self._takes_channels = True
        self._overflowed = 0  # messages that subscriptions had no room for, until they were closed
        self._figures: dict[str, int] | None = None  # the transport's, once it is closed
        self._timer = Timer(event_loop, self._handle_timer)
        self._looks_at = monotonic() + INTERFACES_S  # for interfaces that came or went
        self._is_closing = False
        self._is_cut_off = False
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Join the bus."""
        self._receiving.start()
        note_open(self)
        self._node.allow_bytes(*datagram_bytes(self._config, self._transport))
        self.call(Node.open)

    @property
    def is_closed(self) -> bool:
        return self._is_closing

    def check_here(self) -> None:
        """Raise unless this is the process, thread and event loop that the bus belongs to."""
        if self._is_cut_off:
            raise forked_error()
        try:
            is_here = asyncio.get_running_loop() is self.event_loop
        except RuntimeError:
            is_here = False
        if not is_here:
            raise LocalError(
                "an AsyncBus belongs to the event loop it was opened in: from elsewhere, use "
                "asyncio.run_coroutine_threadsafe, or a Bus"
            )

    def call(self, act: Callable[[Node, float], T]) -> T:
        """Do something with the node, and what that causes."""
        self.check_here()
        result = act(self._node, monotonic())
        self._tend()
        return result

    def look(self, see: Callable[[Node, float], T]) -> T:
        """Ask the node something that changes nothing. Works on a closed bus, too."""
        self.check_here()
        return see(self._node, monotonic())

    async def wait_for(self, condition: Callable[[Node], bool], timeout_s: float) -> bool:
        """Whether the condition came true in time; looked at after every event."""
        self.check_here()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_until(condition)
        except TimeoutError:
            return condition(self._node)
        return True

    async def flush(self, timeout_s: float) -> bool:
        """Whether everything published so far left in time, what is held included."""
        self.check_here()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_until(lambda node: not node.held)
                await self._outgoing.wait_until_sent()
        except TimeoutError:
            return False
        return True

    def attach(self, subscription: Subscription, enter: Callable[[Node, float], None]) -> None:
        """Begin a subscription; `enter` tells the node of it."""

        def act(node: Node, now: float) -> None:
            enter(node, now)
            self._subscriptions.add(subscription)
            self._changed.fire()  # it may be the subscriber that somebody waits for

        self.call(act)

    def amend(self, subscription: Subscription, change: Callable[[Node, float], bool]) -> bool:
        """Change what an open subscription gets; raises ClosedError if it has ended."""

        def act(node: Node, now: float) -> bool:
            if subscription not in self._subscriptions:
                raise ClosedError(f"the subscription to {subscription.pattern!r} is closed")
            is_changed = change(node, now)
            self._changed.fire()
            return is_changed

        return self.call(act)

    def detach(self, subscription: Subscription, leave: Callable[[Node, float], object]) -> None:
        """End a subscription; nothing if it has ended."""
        if subscription in self._subscriptions and not self._is_cut_off:
            self.call(leave)
            self._subscriptions.remove(subscription)
            self._end_subscription(subscription)

    def make_watch(
        self, subject: Subject[E], handler: EventHandler[E], release: Callable[[Watch[E]], None]
    ) -> Watch[E]:
        """Tell the handler of all that the subject is, what is the case already first."""
        from jsonbus.aio.watch import Watch

        self.check_here()
        if self._is_closing:
            raise closed_error()
        self._tend()  # what was not told yet happened before: it is for those who watch already
        watch = Watch(subject, handler, self.log, schedule=self.workers.schedule, release=release)
        watch.begin(self._node, monotonic())
        self._watches.add(watch)
        watch.rouse()
        return watch

    def end_watch(self, watch: Watch[Any]) -> None:
        """Tell the handler no more; nothing if that has ended."""
        if not (watch.is_closed or self._is_cut_off):
            self.check_here()
            self._watches.end(watch)

    def stats(self) -> dict[str, int]:
        """The figures of node, transport and mailboxes."""
        self.check_here()
        figures = self._node.stats()
        figures |= self._outgoing.figures
        figures["messages_dropped"] = (
            self.discards.count
            + self._overflowed
            + sum(subscription.overflowed for subscription in self._subscriptions)
        )
        figures |= self._watches.figures()
        figures |= NO_CHANNELS if self.channels is None else self.channels.figures()
        figures |= self._figures or transport_figures(self._transport)
        return figures

    def have_channels(self, make: Callable[[], Channels]) -> Channels:
        """Those of the bus; made now if there are none. Raises ClosedError."""
        self.check_here()
        if not self._takes_channels:
            raise closed_error()
        if self.channels is None:
            self.channels = make()
        return self.channels

    def addresses(self) -> list[str]:
        """Those of this machine by which the node is on the bus."""
        return [each.address for each in self._transport.describe().interfaces]

    def wake(self) -> None:
        """A mailbox that held up has room."""
        self._receiving.wake()

    async def close(self, timeout_s: float) -> None:
        """See `AsyncBus.close`."""
        if self._is_cut_off:
            return
        self.check_here()
        deadline = monotonic() + timeout_s
        if self._is_closing:
            # A worker must not wait for the task that waits for it.
            if not self.workers.are_current():
                await self._wait_until_ended(timeout_s + END_GRACE_S)
            return
        self._takes_channels = False
        try:
            if self.channels is not None:
                await self.channels.close(deadline - CLOSE_RESERVE_S)
            await self._stay_while_needed(deadline - CLOSE_RESERVE_S)
        except BaseException:
            self.end_now()
            self._ended.set()
            raise
        if self._is_closing:  # another task was faster
            await self._wait_until_ended(timeout_s + END_GRACE_S)
            return
        self._say_goodbye()
        try:
            async with asyncio.timeout(timeout_s):
                await self._outgoing.wait_until_sent()
        except TimeoutError:
            pass  # what did not leave is counted
        finally:
            self._stop()
            try:
                await self.workers.join(deadline)
            finally:
                self._ended.set()

    async def _stay_while_needed(self, deadline: float) -> None:
        """Whoever missed the last reliable messages has to be able to ask for them."""
        while not self._is_closing:
            pause_s = min(self._node.needed_until, deadline) - monotonic()
            if pause_s <= 0:
                return
            await asyncio.sleep(min(pause_s, HISTORY_WAIT_S))

    def end_now(self) -> None:
        """Close without waiting, because nobody has the bus any more."""
        if self._is_closing or self._is_cut_off:
            return
        self._is_closing = True
        self._takes_channels = False
        if self.channels is not None:
            self.channels.end_now()
        self._node.close(monotonic())
        self._outgoing.send_now()
        if self.event_loop.is_closed():
            self._transport.close()
            note_closed(self)
        else:
            self._changed.fire()
            self._stop()

    def abandon(self) -> None:
        """Nobody has the bus any more. Any thread."""
        if self.event_loop.is_running():
            self.event_loop.call_soon_threadsafe(self.end_now)
        else:
            self.end_now()

    def close_at_exit(self) -> None:
        self.end_now()

    def cut_off(self) -> None:
        """See `lifetime.Openable`."""
        # No remove_reader here: the parent's event loop has the same kernel object.
        self._is_cut_off = True
        self._is_closing = True
        self._node.express.forget()
        for subscription in tuple(self._subscriptions):
            subscription.cut_off()
        self._watches.cut_off()
        if self.channels is not None:
            self.channels.cut_off()
        self._transport.close()

    def _take_datagram(self, datagram: bytes, sender: Sender) -> Deliveries:
        # Sinks are subscriptions.
        return self._node.receive(datagram, sender, monotonic())  # type: ignore[return-value]

    def _tend(self) -> None:
        """Pass on what a call to the node caused, and set the timer."""
        node = self._node
        events = node.take_events()
        if events:
            self._changed.fire()
            self._watches.put(events)
            self._watches.rouse()
            if self.channels is not None:
                self.channels.look()
        deliveries: Deliveries = node.take_deliveries()  # type: ignore[assignment]
        if deliveries:
            self.publishing.deliver_own(deliveries)
        if node.has_output:
            self._outgoing.send_due(monotonic())
        timer_at = node.timer_at()
        if timer_at is not None and not self._is_closing:
            self._timer.set(timer_at)
        handle_events(events, self.answers, self.log)

    def _set_timer(self, at: float) -> None:
        if not self._is_closing:
            self._timer.set(at)

    def _tend_if_stirred(self) -> None:
        """After datagrams: messages of known nodes move no timer and cause no output."""
        if self._node.take_stir():
            self._tend()

    def _tend_soon(self) -> None:
        self.event_loop.call_soon(self._tend)

    def _handle_timer(self) -> None:
        if self._is_closing:
            return
        now = monotonic()
        # Whatever goes wrong below, the node's timers go on.
        self._timer.set(now + INTERFACES_S)
        try:
            if now >= self._looks_at:
                self._looks_at = now + INTERFACES_S
                if self._transport.rejoin():
                    self._node.allow_bytes(*datagram_bytes(self._config, self._transport))
                    self._node.interfaces_changed(now)
                    if self.channels is not None:
                        self.channels.follow_addresses()
            at = self._node.timer_at()
            if at is not None and at <= now:
                self._node.wall_offset_s = time.time() - now  # somebody may have set the clock
                self._node.handle_timer(now)
            self._tend()
        except Exception:
            self.log.fail("a timer failed, and goes on: this is a bug")

    def _hear_again(self, deaf_s: float) -> None:
        if deaf_s >= DEAF_S:
            self._node.was_deaf(deaf_s, monotonic())
            self._tend_soon()

    async def _wait_until(self, condition: Callable[[Node], bool]) -> None:
        while True:
            if self._is_closing:
                raise closed_error()
            if condition(self._node):
                return
            await self._changed.wait()

    async def _wait_until_ended(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            pass

    def _end_subscription(self, subscription: Subscription) -> None:
        subscription.end()
        self._overflowed += subscription.overflowed

    def _say_goodbye(self) -> None:
        now = monotonic()
        self._node.close(now)
        self._is_closing = True
        self._changed.fire()
        self._outgoing.send(now)

    def _stop(self) -> None:
        """End everything that waits or runs, without waiting for it."""
        subscriptions, self._subscriptions = self._subscriptions, set()
        for subscription in subscriptions:
            self._end_subscription(subscription)
        self._watches.end_all()
        self.answers.give_up()
        self.workers.request_stop()
        self._receiving.stop()
        self._outgoing.close()
        self._timer.cancel()
        self._figures = transport_figures(self._transport)
        self._transport.close()
        note_closed(self)
