"""The protocol: datagrams and the time go in; datagrams, messages, events and a timer come out.

Nothing here opens a socket, starts a thread, reads a clock or draws its own random numbers, so a
whole bus fits into one test or one simulation. README.md has the glossary and the protocol.

A datagram that was received meets, in this order:

- `node.py`: one participant of the bus; `node_parts.py` builds and connects all parts below;
- `fast_receive.py`: the way in, the short way for most datagrams, and messages to inboxes;
- `wire/`: the bytes of a datagram, decoded to frames and encoded from them;
- `receiver.py`: drops repeats, and calls the handler of the frame's type;
- `roster.py`: the nodes heard, their counters, and the one place where an arrival is counted;
- `membership/`: the subscription list, joining, sharing, liveness, addresses;
- `reliable/`: gaps found and repaired; `values/`: large, retained and typed values;
- `rpc/`: requests and pings; `channel/`: the bytes of channels between two nodes;
- `mailbox.py`: the bounded buffer of one subscription, used by the front ends.

A message that is published meets:

- `fast_publish.py`: the short way, for topics that were published to before;
- `publisher.py`: the long way: is it wanted, and may it be sent yet?
- `routing/`: topics, patterns, and the subscriptions that want a message;
- `local_subscriptions.py`: the subscriptions of this node's own application;
- `outbox.py`: messages and datagrams that wait to be sent, packed together;
- `pacing.py`: how fast datagrams may leave.

What all of them use: `message.py`, `settings.py`, `limits.py` (every number, with its reason),
`counters.py`, `events.py` (what the core reports to a front end), `timers.py`.
`views.py` shows people what a node knows.

Neighbours: sync, aio and the simulator drive a `Node`; the core imports nothing but errors.
"""
