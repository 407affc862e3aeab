"""AsyncBus: the engine with tasks.

Promises: everything runs in the event loop in which the bus was opened, in short calls that never
block it; a flood of messages leaves the other tasks their turns; cancelling a wait loses no
message. There is no lock and no thread.

In the order in which data meets them:

bus.py           AsyncBus: the methods that publish or wait; the others are in frontend/bus.py
publishing.py    from `AsyncBus.publish` to the socket, and when the publisher has to wait
outgoing.py      datagrams on their way out, batched turn by turn
loop.py          where transport, clock and core meet
timer.py         one timer for all of the node's
receiving.py     reads datagrams when the event loop finds some
subscription.py  Subscription: the mailbox of a reader or handler
workers.py       the tasks that run handlers
signal.py        wakes all tasks that wait for a change
watch.py         handlers of `on_node` and `on_gap`
requests.py      requests and pings
channels.py      bind and connect
channel.py       one channel
channel_io.py    sockets of all channels

Called by programs, as `jsonbus.AsyncBus`. Calls frontend/ (what both engines share), core/ and
transport/. Never imports sync/.
"""
