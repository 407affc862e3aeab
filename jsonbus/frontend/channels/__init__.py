"""Channels of one bus: the half that threads and tasks share.

A channel is a TCP connection between two nodes that carries whole messages in both directions. The
protocol itself (greeting, frames, closing, heartbeats) is `jsonbus.core.channel`; this package owns
the sockets' life around it. Nothing here waits: each front end brings a ChannelIO object that
waits for sockets and timers and calls in (a thread in sync, the event loop in aio).

The files, in the order in which a channel meets them:

- `channels.py`: what `bind` and `connect` of a bus do.
- `connector.py`: one attempt per `connect`: find the node, dial it, greet it, perhaps retry.
- `listener.py`: the listening sockets, connections without a hello yet, bound ports.
- `binding.py`: a bound port, and the channels that wait to be accepted.
- `manager.py`: all connections; what to read, what to write, timers, the memory budget.
- `connection.py`: one TCP connection and its end of the channel: bytes in and out.
- `channel.py`: what the application holds: send, receive, handlers, close.
- `counters.py`: what `stats()` reports about channels.

On a sealed bus, `manager.py` exchanges each connection for one that seals what is written and opens
what is read (sealed/tcp.py). Nothing else differs.

The modules `channels`, `channel` and `channel_io` of sync and aio call it. It calls the core's
`channel` package for the protocol, the transport's `tcp` for sockets, and the node, through the
bus's loop, for the addresses of other nodes.
"""
