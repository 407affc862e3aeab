"""Reliable topics: losses are detected and repaired, messages arrive in order and exactly once.

A subscriber gets every message that was published since it subscribed, or a report of the gap: when
the publisher is gone, or kept the message no longer. Nodes without reliable topics have no costs.

The files, in the order in which a message meets them:

- `reliable.py`: connects the rest with the node: publish, receive, NAK, repair, beat, timers;
- `history.py`: the publisher's side: messages kept for repair, and the beats that follow them;
- `kept.py`: what it keeps of one topic: messages that left together, in one step;
- `repairs.py`: the answers: messages that are sent again, and beats;
- `pace.py`: how the publisher slows down while NAKs come in;
- `streams.py`: the subscriber's side: all streams, their timers, and the NAKs they send;
- `claims.py`: which subscription to a topic is the oldest, and so where a stream begins;
- `gaps.py`: one stream: what is missing in it, what waits, when to ask and when to give up.

Neighbours: `Node` drives `Reliable`, the publisher gives it messages to send, the receiver those
that came. It puts datagrams into the outbox, and delivers through the router's inboxes.
"""
