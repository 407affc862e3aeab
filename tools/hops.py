"""Print the way of a message through the code, as it was traced.

    python3 tools/hops.py                      tables: calls, files, hops
    python3 tools/hops.py --calls              every call as well
    python3 tools/hops.py --project ../before  the same for another copy of the project

Two nodes on loopback, a `Bus` each, in one process; for a repair two cores without sockets.
`sys.setprofile` sees every call of a function of `jsonbus`. Comprehensions are no calls.

  calls   on the way: of a publish until the datagram leaves; of a datagram from the call that
          leads to the read of the socket until the handler begins
  files   in which these calls are
  hops    how many objects have the message in turn. The first call is the first hop. After that a
          call counts if its arguments or its result hold the message (its value, its JSON, a
          datagram with it, or a `Message`), and is a hop if its object is not that of the hop
          before. The object is `self`, or the module of a function. So coming back to an object is
          a hop; questions on the way (is it my turn? is this node known?) hold no message and are
          none.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from _setup import ROOT, find_python

#: Part of every value that is traced.
MARK = "3f9c1e07"
VALUE = {"mark": MARK, "temperature": 21.53}
#: How deep in a container the message is looked for.
DEPTH_MAX = 6
#: Messages by which a handler becomes a quick one, and a topic a known one.
WARM_UP = 200
TIMEOUT_S = 30.0
#: Where datagrams of the two cores come from.
ADDRESS, OTHER_ADDRESS = ("127.0.0.1", 1), ("127.0.0.1", 2)


@dataclass(slots=True, eq=False)
class Call:
    """One call of a function of ours."""

    file: str
    name: str
    owner: object
    depth: int
    holds_message: bool
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Way:
    """What was traced of one story, or of one phase of it."""

    title: str
    calls: Sequence[Call]

    @property
    def files(self) -> int:
        return len({call.file for call in self.calls})

    @property
    def stations(self) -> list[Call]:
        """Where the message was, in order; one for each hop."""
        found: list[Call] = []
        for call in self.calls:
            if not found or (call.holds_message and call.owner != found[-1].owner):
                found.append(call)
        return found

    @property
    def hops(self) -> int:
        return len(self.stations)


@dataclass(slots=True)
class Tracer:
    """Records the calls of ours in this thread and in those that start later."""

    folder: str
    is_on: bool = False
    calls: dict[int, list[Call]] = field(default_factory=dict)
    #: Called with each C function that is called, while `is_on`.
    on_c_call: Callable[[list[Call], Any], None] = lambda calls, function: None
    _open: dict[int, list[tuple[FrameType, Call]]] = field(default_factory=dict)

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def remove(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def run(self, action: Callable[[], object]) -> list[Call]:
        """The calls that the action makes in this thread."""
        me = threading.get_ident()
        self.calls[me], self._open[me] = [], []
        self.is_on = True
        try:
            action()
        finally:
            self.is_on = False
        return self.calls[me]

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.is_on:
            return
        thread = threading.get_ident()
        calls = self.calls.setdefault(thread, [])
        stack = self._open.setdefault(thread, [])
        if event == "c_call":
            self.on_c_call(calls, argument)
            return
        code = frame.f_code
        if not code.co_filename.startswith(self.folder) or code.co_name in _COMPREHENSIONS:
            return
        if event == "call":
            names = frame.f_locals
            owner: object = id(names["self"]) if "self" in names else code.co_filename
            given = [value for name, value in names.items() if name != "self"]
            file = code.co_filename[len(self.folder) :]
            call = Call(file, code.co_qualname, owner, len(stack), any(map(holds_message, given)))
            calls.append(call)
            stack.append((frame, call))
        elif event == "return" and stack and stack[-1][0] is frame:
            _, call = stack.pop()
            call.is_open = False
            call.holds_message = call.holds_message or holds_message(argument)


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")


def holds_message(thing: Any, depth: int = DEPTH_MAX) -> bool:
    if isinstance(thing, str):
        return MARK in thing
    if isinstance(thing, bytes | bytearray | memoryview):
        return MARK.encode() in bytes(thing)
    if depth == 0:
        return False
    if isinstance(thing, dict):
        return any(holds_message(each, depth - 1) for each in thing.values())
    if isinstance(thing, list | tuple):
        return any(holds_message(each, depth - 1) for each in thing)
    return type(thing).__name__ == "Message" and holds_message(thing.value, depth - 1)


def trace_bus(folder: str) -> list[Way]:
    """A publish to a topic that is new, one to a topic that is known, and a datagram received."""
    import jsonbus

    tracer = Tracer(folder)
    sent: list[int] = []  # how many calls there were before each datagram was sent
    turns: list[int] = []  # the same before the calls that led to the last read of a socket
    received: list[list[Call]] = []

    def handle(message: object) -> None:
        if tracer.is_on and turns:
            received.append(tracer.calls[threading.get_ident()][turns[-1] :])

    def note(calls: list[Call], function: Any) -> None:
        name = getattr(function, "__name__", "")
        if name.startswith("send"):
            sent.append(len(calls))
        elif name.startswith("recv"):
            turns[:] = [number for number, call in enumerate(calls) if call.is_open][:1]

    tracer.on_c_call = note
    tracer.install()
    try:
        settings: dict[str, Any] = {"interface": "lo", "port": 20_000 + random.randrange(9_000)}
        with jsonbus.Bus(name="from", **settings) as bus, jsonbus.Bus(name="to", **settings) as to:
            to.subscribe("hops/*", handle)
            assert bus.wait_for_subscribers("hops/known", TIMEOUT_S)
            assert bus.wait_until_sure(TIMEOUT_S)

            def publish(topic: str) -> list[Call]:
                time.sleep(0.02)
                sent.clear()
                calls = tracer.run(lambda: bus.publish(topic, VALUE))
                return calls[: sent[0]] if sent else calls

            for _ in range(WARM_UP):
                bus.publish("hops/known", VALUE)
                time.sleep(0.001)
            first, steady = publish("hops/new"), publish("hops/known")
            # Profiled from now on without a pause, so that whole turns of the loop are seen.
            received.clear()
            tracer.calls.clear()
            tracer.is_on = True
            for _ in range(3):
                time.sleep(0.05)
                bus.publish("hops/known", VALUE)
            time.sleep(0.1)
            tracer.is_on = False
    finally:
        tracer.remove()
    return [
        Way("publish, a topic for the first time, to the socket", first),
        Way("publish, a known topic, to the socket", steady),
        Way("datagram, from the socket to a quick handler", received[-1]),
    ]


class Repair:
    """Two cores that know each other; the second of three messages is lost."""

    def __init__(self) -> None:
        from jsonbus.core.node import Node
        from jsonbus.core.settings import NodeSettings

        self.now = 1000.0
        self.publisher, self.subscriber = (
            Node(NodeSettings(node=name, incarnation=1, name=name), random.Random(1))
            for name in ("from", "to")
        )
        self.subscriber.subscribe("hops/*", "sink", self.now)
        self.publisher.open(self.now)
        self.subscriber.open(self.now)
        self._talk(5.0)
        self.subscriber.receive_datagram(self._publish(), ADDRESS, self.now)
        assert len(_messages(self.subscriber.take_deliveries())) == 1
        self._publish()  # lost
        self._third = self._publish()
        self._sent: list[bytes] = []
        self.received: list[Any] = []

    def notice(self) -> None:
        self.subscriber.receive_datagram(self._third, ADDRESS, self.now)

    def wait(self) -> None:
        """Until the timer that will send the NAK; others may be due before."""
        while (due_at := self.subscriber.timer_at()) is not None and due_at < self.now + 0.001:
            self.subscriber.handle_timer(due_at)
        assert due_at is not None
        self.now = due_at

    def ask(self) -> None:
        self.subscriber.handle_timer(self.now)
        self._sent = self.subscriber.outbox.take(self.now)

    def repair(self) -> None:
        self.publisher.receive_datagram(self._sent.pop(), OTHER_ADDRESS, self.now)
        self._sent = self.publisher.outbox.take(self.now)

    def deliver(self) -> None:
        self.subscriber.receive_datagram(self._sent.pop(), ADDRESS, self.now)
        self.received = _messages(self.subscriber.take_deliveries())

    def _publish(self) -> bytes:
        assert self.publisher.publish("hops/known", VALUE, self.now, is_reliable=True)
        (datagram,) = self.publisher.outbox.take(self.now)
        return datagram

    def _talk(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.01
            for node, other, address in (
                (self.publisher, self.subscriber, ADDRESS),
                (self.subscriber, self.publisher, OTHER_ADDRESS),
            ):
                node.handle_timer(self.now)
                for datagram in node.outbox.take(self.now):
                    other.receive_datagram(datagram, address, self.now)


def trace_repair(folder: str) -> list[Way]:
    """The four phases of one lost and repaired message."""
    repair, tracer = Repair(), Tracer(folder)
    tracer.install()
    try:
        noticed = tracer.run(repair.notice)
        repair.wait()
        asked, repaired, delivered = map(tracer.run, (repair.ask, repair.repair, repair.deliver))
    finally:
        tracer.remove()
    assert len(repair.received) == 2, "the message was not repaired"
    return [
        Way("repair 1: a later message arrives, one is missing", noticed),
        Way("repair 2: the subscriber's timer sends a NAK", asked),
        Way("repair 3: the publisher repairs", repaired),
        Way("repair 4: both messages are delivered", delivered),
    ]


def _messages(deliveries: Iterable[tuple[object, list[Any]]]) -> list[Any]:
    return [message for _, messages in deliveries for message in messages]


def make_report(ways: Sequence[Way], shows_calls: bool = False) -> str:
    lines = ["| way | calls | files | hops |", "|---|---:|---:|---:|"]
    repair = [way for way in ways if way.title.startswith("repair")]
    total = Way("repair, all of it", [call for way in repair for call in way.calls])
    for way in [*ways, *([total] if repair else [])]:
        hops = "" if way.title.startswith("repair") else str(way.hops)
        lines.append(f"| {way.title} | {len(way.calls)} | {way.files} | {hops} |")
    for way in ways:
        if shows_calls:
            lines += ["", f"{way.title}:", ""]
            stations = way.stations
            for call in way.calls:
                mark = "*" if call in stations else " "
                lines.append(f"  {mark} {'  ' * call.depth}{call.name}  ({call.file})")
    return "\n".join(lines)


def trace(project: Path) -> list[Way]:
    folder = f"{project / 'jsonbus'}/"
    return [*trace_bus(folder), *trace_repair(folder)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", action="store_true", help="show every call; * marks a hop")
    parser.add_argument("--project", type=Path, default=ROOT, help="another copy of the project")
    options = parser.parse_args(arguments)
    project = options.project.resolve()
    if (python := find_python()) != sys.executable:
        return subprocess.run([python, *sys.argv]).returncode
    sys.path.insert(0, str(project))
    print(make_report(trace(project), options.calls))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
