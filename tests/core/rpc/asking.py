"""Nodes that ask each other where they are, on one Link."""

from __future__ import annotations

from typing import Any

from jsonbus.core.membership.directory import Place
from jsonbus.core.node import Node
from jsonbus.core.wire.encode import encode_presence
from jsonbus.core.wire.frames import About, Frame, PresenceFrame
from tests.core.link import Link, forge

MODES = ["basic", "master", "delayed"]


def is_answer(frame: Frame) -> bool:
    return isinstance(frame, PresenceFrame) and not frame.suspects


def ports_of(link: Link, node: Node, who: str) -> list[int | None]:
    return [place.port for place in node.directory.find(who, link.now)]


def ask(link: Link, node: Node, who: str) -> list[Place]:
    """Ask, let the answers come, and see who was found."""
    node.directory.ask(who, link.now)
    link.move()
    return node.directory.find(who, link.now)


def add_group(link: Link, count: int = 3, **settings: Any) -> list[Node]:
    """Nodes n0, n1, … that agree; their channels are at ports 1, 2, …"""
    nodes = link.add_many(count, **settings)
    for number, node in enumerate(nodes):
        node.directory.set_channel_port(number + 1, link.now)
    link.move()
    link.run(5)
    link.forget_sent()
    return nodes


def forge_about(name: str, port: int | None, *, counter: int = 1, **more: Any) -> bytes:
    """Presence of a stranger with that name."""
    fields = {"version": 1, "mode": "delayed", "is_master": False, "settled": True}
    about = About("desk", "1.0", port)
    fields |= {"digest": None, "sums": None, "name": name, "about": about, **more}
    return forge(encode_presence, counter=counter, **fields)
