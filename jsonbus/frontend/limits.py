"""Numbers that both front ends need, each with its reason."""

from __future__ import annotations

from typing import Final

# --- sending --------------------------------------------------------------------------------------

#: How long messages are batched after a datagram was sent. Long enough that a flood fills its
#: datagrams (one of 1,400 bytes takes some 50 µs; it is some twenty turns of an event loop that
#: does little else), short beside what any network takes to be noticed by a person.
LINGER_S: Final = 0.0003

#: Output that may wait to be sent before publishers have to. Some 750 datagrams: more than any
#: socket buffer takes at once, little enough to leave within a second on a slow network.
OUTPUT_BYTES_MAX: Final = 1 << 20

#: The pause before the next try when the kernel had no room for a datagram.
RETRY_S: Final = 0.001

#: How long the kernel may have no room for a datagram before that counts as refused.
STALL_S: Final = 5.0

#: The longest pause of a publisher that waits for room in the history before it looks again.
HISTORY_WAIT_S: Final = 0.02

# --- receiving ------------------------------------------------------------------------------------

#: Datagrams read before anything else gets its turn: enough that a flood is not slowed by
#: selecting, few enough that this takes a millisecond or two.
DRAIN_MAX: Final = 64

#: Datagrams read on after a control datagram: more than the largest receive buffer holds.
READ_ON_MAX: Final = 16_384

#: A datagram that comes so long after the last one is read alone, without a look for another: a
#: publisher that has more to send batches it meanwhile.
LULL_S: Final = LINGER_S

#: The pause after an error that would occur again at once.
TROUBLE_PAUSE_S: Final = 0.1

#: A node that read nothing for this long may have missed what others announced.
DEAF_S: Final = 1.0

#: How often a bus checks whether interfaces came or went. One check takes some 0.1 ms.
INTERFACES_S: Final = 3.0

# --- subscriptions --------------------------------------------------------------------------------

#: The size of a mailbox unless the caller chooses one.
MAXSIZE_DEFAULT: Final = 1024

#: Messages taken from a mailbox under one lock. Fewer cost more locking; with many more, other
#: subscriptions would wait for a worker too long.
BATCH_MAX: Final = 128

#: Messages kept beside a full mailbox with overflow "block", when their publisher cannot wait. More
#: than one datagram brings; a program that publishes to itself without ever reading fills it.
EXCESS_MAX: Final = 10_000

#: How often a publisher that waits for room checks whether the reader is still alive.
READER_CHECK_S: Final = 0.5

#: Events that may wait for the handler of a watch, besides those that it started with: as many as
#: the largest simulated bus has nodes.
EVENTS_MAX: Final = 10_000

# --- closing --------------------------------------------------------------------------------------

#: The default timeout of `close`.
CLOSE_S: Final = 1.0

#: The part of its time that `close` keeps for saying goodbye.
CLOSE_RESERVE_S: Final = 0.2

#: How much longer than its timeout `close` may wait: with threads, for the receive thread, which
#: ends within milliseconds unless a log handler blocks it; a second `close`, for the first.
END_GRACE_S: Final = 0.5
