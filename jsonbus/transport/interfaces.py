"""Choose network interfaces; the only import of netifaces.

A choice is "auto", an interface's name, or an IPv4 address it has. "auto" is the default route's
interface, else the first that is capable of multicast and has a carrier, else loopback. The
default route's needs no carrier: nodes of this machine that are on it already still hear each
other there while the cable is out, and a new one belongs with them.

On Linux loopback lacks the MULTICAST flag, yet multicast works on it once joined by index; hence
it is never asked for the flag.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import netifaces

from ..errors import TransportError
from . import platforms
from .base import Interface

AUTO = "auto"

_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


@dataclass(slots=True)
class Candidate:
    """An interface of this machine with all its IPv4 addresses."""

    name: str
    addresses: tuple[str, ...]
    index: int
    flags: platforms.InterfaceFlags

    @property
    def is_loopback(self) -> bool:
        return any(_is_loopback_address(address) for address in self.addresses)


def choose_interfaces(choices: Sequence[str]) -> tuple[Interface, ...]:
    """Return the chosen interfaces, each once, in the order chosen.

    Raises TransportError for a choice that cannot be met.
    """
    candidates = list_candidates()
    found = (_choose_one(choice, candidates, ()) for choice in choices or (AUTO,))
    return _each_once(found)


def follow_interfaces(
    choices: Sequence[str], current: Sequence[Interface]
) -> tuple[Interface, ...]:
    """Return which of the choices exist now; may be empty, never raises for a missing one.

    An interface that lost its address, but still exists, stays, as not up: what was joined on it
    works again when the address is back. "auto" moves only for a reason: to the default route's
    interface when there is one, else it stays where it is as long as that exists.
    """
    candidates = list_candidates()
    found: list[Interface] = []
    for choice in choices or (AUTO,):
        try:
            found.append(_choose_one(choice, candidates, current))
        except TransportError:
            found.extend(_still_there(choice, candidates, current))
    return _each_once(found)


def _choose_one(
    choice: str, candidates: Sequence[Candidate], current: Sequence[Interface]
) -> Interface:
    if choice == AUTO:
        return _choose_auto(candidates, current)
    for candidate in candidates:
        if candidate.name == choice:
            if not candidate.addresses:
                raise TransportError(
                    f"interface {choice!r} has no IPv4 address: give it one, or use "
                    f"{_list_for_people(candidates)}"
                )
            return _as_interface(candidate, candidate.addresses[0])
    for candidate in candidates:
        if choice in candidate.addresses:
            # Chosen by address, perhaps one of several: also the address to send from.
            return replace(_as_interface(candidate, choice), is_pinned=True)
    kind = "interface with the address" if _is_address(choice) else "interface"
    raise TransportError(f"there is no {kind} {choice!r}: use {_list_for_people(candidates)}")


def _choose_auto(candidates: Sequence[Candidate], current: Sequence[Interface]) -> Interface:
    capable = [c for c in candidates if c.addresses and c.flags.is_up and c.flags.is_multicast]
    default_name = default_route_interface()
    for candidate in capable:
        if candidate.name == default_name:
            return _as_interface(candidate, candidate.addresses[0])
    current_names = {interface.name for interface in current}
    stay = [c for c in candidates if c.name in current_names and c.addresses]
    first = [
        *(c for c in stay if not c.is_loopback),
        *(c for c in capable if not c.is_loopback and c.flags.has_carrier),
        *(c for c in candidates if c.is_loopback),
    ]
    if first:
        return _as_interface(first[0], first[0].addresses[0])
    raise TransportError(
        "no network interface with an IPv4 address is up: bring one up (`ip link set lo up` is "
        "enough for this machine alone)"
    )


def _still_there(
    choice: str, candidates: Sequence[Candidate], current: Sequence[Interface]
) -> list[Interface]:
    existing = {(candidate.name, candidate.index) for candidate in candidates}
    return [
        replace(interface, is_up=False)
        for interface in current
        if choice in (interface.name, interface.address, AUTO)
        and (interface.name, interface.index) in existing
    ]


def _as_interface(candidate: Candidate, address: str) -> Interface:
    return Interface(
        name=candidate.name,
        address=address,
        index=candidate.index,
        is_up=candidate.flags.is_up and candidate.flags.has_carrier,
        is_pinned=_is_loopback_address(address),
    )


def list_candidates() -> list[Candidate]:
    try:
        names = netifaces.interfaces()
    except OSError as error:
        raise TransportError(f"cannot list the network interfaces: {error}") from error
    candidates = []
    for name in names:
        try:
            flags = platforms.interface_flags(name)
            families = netifaces.ifaddresses(name)
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS:
                raise TransportError(f"cannot look at the network interfaces: {error}") from error
            continue  # it went away since the line above
        if flags is None:
            continue
        addresses = tuple(entry["addr"] for entry in families.get(netifaces.AF_INET, ()))
        index = platforms.interface_index(name)
        candidates.append(Candidate(name, addresses, index, flags))
    return candidates


def default_route_interface() -> str | None:
    try:
        default = netifaces.gateways().get("default")
    except OSError:
        return None
    route = default.get(netifaces.AF_INET) if isinstance(default, dict) else None
    return None if route is None else str(route[1])


def _each_once(interfaces: Iterable[Interface]) -> tuple[Interface, ...]:
    # Keyed by name: Windows gives no index.
    by_name: dict[str, Interface] = {}
    for interface in interfaces:
        by_name.setdefault(interface.name, interface)
    return tuple(by_name.values())


def _list_for_people(candidates: Sequence[Candidate]) -> str:
    usable = [f"{c.name} ({', '.join(c.addresses)})" for c in candidates if c.addresses]
    return ", ".join([*usable, "or auto"]) if usable else AUTO


def _is_loopback_address(address: str) -> bool:
    return address.startswith("127.")


def _is_address(text: str) -> bool:
    import ipaddress  # only for the text of an error: not worth its time at every start

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
