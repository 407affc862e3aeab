"""CommandBuffer: the commands of all text clients, from the sockets to the handlers.

    bytes of a client --next_command()--> its commands --take()--> a handler --done()--> next

At most `commands_max` commands are held, those being executed included. A client's commands are
taken one by one and in order. A client is in line while it has commands, leaves the line when a
handler takes one, and goes to the end of the line when that one is done. So clients take turns,
however many commands one of them sent.

When the buffer is full, a client with unread bytes stops receiving and waits for room. Waiting
clients get room in turns, one command each, so a client that keeps the buffer full leaves room for
those that come later. Nothing is dropped; TCP makes the sender wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from .wire import Command

if TYPE_CHECKING:
    from .client import TextClient


class CommandBuffer:
    """See the head of this file. Use it in one event loop."""

    def __init__(self, commands_max: int) -> None:
        self._commands_max = commands_max
        self._line: asyncio.Queue[TextClient] = asyncio.Queue()
        self._waiting_for_room: deque[TextClient] = deque()
        #: Commands held now, and the maximum so far.
        self.held = 0
        self.held_most = 0
        self.is_empty = asyncio.Event()
        self.is_empty.set()

    def fill(self, client: TextClient) -> None:
        """Read the client's commands while there is room; call it when bytes came."""
        if client.waits_for_room:
            return
        while self.held < self._commands_max:
            command = client.next_command()
            if command is None:
                return
            self._put(client, command)
        # Not checked: whether there is another whole line. That would do the work twice.
        client.waits_for_room = True
        client.pause_receiving()
        self._waiting_for_room.append(client)

    async def take(self) -> tuple[TextClient, Command]:
        """Return the next command, of the client whose turn it is; call `done` afterwards."""
        client = await self._line.get()
        return client, client.commands.popleft()

    def done(self, client: TextClient) -> None:
        """Note that a command was executed: there is room, and the client gets its next turn."""
        self.held -= 1
        if client.commands:
            self._line.put_nowait(client)
        else:
            client.has_turn = False
        self._give_room()
        if not self.held:
            self.is_empty.set()

    def _put(self, client: TextClient, command: Command) -> None:
        client.commands.append(command)
        if not self.held:
            self.is_empty.clear()
        self.held += 1
        if self.held > self.held_most:
            self.held_most = self.held
        if not client.has_turn:
            client.has_turn = True
            self._line.put_nowait(client)

    def _give_room(self) -> None:
        waiting = self._waiting_for_room
        while waiting and self.held < self._commands_max:
            client = waiting.popleft()
            command = client.next_command()
            if command is None:
                client.waits_for_room = False
                client.resume_receiving()
            else:
                self._put(client, command)
                waiting.append(client)
