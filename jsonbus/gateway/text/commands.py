"""TextCommands: executes the commands of text clients."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import jsonbus
from jsonbus.errors import (
    BacklogFullError,
    ClosedError,
    JsonBusError,
    LocalError,
    StoreError,
    TransportError,
)

from ..http.access import Access
from ..hub import Hub
from ..rate_limited_log import RateLimitedLog
from ..values import parse_text
from . import wire as text_wire
from .client import TextClient
from .fan_out import FanOut
from .wire import Command, format_error, format_reply, format_topic

logger = logging.getLogger("jsonbus.gateway.text")

#: Wrong tokens after which a client has to connect again.
WRONG_TOKENS_MAX = 3

#: Patterns of one client. Each costs every node of the bus; `**` subscribes to everything.
PATTERNS_PER_CLIENT_MAX = 1_000

#: A client's own messages come back over the bus, some iterations of the event loop later. A script
#: that publishes, subscribes and quits at once still gets them, as a person typing would.
ECHO_S = 0.25


class TextCommands:
    """Executes commands of clients, which `fan_out` stores while they subscribe to something.

    Every `want` of the hub has its `unwant`: when the client unsubscribes, ends, or has ended
    while the hub was asked.
    """

    def __init__(self, hub: Hub, access: Access, fan_out: FanOut[TextClient]) -> None:
        self._hub = hub
        self._access = access
        self._fan_out = fan_out
        self._store = fan_out.store
        self._actions: dict[str, Callable[[TextClient, Command], Awaitable[None]]] = {
            text_wire.PUBLISH: self._publish,
            text_wire.SUBSCRIBE: self._subscribe,
            text_wire.UNSUBSCRIBE: self._unsubscribe,
            text_wire.AUTH: self._auth,
            text_wire.REFUSED: self._refuse,
            text_wire.FOREIGN: self._turn_out,
            text_wire.QUIT: self._end,
            text_wire.END: self._end,
        }
        self._token_warnings = RateLimitedLog(logger)
        self.executed = 0
        #: Commands that were answered with an error.
        self.failed = 0

    async def execute(self, client: TextClient, command: Command) -> None:
        """Execute a command. Errors go to the client; only CancelledError is raised."""
        self.executed += 1
        if client.is_finishing and command.word not in text_wire.LAST_WORDS:
            return  # sent after the third wrong token
        try:
            await self._actions[command.word](client, command)
        except (BacklogFullError, LocalError) as error:
            self._fail(client, error)
        except StoreError:  # its text names files of this machine, so only the store logs it
            self._fail(client, "try again later: the gateway cannot write to its store")
        except TransportError as error:
            self._fail(client, f"try again later: {error}")
        except Exception:
            # Not the command itself: its value may be a token or a private message.
            logger.exception("a command %r failed", command.word)
            self._fail(client, "try again later: the gateway failed, see its log")

    def end_subscriptions(self, client: TextClient) -> None:
        """End all subscriptions of a client."""
        for pattern in self._store.remove(client):
            self._hub.unwant(pattern)

    async def _publish(self, client: TextClient, command: Command) -> None:
        _check_right(client, "publish")
        client.has_published = True
        await self._hub.publish(command.topic, parse_text(command.value))

    async def _subscribe(self, client: TextClient, command: Command) -> None:
        _check_right(client, "subscribe")
        pattern = jsonbus.check_pattern(command.topic)
        patterns = self._store.patterns_of(client)
        if pattern in patterns:
            raise LocalError(f"already subscribed to {format_topic(pattern)}")
        if len(patterns) >= PATTERNS_PER_CLIENT_MAX:
            raise LocalError(
                f"a client may have at most {PATTERNS_PER_CLIENT_MAX:,} subscriptions: "
                "unsubscribe from some, or subscribe to a pattern"
            )
        if client.is_lost:
            return
        retained = await self._hub.want(pattern)
        # The client may have ended meanwhile; nobody else would end this subscription.
        if client.is_lost or client.is_finishing:
            self._hub.unwant(pattern)
            return
        self._store.subscribe(pattern, client)
        client.send(format_reply("subscribe_ack", pattern))
        client.write_chunks(self._fan_out.join_retained(retained))

    async def _unsubscribe(self, client: TextClient, command: Command) -> None:
        pattern = jsonbus.check_pattern(command.topic)
        if not self._store.unsubscribe(pattern, client):
            raise LocalError(f"not subscribed to {format_topic(pattern)}")
        self._hub.unwant(pattern)
        client.send(format_reply("unsubscribe_ack", pattern))

    async def _auth(self, client: TextClient, command: Command) -> None:
        rights = self._access.rights_of(command.value)
        if rights:
            client.rights = rights
            client.set_deadline(None)
            client.send(format_reply("auth_ack"))
            return
        client.wrong_tokens += 1
        self._fail(client, "wrong token")
        if client.wrong_tokens >= WRONG_TOKENS_MAX:
            self._token_warnings.warning(
                "a text client at %s sent %d wrong tokens", client.peer, WRONG_TOKENS_MAX
            )
            client.finish()

    async def _refuse(self, client: TextClient, command: Command) -> None:
        raise LocalError(command.value)

    async def _turn_out(self, client: TextClient, command: Command) -> None:
        self._fail(client, command.value)
        client.finish()
        client.leave_if_gone()

    async def _end(self, client: TextClient, command: Command) -> None:
        if client.has_published and not client.is_lost and self._store.patterns_of(client):
            client.finish_after(ECHO_S)
        else:
            client.finish()
        client.leave_if_gone()

    def _fail(self, client: TextClient, reason: JsonBusError | str) -> None:
        self.failed += 1
        if isinstance(reason, ClosedError):
            reason = "the gateway is closing: connect again later"
        client.send(format_error(reason))


def _check_right(client: TextClient, right: str) -> None:
    if right not in client.rights and "admin" not in client.rights:
        hint = "your token has other rights" if client.rights else "send auth TOKEN first"
        raise LocalError(f"this needs a token with the right {right!r}: {hint}")
