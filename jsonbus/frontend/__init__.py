"""What both front ends share: the face of a bus, and everything about it that does not wait.

A bus has one face and two engines. The face is `BaseBus`: the public methods that are plain calls
with threads and with tasks. The engines, sync/ and aio/, differ where it matters: one locks and
runs threads, the other does neither. Nothing here knows which of them it serves: where a lock is
needed, it gets one that may do nothing.

In the order in which a bus meets them:

bus.py           BaseBus: the public methods that do not wait
facts.py         BusFacts: those of them that only read
compartments.py  topics with keys of their own: the parts of a sealed bus
checks.py        arguments of public methods
options.py       the arguments of `subscribe`
opening.py       a node and its transport, made from the settings
loop.py          BaseLoop: subscriptions, watches, channels and counters of one bus
outgoing.py      when to batch messages, and datagrams that were refused
throttle.py      whether the next datagram may leave: rate limit, receivers on this host
subscription.py  BaseSubscription: the messages of one subscription, and their fate
watch.py         watches: handlers of `on_node` and `on_gap`
requests.py      requests, pings, and handlers that would wait for themselves
log.py           BusLog: events of the core, one line each
lifetime.py      open buses when the process forks or ends
limits.py        numbers that both front ends need
channels/        channels, as far as they are the same in both

Called by sync/ and aio/ only. Calls core/ (the protocol) and transport/ (sockets).
"""
