"""Channels of both front ends.

- `test_abort.py`: channels that are given up.
- `test_channel.py`: messages both ways, their order, sizes and counters.
- `test_channels.py`: bind, connect, and why a channel is refused.
- `test_closing.py`: how a channel ends, by either side or with the bus.
- `test_handlers.py`: handlers of channels that do not wait.
- `test_pressure.py`: senders that are faster than receivers, and memory that is short.
"""
