"""Channels in the simulator: the production core over simulated TCP.

world.py      where a scenario binds and connects, and the record of what happened
node.py       the channels of one node in one life, in place of the front ends
connector.py  an attempt to connect to a port of another node
endpoint.py   one end of a channel, between a socket and an application
tcp.py        TCP with delays, pieces of any size, cut links and failing hosts
chaos.py      what happens to the channels of a random history
checkers.py   the promises of channels, and of attempts to open one
"""
