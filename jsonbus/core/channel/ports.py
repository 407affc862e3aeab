"""The ports that a node has bound, and how it answers nodes that connect to them."""

from __future__ import annotations

from typing import Generic, TypeVar

from jsonbus.core.channel.limits import CHANNELS_MAX, MESSAGE_BYTES_MAX, SILENCE_S
from jsonbus.core.channel.wire import VERSION, Hello, Refusal, Welcome, read_port
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.names import INTEGER_MAX
from jsonbus.errors import ConfigError, LocalError

B = TypeVar("B")  # what a port is bound to


def check_port(port: object) -> str:
    """Return a port as it travels: its name, or its number in decimal digits; raises
    ConfigError.
    """
    if type(port) is int:
        if 0 <= port <= INTEGER_MAX:
            return str(port)
        raise ConfigError("that is no port: its number must be from 0 to 2**53")
    try:
        name = read_port(port)
        name.encode()  # a lone surrogate cannot travel
        return name
    except ValueError as error:
        raise ConfigError(f"{port!r:.80} is no port: {error}, or a number from 0 on") from None


def make_hello(own: NodeSettings, to: str, port: str) -> Hello:
    """Make the hello of this node."""
    return Hello(own.node, own.incarnation, own.name, to, port, MESSAGE_BYTES_MAX, int(SILENCE_S))


class Ports(Generic[B]):
    """The ports of one node, each with its owner and its number of channels."""

    def __init__(self, own: NodeSettings, channels_max: int = CHANNELS_MAX) -> None:
        self._own = own
        self._channels_max = channels_max
        self._bound: dict[str, tuple[B, bool]] = {}  # and whether it is exclusive
        self._open: dict[str, int] = {}  # channels by port, bound or no longer bound
        self._channels = 0

    def bind(self, port: str, binding: B, *, exclusive: bool) -> None:
        """Bind a port; raises LocalError if it is bound."""
        if port in self._bound:
            raise LocalError(f"port {port!r} is bound already: close that binding first")
        self._bound[port] = binding, exclusive

    def unbind(self, port: str) -> None:
        """Accept no more channels there; open ones stay."""
        del self._bound[port]

    def bindings(self) -> list[B]:
        return [binding for binding, _ in self._bound.values()]

    def judge(self, hello: Hello) -> B | Refusal:
        """Return the owner of the port that is wanted, or the refusal."""
        if hello.version != VERSION:
            detail = f"the caller speaks {hello.version}, this node {VERSION}"
            return self._refusal("version", detail)
        if hello.to != self._own.node:
            # The node that was here has ended, and this one got its TCP port.
            return self._refusal("gone", f"this is {self._own.node}")
        bound = self._bound.get(hello.port)
        if bound is None:
            return self._refusal("unbound")
        if self._channels >= self._channels_max:
            return self._refusal("busy", f"{self._channels} channels")
        binding, is_exclusive = bound
        if is_exclusive and hello.port in self._open:
            return self._refusal("taken")
        return binding

    def make_busy(self) -> Refusal:
        """Make the refusal for a node that would wait too long."""
        return self._refusal("busy", "many wait to be accepted")

    def make_welcome(self) -> Welcome:
        own = self._own
        return Welcome(own.node, own.incarnation, own.name, MESSAGE_BYTES_MAX, int(SILENCE_S))

    def opened(self, port: str) -> None:
        """Count a channel that was welcomed."""
        self._channels += 1
        self._open[port] = self._open.get(port, 0) + 1

    def closed(self, port: str) -> None:
        """Uncount a channel that has ended: an exclusive port is free again."""
        self._channels -= 1
        self._open[port] -= 1
        if not self._open[port]:
            del self._open[port]

    def _refusal(self, reason: str, detail: str = "") -> Refusal:
        return Refusal(self._own.node, self._own.name, reason, detail)
