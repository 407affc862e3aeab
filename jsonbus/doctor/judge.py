"""Facts in, findings out: no socket, no clock, no file.

In the order in which a person would look: what was chosen, whether it was joined, whether anything
arrives, from whom, and how well.
"""

from __future__ import annotations

from .facts import Facts, Finding
from .judge_echo import judge_listener
from .judge_machine import (
    judge_buffer,
    judge_igmp,
    judge_interfaces,
    judge_offload,
    judge_surroundings,
)
from .judge_seal import judge_clocks, judge_seal
from .judge_traffic import judge_drops, judge_foreign, judge_loopback, judge_nodes


def judge(facts: Facts) -> list[Finding]:
    """Everything that can be said about the facts; never empty."""
    if facts.refusal is not None:
        return [_judge_refusal(facts.refusal), *judge_surroundings(facts)]
    findings = [
        *judge_interfaces(facts),
        *judge_surroundings(facts),
        *judge_igmp(facts),
        *judge_buffer(facts),
        *judge_offload(facts),
        *judge_loopback(facts),
        *judge_drops(facts),
        *judge_foreign(facts),
        *judge_nodes(facts),
        *judge_seal(facts),
        *judge_clocks(facts),
    ]
    for listener in facts.listeners:
        findings += judge_listener(listener)
    return findings


def _judge_refusal(refusal: str) -> Finding:
    # The transport's errors are made like this: what is wrong, a colon, what to do.
    text, _, remedy = refusal.partition(": ")
    return Finding("problem", "joining", text, remedy or "choose another interface")
