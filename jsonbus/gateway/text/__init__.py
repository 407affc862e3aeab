"""The text protocol: programs that can open a socket and write a line use the bus.

What it promises
----------------
The commands of one client are executed in order; clients take turns. A command that fails is
answered with an error. A client that does not read is cut off when its backlog, or that of all
clients, exceeds its limit; it holds up nobody else. No command is lost: when the buffer is full,
TCP makes the sender wait.

    socket -> TextClient -> CommandBuffer -> a handler -> TextCommands -> hub
    hub -> TextServer.take -> FanOut -> TextClient -> socket

Files, in the order in which data meets them
--------------------------------------------
- server.py: listens, admits clients, runs the handlers.
- client.py: one connection, its bytes in and its lines out.
- wire.py: bytes to commands, messages and replies to lines.
- buffer.py: commands that wait, and whose turn it is.
- commands.py: executes commands.
- fan_out.py: messages as lines for many clients, in few writes.
- outlet.py: the way of lines to one client.
- backlog.py: unread lines, and the memory that they take.

Neighbours
----------
../gateway.py opens it; it calls the hub, and ../http/access.py for the rights of a token. http/
uses the last three for event streams.
"""
