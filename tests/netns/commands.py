"""What commands on a host report about the bus."""

from __future__ import annotations

import json
from typing import Any

from tools.lab.host import Host
from tools.lab.process import Process

TIMEOUT_S = 60.0


def values(process: Process) -> list[Any]:
    """The values that a `sub` or `node --sub` has printed so far."""
    return [each["value"] for each in process.objects()]


def ask(host: Host, *arguments: str) -> list[dict[str, Any]]:
    """What a command that ends by itself printed, as objects."""
    process = host.run(*arguments, timeout_s=TIMEOUT_S)
    assert process.returncode == 0, process.report()
    return process.objects()


def names_known(host: Host, *options: str) -> set[str]:
    """The names of the nodes that a newcomer on the host gets to know."""
    return {each["name"] for each in ask(host, "nodes", *options)}


def patterns_known(host: Host, *options: str) -> set[str]:
    """The patterns that a newcomer on the host gets to know."""
    return {each["pattern"] for each in ask(host, "topics", *options)}


def has_logged(process: Process, *texts: str) -> bool:
    """Whether one line of the log has all the texts."""
    return any(all(text in line for text in texts) for line in process.errors().splitlines())


def datagrams(process: Process) -> list[dict[str, Any]]:
    """What a plain listener has heard so far."""
    return [json.loads(line) for line in process.lines()[1:]]


def events(process: Process, event: str, **facts: object) -> list[dict[str, Any]]:
    """What a channel_node.py has told of that event, with these facts."""
    return [
        each
        for each in process.objects()
        if each["event"] == event and facts.items() <= each.items()
    ]
