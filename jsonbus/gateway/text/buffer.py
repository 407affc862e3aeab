"""CommandBuffer: the commands of all text clients, between those who read and those who execute.

    bytes of a client --next_command()--> its commands --take()--> a handler --done()--> next

At most `commands_max` commands are held, those being executed included. A client's commands are
taken one by one and in order: it is in line with its first command, leaves the line when a handler
takes it, and goes to the end of the line if it has more when that one is done. So clients take
turns, however many commands one of them sent.

When the buffer is full, a client with bytes that are not read yet stops receiving and waits for
room. Room goes to those who wait in turns as well, one command each: a client that keeps the buffer
full shares it with whoever comes later. Nothing is dropped; TCP makes the sender wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from .wire import Command

if TYPE_CHECKING:
    from .client import TextClient


class CommandBuffer:
    """See the head of this file. Everything in one event loop."""

    def __init__(self, commands_max: int) -> None:
        self._commands_max = commands_max
        self._line: asyncio.Queue[TextClient] = asyncio.Queue()
        self._waiting_for_room: deque[TextClient] = deque()
        #: Commands held now, and the most there ever were.
        self.held = 0
        self.held_most = 0
        self.is_empty = asyncio.Event()
        self.is_empty.set()

    def fill(self, client: TextClient) -> None:
        """Read the client's commands as far as there is room; to be called when bytes came."""
        if client.waits_for_room:
            return
        while self.held < self._commands_max:
            command = client.next_command()
            if command is None:
                return
            self._put(client, command)
        # Whether there is another whole line is not looked at: that is work done twice.
        client.waits_for_room = True
        client.pause_receiving()
        self._waiting_for_room.append(client)

    async def take(self) -> tuple[TextClient, Command]:
        """The next command, of the client whose turn it is; `done` must follow."""
        client = await self._line.get()
        return client, client.commands.popleft()

    def done(self, client: TextClient) -> None:
        """The command taken was executed: there is room, and the client may have its next turn."""
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
