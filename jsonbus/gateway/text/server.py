"""TextServer: listens for text clients, runs their commands, hands messages to their fan-out.

wire.py has the lines, client.py the sockets, buffer.py the order of execution.

Handlers are tasks: while one waits for the hub (a message for a webhook goes to disk), the others
execute commands of other clients. Messages do not pass through handlers, but through the fan-out
(fan_out.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import jsonbus
from jsonbus.errors import TransportError
from jsonbus.tls.certificate import ServerCertificate
from jsonbus.tls.port import TlsPort

from ..http.access import Access
from ..hub import Hub
from ..rate_limited_log import RateLimitedLog
from .backlog import PIECE_BYTES, LineBudget
from .buffer import CommandBuffer
from .client import TextClient
from .commands import TextCommands
from .fan_out import FanOut
from .wire import format_delivery, format_error, format_reply

logger = logging.getLogger("jsonbus.gateway.text")

#: Connections that wait in the kernel: a thousand clients may start at the same moment.
LISTEN_BACKLOG = 1_024

#: Commands that a handler executes before it yields to the event loop: about a millisecond if the
#: hub never waits.
COMMANDS_PER_TURN = 32

#: How long `close` waits: for running commands, then for clients to read what was sent to them.
CLOSE_COMMANDS_S = 2.0
CLOSE_CLIENTS_S = 1.0

#: The memory for unread lines of all clients. Ten thousand that lag behind on one topic hold
#: the same megabyte. asyncio copies the rest of one write per client, so four thousand clients can
#: be choked at the same moment before the first is cut off for it.
TOTAL_BACKLOG_BYTES_MAX = 256 << 20

#: While there are many clients, each receives less at a time: its input takes memory while the
#: command buffer is full.
CLIENTS_MANY = 1_000
PIECE_OF_MANY_BYTES = 8_192

_CLOSING = "the gateway is closing: connect again later"
_PLAIN_ANSWER = format_error("this port speaks TLS: connect with TLS")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLimits:
    """The limits of text clients."""

    #: Commands that are executed at the same time.
    handlers: int = 5
    #: Commands that are held, including those.
    commands: int = 1_000
    clients: int = 10_000
    #: Unread lines and bytes of one client, and the memory that those of all clients take.
    backlog_lines: int = 10_000
    backlog_bytes: int = 1 << 20
    total_backlog_bytes: int = TOTAL_BACKLOG_BYTES_MAX
    #: Where tokens are needed, a client must send one within this time.
    auth_s: float = 30.0


class TextServer:
    """Serves text clients, over TLS with a certificate. Use it in the event loop of the hub."""

    def __init__(
        self,
        hub: Hub,
        access: Access,
        limits: TextLimits | None = None,
        certificate: ServerCertificate | None = None,
    ) -> None:
        self.limits = limits = limits or TextLimits()
        self._tls = None if certificate is None else TlsPort(certificate, _PLAIN_ANSWER)
        self._access = access
        self._fan_out: FanOut[TextClient] = FanOut(format_delivery)
        self._store = self._fan_out.store
        self._commands = TextCommands(hub, access, self._fan_out)
        self._buffer = CommandBuffer(limits.commands)
        self._handlers: list[asyncio.Task[None]] = []
        self._clients: set[TextClient] = set()  # with those lost whose commands are not done
        self._server: asyncio.Server | None = None
        self._is_closing = False
        self._takes_commands = True
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._drop_warnings = RateLimitedLog(logger)
        self._refusal_warnings = RateLimitedLog(logger)
        self._accepted = self._refused = self._dropped = 0
        self._dropped_for_all = 0
        #: Where it listens; of several addresses the first.
        self.address: tuple[str, int] = ("", 0)
        #: Shared by all clients: a client copies what it received before the next one receives.
        #: Its size bounds what one client receives at a time.
        self._receive_buffer = memoryview(bytearray(PIECE_BYTES))
        self.receive_buffer = self._receive_buffer
        self.budget = LineBudget(limits.total_backlog_bytes)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 is any free one, see `address`. Raises TransportError."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._make_client if self._tls is None else self._tls.wrap(self._make_client),
                host,
                port,
                backlog=LISTEN_BACKLOG,
            )
        except OSError as error:
            # Not asyncio's text, which repeats the address.
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            raise TransportError(
                f"cannot listen for text clients on {host}:{port}: {reason}; choose another port"
            ) from error
        self.address = self._server.sockets[0].getsockname()[:2]
        self._handlers = [
            loop.create_task(self._handle(), name=f"text handler {number}")
            for number in range(self.limits.handlers)
        ]
        logger.debug("= text clients are served on %s:%d", *self.address)

    def take(self, messages: Sequence[jsonbus.Message]) -> None:
        """Send messages to the clients that want them: the hub's sink. Never waits or raises."""
        self._fan_out.take(messages)

    async def close(self) -> None:
        """End all clients; those that read get their lines first. Bounded in time."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        if self._tls is not None:
            self._tls.close()
        for client in self._clients:
            client.pause_receiving()
        await _wait_for(self._buffer.is_empty, CLOSE_COMMANDS_S)
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        self._takes_commands = False
        for client in tuple(self._clients):
            client.commands.clear()
            client.refuse(_CLOSING)
        await _wait_for(self._is_empty, CLOSE_CLIENTS_S)
        for client in tuple(self._clients):
            client.abort()
        await asyncio.sleep(0)  # asyncio closes an aborted socket in its next iteration

    def stats(self) -> dict[str, int]:
        lost = sum(client.is_lost for client in self._clients)
        return {
            "clients": len(self._clients) - lost,
            "clients_accepted": self._accepted,
            "clients_refused": self._refused,
            "clients_dropped": self._dropped,
            "clients_dropped_for_all": self._dropped_for_all,
            "patterns": len(self._store),
            "commands": self._commands.executed,
            "commands_failed": self._commands.failed,
            "commands_waiting": self._buffer.held,
            "deliveries": self._fan_out.deliveries,
            "messages_unwritable": self._fan_out.unwritable,
            "lines_waiting": sum(client.backlog.lines for client in self._clients),
            "backlog_bytes": self.budget.bytes,
            **({} if self._tls is None else self._tls.stats()),
        }

    # ---- Called by clients

    def admit(self, client: TextClient) -> None:
        """Greet a client that has just connected, or turn it away."""
        if self._is_closing:
            client.turn_away(_CLOSING)
            return
        if len(self._clients) >= self.limits.clients:
            self._refused += 1
            self._refusal_warnings.warning(
                "a text client at %s was refused: %d are connected, at most %d are allowed",
                client.peer,
                len(self._clients),
                self.limits.clients,
            )
            client.turn_away(
                f"too many clients, at most {self.limits.clients:,} are allowed: try again later"
            )
            return
        self._accepted += 1
        self._clients.add(client)
        self._is_empty.clear()
        if len(self._clients) == CLIENTS_MANY:
            self.receive_buffer = self._receive_buffer[:PIECE_OF_MANY_BYTES]
        client.id = str(self._accepted)
        client.rights = self._access.rights_of(None)
        if not client.rights:
            client.set_deadline(self.limits.auth_s)
        client.send(format_reply("connection_ack", client.id))

    def has_input(self, client: TextClient) -> None:
        """Read the client's commands into the buffer."""
        if self._takes_commands:
            self._buffer.fill(client)
        elif client.is_lost:
            self.is_gone(client)

    def flush(self) -> None:
        """Write the messages that are held: what comes next must not overtake them."""
        self._fan_out.flush()

    def end_subscriptions(self, client: TextClient) -> None:
        """Deliver nothing more to the client."""
        self._commands.end_subscriptions(client)

    def count_dropped(self, client: TextClient) -> None:
        """Count and log a client that is cut off because it did not read."""
        self._dropped += 1
        self._drop_warnings.warning(
            "the text client at %s was cut off with %d lines and %d bytes kept for it (%d "
            "bytes for all): it must read faster, or subscribe to less",
            client.peer,
            client.backlog.lines,
            client.held_bytes,
            self.budget.bytes,
        )

    def keep_budget(self) -> None:
        """Cut off the clients with the most unread bytes, perhaps the caller."""
        for client in self.budget.find_furthest(self._clients):
            self._dropped_for_all += 1
            client.cut_off()

    def is_gone(self, client: TextClient) -> None:
        """Forget a client that is lost and whose last command was executed."""
        self._clients.discard(client)
        if len(self._clients) == CLIENTS_MANY - 1:
            self.receive_buffer = self._receive_buffer
        if not self._clients:
            self._is_empty.set()

    def _make_client(self) -> TextClient:
        return TextClient(self)

    async def _handle(self) -> None:
        executed = 0
        while True:
            client, command = await self._buffer.take()
            try:
                await self._commands.execute(client, command)
            finally:
                self._buffer.done(client)
            executed += 1
            if executed % COMMANDS_PER_TURN == 0:
                await asyncio.sleep(0)


async def _wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for an event, but not for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
