"""The channel protocol: messages between two nodes over one TCP connection. No socket, no clock.

A channel delivers every message in order and exactly once, or reports that it is lost. Both ends
bound what they hold, so that a slow reader slows its writer down. The bytes are those of channel
version 1.

The files, in the order in which a channel meets them:

- `ports.py`: the names that a node listens at, and the channels bound to them;
- `connecting.py`: one attempt to reach a port of another node: find, dial, retry;
- `wire.py`: the bytes: greetings and frames, written and read;
- `end.py`: one end: opening, open, closing, closed; its timers;
- `liveness.py`: its beats, and when it takes the other end for gone;
- `output.py`: the frames of an end that wait to be written;
- `budget.py`: how much the channels of one node may hold together;
- `limits.py`: the numbers, each with its reason.

Neighbours: `frontend/channels/` and the simulator own the sockets and drive the ends; addresses of
nodes come from `core.membership.directory`.
"""
