"""Channels in the simulator: the production core over simulated TCP.

world.py          where a scenario binds and connects, and the record of what happened
node_channels.py  the channels of one node in one life, in place of the front ends
calls.py          an attempt to open a channel
ends.py           one end of a channel between a socket and an application
sockets.py        the two ends of a simulated TCP connection
streams.py        TCP with delays, pieces of any size, cut links and failing hosts
chaos.py          what happens to the channels of a random history
checkers.py       what must hold of open channels
call_checkers.py  what must hold of attempts to open one
"""
