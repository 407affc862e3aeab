"""Describes a run for people: a trace of everything, a tally of datagrams, tables.

A trace has one line per step. Its columns:

    time    virtual seconds since the world began
    node    whom it concerns; "-" is the network or everybody
    state   what the node thinks of its list: joining, sure or doubting; plain; down
    list    the node's list as entries/hash: equal hashes are equal lists
    what    joins, crashes, subscribes, …: what the scenario does
            > datagram    sent; its kind, size in bytes and what is in it
            < messages    given to the application
            = news        what the node itself reports

A share is a full list, sent in answer to somebody who lacks something, and counts once however
many datagrams it takes. A repair is a share of a part. An announcement holds its sender's entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from jsonbus.core.events import Event
from jsonbus.core.message import Message
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    BeatFrame,
    Entry,
    FragmentFrame,
    Frame,
    ListFrame,
    MessagesFrame,
    NakFrame,
    PresenceFrame,
    RepairFrame,
)
from jsonbus.sim.channels.connector import ConnectAttempt
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.checkers import Checker
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.records import Flight, Publication, Sink

TRACE_LEGEND = __doc__.split("Its columns:\n\n")[1] if __doc__ else ""
TRACE_HEADER = f"{'time':>10}  {'node':<5} {'state':<8} {'list':<10} what"


def kind_of(frame: Frame) -> str:
    """Return the kind of a datagram, in the words of a report."""
    if isinstance(frame, ListFrame):
        if frame.header is None:
            return "plain list"
        if frame.covers is None:
            return "announcement"
        return "share" if frame.covers == ALL_BUCKETS else "repair"
    return type(frame).__name__.removesuffix("Frame").lower()


class Tally(Checker):
    """Counts what is sent, by kind: datagrams, bytes, and shares as a whole."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.datagrams: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.shares = 0
        self.repairs = 0

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        kind = kind_of(frame)
        self.datagrams[kind] += 1
        self.bytes[kind] += len(data)
        if isinstance(frame, ListFrame) and frame.part[0] == 0:
            self.shares += kind == "share"
            self.repairs += kind == "repair"

    def rows(self) -> list[str]:
        """Return datagrams and bytes by kind, the most frequent first."""
        rows = [f"{'datagrams':>12} {'bytes':>14}  kind"]
        for kind, count in self.datagrams.most_common():
            rows.append(f"{count:>12,} {self.bytes[kind]:>14,}  {kind}")
        return rows


class Trace(Checker):
    """Writes a line for everything that happens; for worlds small enough to read about."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def happened(self, participant: Participant | None, what: str) -> None:
        self._line(participant, what)

    def published(self, publication: Publication) -> None:
        fate = "" if publication.accepted else ": nobody wants it"
        self._line(
            publication.participant, f"publishes {publication.topic} #{publication.number}{fate}"
        )

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        self._line(sender, f"> {kind_of(frame)} {len(data)} B {self._contents(frame)}".rstrip())

    def delivered(self, sink: Sink, messages: Sequence[Message], flight: Flight | None) -> None:
        shown = ", ".join(f"{m.topic} {_number(m)}" for m in messages)
        self._line(sink.participant, f"< {shown} for {' '.join(sink.patterns)}")

    def told(self, node: SimNode, event: Event) -> None:
        self._line(node, f"= {event}")

    def attempt_changed(self, attempt: ConnectAttempt) -> None:
        self._line(attempt.node, f"= {attempt} {attempt.error or ''}".rstrip())

    def endpoint_changed(self, end: Endpoint) -> None:
        self._line(end.node, f"= {end} {end.core.reason}".rstrip())

    def _contents(self, frame: Frame) -> str:
        if isinstance(frame, FragmentFrame):
            return f"{frame.index + 1} of {frame.count} of message {frame.number}"
        if isinstance(frame, MessagesFrame | RepairFrame):
            return ", ".join(f"{item[0]} #{item[1]['number']}" for item in frame.items)
        if isinstance(frame, NakFrame):
            return f"of {frame.node[:4]}: {frame.topics}"
        if isinstance(frame, BeatFrame):
            return str(frame.beats)
        if isinstance(frame, ListFrame) and frame.header is not None:
            names = ", ".join(_entry(entry) for entry, _ in frame.entries)
            return f"{_short(frame.digest)} of {names} {'' if frame.settled else '(joining)'}"
        if isinstance(frame, PresenceFrame):
            suspects = ", ".join(node[:4] for node, _ in frame.suspects)
            return _short(frame.digest) + (f" who has heard {suspects}?" if suspects else "")
        return ""

    def _line(self, participant: Participant | None, what: str) -> None:
        name, state, digest = "-", "", ""
        if participant is not None:
            name = participant.name[:5]
            state = "plain" if participant.is_plain else "down"
            if isinstance(participant, SimNode) and participant.is_up:
                state, digest = participant.core.state, _short(participant.subscription_list.digest)
        now = self.world.clock.now
        self._write(f"{now:>10.6f}  {name:<5} {state:<8} {digest:<10} {what}")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---:|' * len(header)}"]
    lines.extend(f"| {' | '.join(map(str, row))} |" for row in rows)
    return "\n".join(lines)


def _short(digest: object) -> str:
    """Return the entries and the first hexadecimal digits: enough to tell two lists apart."""
    count, _, rest = str(digest).partition("/")
    return f"{count}/{rest[:6]}" if rest else ""


def _entry(entry: Entry) -> str:
    fate = " left" if entry.left else " gone" if entry.gone else ""
    return f"{entry.name[:5]} v{entry.version}{fate}"


def _number(message: Message) -> str:
    return f"#{message.value['number']}" if isinstance(message.value, dict) else "?"
