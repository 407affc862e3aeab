"""Nodes that ask and serve, on one Link."""

from __future__ import annotations

from typing import Any

from jsonbus.core.events import ReplyReceived
from jsonbus.core.node import Node
from jsonbus.core.rpc.requests import Request
from tests.core.link import Link


def make_pair(link: Link, **settings: Any) -> tuple[Node, Node]:
    """One that asks and one that serves "add"."""
    a, b = link.add("a", **settings), link.add("b", **settings)
    b.requests.serve("add", "adder", link.now)
    link.run(5)
    return a, b


def ask(link: Link, node: Node, topic: str = "add", value: Any = 1, timeout_s: float = 1.0) -> int:
    request_id = node.requests.request(topic, value, timeout_s, link.now)
    link.move()
    return request_id


def cancel(link: Link, node: Node, request_id: int) -> bool:
    """Cancel a request; return whether that was told to other nodes."""
    is_told = node.requests.cancel(request_id, link.now)
    link.move()
    return is_told


def requests_of(link: Link, name: str) -> list[Request]:
    return [message for message in link.received[name] if isinstance(message, Request)]


def answer(link: Link, node: Node, value: Any = None, error: str | None = None) -> None:
    """Reply to the oldest request that waits."""
    request = requests_of(link, node.settings.name)[0]
    link.received[node.settings.name].remove(request)
    node.requests.reply(request, value, error, link.now)
    link.move()


def replies(link: Link, name: str = "a") -> list[ReplyReceived]:
    return link.events_of(name, ReplyReceived)
