"""The protocol: bytes and an instant in, bytes, events and messages out.

Nothing here opens a socket, starts a thread, reads a clock or rolls dice of its own, so a whole
bus fits into one test or one simulation. The front ends bring the network and the time.
"""
