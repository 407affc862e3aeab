"""Finds out why nothing arrives: `examine` gathers facts, `judge` turns them into findings.

Files in the order in which an examination uses them:

machine.py         reads what the system reports of itself: interfaces, IGMP, buffers
surroundings.py    recognizes containers, virtual machines, tunnels and wireless interfaces
examination.py     joins the group, listens and sends echoes for a while; collects all facts
traffic.py         counts what arrives, and why datagrams are refused
echo.py            the echo between two hosts: Asker here, Answerer there; no socket, no clock
echo_wire.py       encodes echoes and their answers
echo_figures.py    loss, direction and round trip from echoes and answers
echo_listener.py   `doctor --listen`: answers the echoes of others
facts.py           Facts and Finding: plain data, so that judging needs no network
judge.py           facts in, findings out, in the order in which a person would look
judge_machine.py   findings about interfaces, IGMP, the receive buffer, the surroundings
judge_traffic.py   findings about what arrived
judge_seal.py      findings about a sealed bus, and about clocks
judge_echo.py      findings about the echo

Called by the command `doctor`. Calls the wire format, the transport and the configuration below the
bus, and joins the bus as a node to see who is there.
"""

from __future__ import annotations

from .echo import Asking
from .echo_listener import EchoListener
from .examination import examine
from .facts import LEVELS, Facts, Finding, worst
from .judge import judge

__all__ = [
    "LEVELS",
    "Asking",
    "EchoListener",
    "Facts",
    "Finding",
    "examine",
    "judge",
    "worst",
]
