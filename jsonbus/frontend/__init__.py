"""What both front ends share: everything about a bus that neither locks nor waits.

opening.py       a node and its transport, from the settings
throttle.py      when a datagram may leave: pace, and a full send buffer
checks.py        arguments of the public methods
events.py        what the core tells: logged, or handed to whoever waits for it
watch.py         handlers of what happens on the bus, as far as the same in both
presence.py      what they are told of nodes
gaps.py          what they are told of messages that were given up
watches.py       all that one bus has of them
subscription.py          the part of a subscription that is the same with threads and tasks
lifetime.py      open buses when the process forks or ends
waits.py         handlers that would wait for themselves
manager.py      all channels of one bus: connections, memory, times
channels/listener.py     who calls this node, and how it is answered
channels/connector.py         its attempts to reach ports of other nodes
channels/connection.py          one connection, and the end of a channel on it
channels/channel.py       the part of a channel that is the same with threads and tasks
binding.py       the same of a port that was bound
figures.py   what stats() tells of channels
"""
