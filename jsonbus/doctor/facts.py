"""What the doctor looks at (facts) and what it concludes (findings): plain data.

Judging facts therefore needs no network. None stands for what this system does not report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceFacts:
    """One network interface of this machine."""

    name: str
    addresses: tuple[str, ...] = ()
    is_up: bool = True
    has_carrier: bool = True
    is_multicast: bool = True
    #: The version that the network's querier speaks, or that the system would: "V2", "V3".
    igmp_version: str | None = None
    #: 0 off, 1 strict, 2 loose.
    reverse_path_filter: int | None = None
    #: A bridge that forwards a group only to members, while nobody queries who is one.
    snoops_unasked: bool = False

    @property
    def is_loopback(self) -> bool:
        return any(address.startswith("127.") for address in self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """The machine, by its own account."""

    interfaces: tuple[InterfaceFacts, ...] = ()
    default_route: str | None = None
    #: The kind of container, and the virtual machine monitor.
    container: str | None = None
    virtual_machine: str | None = None
    #: Linux inside Windows.
    is_wsl: bool = False
    #: The largest receive buffer that an unprivileged program gets.
    rmem_max_bytes: int | None = None
    #: How many groups a socket may join, on all its interfaces together.
    memberships_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinFacts:
    """How the group was joined."""

    #: Names, in the order chosen.
    interfaces: tuple[str, ...]
    receive_buffer_asked_bytes: int
    receive_buffer_obtained_bytes: int
    #: Interfaces that take datagrams only one by one, on a system where others take several.
    one_by_one: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejects:
    """Datagrams that no node understands, of one cause."""

    count: int
    #: Who sent the first, and how it begins.
    sender: str
    start: str


@dataclass(slots=True, kw_only=True)
class TrafficFacts:
    """What came in while listening, and what became of the datagrams that were sent.

    Counted in place during an examination.
    """

    own_sent: int = 0
    own_heard: int = 0
    #: The first refusal of a send.
    send_error: str | None = None
    of_nodes: int = 0
    plain: int = 0
    #: Echoes of others, and answers to them.
    echoes: int = 0
    #: By cause (core.wire.CAUSES).
    rejected: dict[str, Rejects] = field(default_factory=dict)
    #: Addresses that something came from, without our own.
    senders: tuple[str, ...] = ()
    #: Datagrams to the port, but to other addresses than the group: address -> count.
    elsewhere: dict[str, int] = field(default_factory=dict)
    kernel_drops: int = 0
    #: Datagrams that any program of the machine lost to a full buffer: meanwhile, and since boot.
    machine_drops: int | None = None
    machine_drops_ever: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node that is known to be on the bus."""

    node: str
    name: str
    #: None: it is only known from somebody's list, and was never heard.
    address: str | None
    is_here: bool
    lost: int = 0
    #: How far its clock is ahead of this machine's.
    clock_ahead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealFacts:
    """How the bus is sealed, and what came that was not let in."""

    bus: str
    #: The id of the key that seals now.
    key: str
    #: Datagrams by cause (sealed/opener.py).
    refused: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFacts:
    """What became of the echoes of one size, with one listener."""

    size_bytes: int
    sent: int
    answered: int
    #: Of those without an answer: lost on the way there, and answers lost on the way back; the rest
    #: is unknown.
    lost_there: int = 0
    lost_back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFacts:
    """Another `jsonbus doctor --listen`, and the echo measured with it."""

    node: str
    name: str
    address: str
    is_here: bool
    #: Smallest first.
    sizes: tuple[SizeFacts, ...] = ()
    round_trip_median_ms: float | None = None
    round_trip_max_ms: float | None = None
    #: Echoes that came there more than once, and answers that came back more than once.
    repeated_there: int = 0
    repeated_back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts."""

    group: str
    port: int
    ttl: int = 1
    #: As in the settings: "auto", names, addresses.
    choices: tuple[str, ...] = ("auto",)
    duration_s: float = 3.0
    machine: MachineFacts = MachineFacts()
    #: Why the group could not be joined; then nothing below was examined.
    refusal: str | None = None
    joined: JoinFacts | None = None
    traffic: TrafficFacts = field(default_factory=TrafficFacts)
    #: None if everybody may read and write.
    seal: SealFacts | None = None
    nodes: tuple[NodeFacts, ...] = ()
    listeners: tuple[ListenerFacts, ...] = ()

    @property
    def chosen(self) -> tuple[InterfaceFacts, ...]:
        """The interfaces that were joined."""
        names = self.joined.interfaces if self.joined is not None else ()
        by_name = {each.name: each for each in self.machine.interfaces}
        return tuple(by_name[name] for name in names if name in by_name)

    @property
    def is_local(self) -> bool:
        """True if only this machine is meant to be heard."""
        return bool(self.chosen) and all(each.is_loopback for each in self.chosen)

    @property
    def hears_others(self) -> bool:
        """True if anything came from another machine."""
        own = {address for each in self.machine.interfaces for address in each.addresses}
        return any(sender not in own for sender in self.traffic.senders)


#: From good to bad. A note is not a problem, but may explain one.
LEVELS = ("ok", "note", "warning", "problem")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is the case, how bad that is, and what to do about it."""

    level: str
    #: What was looked at, in one word: interface, joining, loopback, …
    check: str
    #: One sentence with the facts.
    text: str
    #: What to do; empty where all is well.
    remedy: str = ""

    def __post_init__(self) -> None:
        assert self.level in LEVELS and (self.remedy or self.level == "ok"), self


def worst(findings: Iterable[Finding]) -> str:
    """Return the worst level of these findings."""
    return max((each.level for each in findings), key=LEVELS.index, default="ok")
