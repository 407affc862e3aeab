"""Bus: the engine with threads.

Promises: any thread may call any method of a `Bus`; a slow or failing handler hurts only its own
subscription; nothing waits for ever. One lock guards the node, and no thread holds it while it
sends, receives, logs or runs code of the application.

In the order in which data meets them:

bus.py             Bus: the methods that publish or wait; the others are in frontend/bus.py
publishing.py      from `Bus.publish` to the socket, for messages that are not simply queued
outgoing.py        decides which thread sends: one at a time
loop.py            where transport, clock and core meet; the lock
receiving.py       the work of the receive thread
waiter.py          what the receive thread waits for
waker.py           wakes a thread that waits in a selector
thread_pool.py     decides which thread receives, and which run handlers
subscription.py    Subscription: the mailbox of a reader or handler
watch.py           handlers of `on_node` and `on_gap`
requests.py        requests and pings
channels.py        bind and connect
channel.py         one channel
channel_io.py      the thread that serves all channels
direct_receive.py  a reader of a channel that reads the socket itself

Called by programs, as `jsonbus.Bus`. Calls frontend/ (what both engines share), core/ and
transport/. Never imports aio/.
"""
