"""How large the receive buffers of the other nodes are, as they told themselves.

A publisher asks for the smallest one on its own host, several hundred times a second while it
floods, among up to 10,000 nodes: the answer is kept until a node of these hosts changes it.
"""

from __future__ import annotations

from collections.abc import Container


class PeerBuffers:
    """Sizes by node id. Whoever fills it keeps it as small as the subscription list."""

    __slots__ = ("_hosts", "_is_current", "_known", "_smallest")

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}  # node -> host and bytes
        self._hosts: Container[str] = ()  # that were asked for last
        self._smallest: int | None = None  # on these
        self._is_current = True

    def note(self, node: str, host: str, size_bytes: int) -> None:
        """A node told the size; `host` is the address that it was heard from."""
        known = self._known.get(node)
        if known != (host, size_bytes):
            self._known[node] = (host, size_bytes)
            if host in self._hosts or (known is not None and known[0] in self._hosts):
                self._is_current = False

    def forget(self, node: str) -> None:
        """The node is no longer there."""
        known = self._known.pop(node, None)
        if known is not None and known[0] in self._hosts:
            self._is_current = False

    def smallest(self, hosts: Container[str]) -> int | None:
        """The smallest on these hosts; None if none of their nodes told."""
        if hosts is not self._hosts or not self._is_current:
            self._hosts = hosts
            sizes = [size for host, size in self._known.values() if host in hosts]
            self._smallest = min(sizes, default=None)
            self._is_current = True
        return self._smallest
