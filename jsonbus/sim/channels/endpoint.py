"""One end of a simulated channel: the production core between a socket and an application.

`Endpoint.work` does what the threads and tasks of the real front ends do, in a loop until nothing
changes any more: read if the end and the budget allow it, greet, let the application take and send,
write. It is called whenever the socket changes, a timer is due, or the application's pause is over.

Messages are numbered and look like their numbers, so their receiver knows what each should be.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from math import inf
from typing import TYPE_CHECKING

from jsonbus.core.channel.end import CLOSED, OPEN, OPENING, ChannelEnd
from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.core.channel.wire import BYTES, Hello
from jsonbus.sim.channels.tcp import Socket
from jsonbus.sim.participants import NodeTimer
from jsonbus.sim.records import Binding, Habits

if TYPE_CHECKING:
    from jsonbus.sim.channels.connector import ConnectAttempt
    from jsonbus.sim.channels.node import NodeChannels

READ_BYTES = 64 << 10
PIECES_MAX = 16
SMALL_BYTES = (0, 1, 10, 300)


def make_body(number: int, size: int) -> bytes:
    """Return the message with that number."""
    return number.to_bytes(4, "big") + bytes((number & 255,)) * size


@dataclass(eq=False, repr=False)
class Endpoint:
    """One end of a channel: of the connecting node with `attempt`, else of the answering one."""

    owner: NodeChannels
    socket: Socket
    hello: InitVar[Hello | None] = None
    attempt: ConnectAttempt | None = None
    binding: Binding | None = None
    habits: Habits = field(default_factory=Habits)
    is_accepted: bool = False
    accepted_at: float = inf
    opened_at: float = inf
    over_at: float = inf  # when its core, or its process, ended
    sent: list[int] = field(default_factory=list)  # sizes of what its application sent
    largest: int = 0  # bytes of the largest
    taken: int = 0
    inbox_when_closed: int = 0
    has_closed: bool = False  # its application has
    left: int = 0  # messages to be sent
    _state: str = OPENING  # the last state that was reported
    _take_at: float = 0.0
    _send_at: float = 0.0
    _is_working: bool = False
    _lets_others: bool = False  # read, before it goes on itself

    def __post_init__(self, hello: Hello | None) -> None:
        self.node = self.owner.node
        self.clock = self.owner.clock
        self.port = hello.port if hello else ""
        self.core = ChannelEnd(MESSAGE_BYTES_MAX, self.owner.local_now(), hello=hello)
        self.reads_since = self.clock.now  # inf: it is not read
        self._timer = NodeTimer(self.node, self.clock, self._timer_at, self._handle_timer)
        self.socket.owner = self
        self.socket.on_ready = self.work

    def __repr__(self) -> str:
        other = self.other.node.name if self.other is not None else self.core.name
        return f"<end of {self.node.name} to {other}, {self.port!r}, {self.core.state}>"

    @property
    def other(self) -> Endpoint | None:
        """The other end of the connection, if somebody has it or had it."""
        other = self.socket.peer.owner
        return other if isinstance(other, Endpoint) else None

    @property
    def was_opened(self) -> bool:
        """True if there was a welcome. One read may bring that, messages and the close at once."""
        return self.core.send_bytes_max > 0

    @property
    def arrived(self) -> int:
        """Number of messages that arrived, whatever became of them."""
        core = self.core
        return core.received + core.skipped + core.discarded - self.inbox_when_closed

    @property
    def is_dead(self) -> bool:
        """True if its process has ended."""
        return self.owner.is_dead

    # --- What an application does ---

    def accept(self, habits: Habits) -> None:
        """Give it to an application."""
        self.is_accepted = True
        self.accepted_at = self.clock.now
        self.use(habits)

    def use(self, habits: Habits) -> None:
        """Change the habits of the application."""
        self.habits = habits
        self.left = habits.messages
        self._take_at = self._send_at = self.clock.now
        self.work()

    def take_all(self) -> None:
        """Take everything from now on, and send the rest of what was to be sent."""
        left = self.left
        self.use(Habits(bytes_max=self.habits.bytes_max))
        self.left = left
        self.work()

    def close(self) -> None:
        if not self.has_closed:
            self._close_core()
            self.left = 0
            self.work()

    def _close_core(self) -> None:
        self.has_closed = True
        self.inbox_when_closed = len(self.core.inbox)
        self.core.close(self.owner.local_now())

    # --- Being driven ---

    def work(self, _: None = None) -> None:
        """Do everything that can be done; called after anything that may matter to it."""
        if self._is_working or self.is_dead or self.node.is_frozen:
            return
        self._is_working = True
        self._lets_others = False
        while self._read() | self._greet() | self._act() | self._write():
            pass
        self._is_working = False
        self._settle()

    def thaw(self) -> None:
        """It has not been read for a while: the other end cannot be blamed."""
        self.core.pause()
        self.core.resume(self.owner.local_now())
        self.reads_since = inf
        self.work()

    def abandon(self) -> None:
        """Drop it: nobody wants it any more, and nobody waits for its end."""
        if self.core.state != CLOSED:
            self.core.fail("it was abandoned here")
            self.work()

    def _read(self) -> bool:
        """Read what the socket has, as long as it is wanted."""
        core, has_read = self.core, False
        while not core.is_over and not self._lets_others:
            if not (core.wants_input and self.owner.budget.may_read(self)):
                core.pause()
                self.reads_since = inf
                break
            now = self.owner.local_now()
            core.resume(now)
            self.reads_since = min(self.reads_since, self.clock.now)
            try:
                data = self.socket.read(READ_BYTES)
            except ConnectionResetError as error:
                core.fail(str(error))
                return True
            if data is None:
                break
            has_read = True
            if data:
                core.receive(memoryview(data), now)
            else:
                core.receive_end(now)
            self._lets_others = self._note_memory()
            if core.state == OPENING and core.hello is not None:
                break  # it has to be answered first
        return has_read

    def _greet(self) -> bool:
        core = self.core
        if self.attempt is not None and not self.is_accepted and core.state != OPENING:
            self.is_accepted = True
            self.attempt.answered(self)
            return True
        if self.attempt is None and core.state == OPENING and core.hello is not None:
            self.port = core.hello.port
            self.owner.answer(self)
            return True
        return False

    def _act(self) -> bool:
        """Let the application act."""
        if not self.is_accepted:
            return False
        core, habits, now = self.core, self.habits, self.clock.now
        has_acted = False
        while core.inbox and habits.take_s != inf and now >= self._take_at:
            self._take()
            has_acted = True
            self._take_at = self._pause(habits.take_s)
        while core.state == OPEN and self.left and core.has_room and now >= self._send_at:
            self._send()
            has_acted = True
            self._send_at = self._pause(habits.send_s)
        if core.state == OPEN and habits.closes and not self.left:
            self._close_core()
            has_acted = True
        return has_acted

    def _take(self) -> None:
        item = self.core.take()
        assert item is not None
        self.owner.world.tell("took", self, item)
        self.taken += 1
        self._note_memory()

    def _send(self) -> None:
        size = self.owner.world.dice.choice((*SMALL_BYTES, self.habits.bytes_max))
        self.core.send(BYTES, make_body(len(self.sent), size))
        self.sent.append(size)
        self.largest = max(self.largest, len(make_body(0, size)))
        self.left -= 1

    def _pause(self, seconds: float) -> float:
        """Return until when an application pauses; it is called then."""
        if not seconds:
            return self.clock.now
        at = self.clock.now + seconds * (0.5 + self.owner.world.dice.random())
        self.clock.call_at(at, self.work)
        return at

    def _write(self) -> bool:
        core, has_written = self.core, False
        while not core.is_over:
            pieces = core.output(PIECES_MAX)
            if not pieces:
                break
            try:
                count = self.socket.write(pieces[0])
            except ConnectionResetError as error:
                core.write_failed(str(error))
                return True
            if not count:
                break
            has_written = True
            core.written(count, self.owner.local_now())
        return has_written

    def _settle(self) -> None:
        core, tell = self.core, self.owner.world.tell
        if core.state != self._state:
            self._state = core.state
            if self.was_opened:
                self.opened_at = min(self.opened_at, self.clock.now)
            if core.is_over:
                self.over_at = self.clock.now
                self.socket.close()
                self.owner.ended(self)
            tell("endpoint_changed", self)
        self._note_memory()
        if core.is_over and not core.inbox:
            self.owner.forget(self)
        tell("endpoint_touched", self)
        self._timer.arm()

    def _note_memory(self) -> bool:
        core = self.core
        partial = 0 if core.is_over else core.partial_bytes
        return self.owner.note_memory(self, core.inbox_bytes, partial)

    def _timer_at(self) -> float:
        return inf if self.is_dead else self.core.timer_at()

    def _handle_timer(self, due_at: float) -> None:
        # Arrived bytes are examined first: after a sleep, the other end must not be blamed.
        self._read()
        self.core.handle_timer(self.node.local_when_due(self.clock.now, due_at))
        self.work()
