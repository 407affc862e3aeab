"""Every bound and every time of channels, with its unit and its reason."""

from __future__ import annotations

#: One message, as bytes or as JSON. Four times a value on the bus; larger data is cut by its
#: sender, who knows where.
MESSAGE_BYTES_MAX = 64 << 20

#: What the two sides send about themselves before they are connected: names of 255 bytes, escaped.
GREETING_BYTES_MAX = 4096

#: A port's name.
PORT_BYTES_MAX = 255

#: The text of a refusal.
DETAIL_CHARACTERS_MAX = 200

#: Messages that arrived and were not taken yet: with more, a channel is not read any more, and the
#: kernels hold up its sender. Enough that reader and sender need not alternate.
INBOX_BYTES_MAX = 1 << 20

#: A message counts for this much more than its bytes: what Python keeps it in. So empty ones fill
#: an inbox, too.
MESSAGE_OVERHEAD_BYTES = 100

#: What was sent and the kernel did not take yet: with more, senders wait.
OUTPUT_BYTES_MAX = 1 << 20

#: Bodies from this size are sent without being copied behind their prefix.
WHOLE_BYTES_MIN = 16 << 10

#: What all channels of a bus may hold in memory of others' messages: with more, incomplete messages
#: are completed one after the other, until complete ones alone take as much. So at worst it is
#: twice that and one message. Each channel may always have MEMORY_EACH_BYTES, so that small
#: messages flow while large ones wait.
MEMORY_BYTES_MAX = 256 << 20
MEMORY_EACH_BYTES = 64 << 10

#: Channels of one bus, and connections that have not said yet what they want.
CHANNELS_MAX = 16_384
UNIDENTIFIED_MAX = 1024

#: Accepted channels that wait for a slow `accept`: as many as a listening socket usually has.
ACCEPT_MAX = 128

#: How long a connection may take to say what it wants.
GREETING_S = 5.0

#: A side that has sent nothing for BEAT_S sends a beat; for ANSWER_S, if something was sent to it.
#: A beat takes 16 µs of CPU at both sides together, half of it in their kernels: 4,000 idle
#: channels take 0.02 to 0.03 of a core.
BEAT_S = 6.0
ANSWER_S = 2.0

#: A side that has heard nothing for SILENCE_S, although it listens, considers the other gone. That
#: is three beats: TCP sends a lost one again ever more seldom, and a process may have to wait for a
#: busy machine. It is UNANSWERED_S if something was sent: as long as a node of a small bus may be
#: silent before it is suspected.
SILENCE_S = 20.0
UNANSWERED_S = 7.0

#: When to ask for a node that is not known, or did not announce its port, and when to stop waiting
#: for its answer. Twice more, in case a datagram is lost.
ASK_AFTER_S = (0.0, 0.1, 0.3)
FIND_S = 0.6

#: Pauses between tries: short at first, because programs that belong together start together.
RETRY_MIN_S = 0.05
RETRY_MAX_S = 0.5
