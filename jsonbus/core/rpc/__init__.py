"""Requests with replies, and pings.

A request is repeated until a reply comes or its time is over, and its handler runs once, or not at
all if nobody waits for the reply any more. The files:

- `requests.py`: asking, serving, and a node that asks itself;
- `pings.py`: round trips to every node that hears.

Neighbours: front ends call `node.requests` and `Node.ping`; the receiver brings the frames. Both
put datagrams into the outbox, and report by events.
"""
