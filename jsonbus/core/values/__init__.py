"""Values that need more than one datagram, outlast their message, or have a type.

- `fragments.py`: large messages: cut into slices, joined again, bounded while incomplete;
- `retained.py`: the last value of a topic, sent to subscribers that come later;
- `typed.py`: values converted to the type that a subscription asked for.

Neighbours: the outbox cuts messages; the receiver passes on slices and retained values. The package
`core.reliable` asks `Fragments` which slices of a message are missing; nothing here imports it.
"""
