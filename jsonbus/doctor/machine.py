"""Gathers what the system reports of itself; what it does not report is None.

The files are Linux's. Elsewhere none of them exists, and the rest is still worth having.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..transport.interfaces import Candidate, default_route_interface, list_candidates
from .facts import InterfaceFacts, MachineFacts
from .surroundings import MARKER_FILES, Marks, container_of, is_wsl, virtual_machine_of

ROOT = Path("/")

#: Bytes read of a file in which only a word is looked for.
_READ_CHARACTERS_MAX = 10_000

_IGMP_LINE = re.compile(r"^\d+\s+(\S+)\s*:\s+\d+\s+(V\d)", re.MULTILINE)


def survey_machine(root: Path = ROOT) -> MachineFacts:
    """Return the machine as it is now; raises TransportError if not even interfaces can be
    listed.
    """
    marks = read_marks(root)
    igmp = igmp_versions(_read(root / "proc/net/igmp"))
    return MachineFacts(
        interfaces=tuple(_interface(each, igmp, root) for each in list_candidates()),
        default_route=default_route_interface(),
        container=container_of(marks),
        virtual_machine=virtual_machine_of(marks),
        is_wsl=is_wsl(marks),
        rmem_max_bytes=_read_number(root / "proc/sys/net/core/rmem_max"),
        memberships_max=_read_number(root / "proc/sys/net/ipv4/igmp_max_memberships"),
    )


def read_marks(root: Path = ROOT) -> Marks:
    hardware = [_read(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    return Marks(
        files=tuple(each for each in MARKER_FILES if (root / each.lstrip("/")).exists()),
        cgroups=_read(root / "proc/1/cgroup") + _read(root / "proc/self/cgroup"),
        kernel=_read(root / "proc/version").strip(),
        hardware=" ".join(each.strip() for each in hardware).strip(),
    )


def count_machine_drops(root: Path = ROOT) -> int | None:
    """Count datagrams that programs of this machine lost to full receive buffers, since it started.

    Of all sockets together: the system counts per socket as well, but mixes them with what a filter
    kept out, such as a node's own datagrams.
    """
    return parse_machine_drops(_read(root / "proc/net/snmp"))


def parse_machine_drops(snmp: str) -> int | None:
    """Parse RcvbufErrors of UDP in /proc/net/snmp: one line has the names, the next the
    numbers.
    """
    lines = [line.split() for line in snmp.splitlines() if line.startswith("Udp:")]
    if len(lines) != 2:
        return None
    text = dict(zip(*lines, strict=False)).get("RcvbufErrors", "")
    return int(text) if text.isdigit() else None


def igmp_versions(igmp: str) -> dict[str, str]:
    """Return interface -> version, from /proc/net/igmp."""
    return dict(_IGMP_LINE.findall(igmp))


def _interface(candidate: Candidate, igmp: dict[str, str], root: Path) -> InterfaceFacts:
    name = candidate.name
    settings = root / "proc/sys/net/ipv4/conf"
    filters = [_read_number(settings / each / "rp_filter") for each in ("all", name)]
    bridge = root / "sys/class/net" / name / "bridge"
    return InterfaceFacts(
        name=name,
        addresses=candidate.addresses,
        is_up=candidate.flags.is_up,
        has_carrier=candidate.flags.has_carrier,
        is_multicast=candidate.flags.is_multicast,
        igmp_version=igmp.get(name),
        # The larger of the two counts, as the kernel itself reads them.
        reverse_path_filter=max((each for each in filters if each is not None), default=None),
        snoops_unasked=_read_number(bridge / "multicast_snooping") == 1
        and _read_number(bridge / "multicast_querier") == 0,
    )


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_READ_CHARACTERS_MAX)
    except OSError:
        return ""


def _read_number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None
