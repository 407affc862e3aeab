"""The bounds of the wire format, each with its unit and its reason.

Whatever a datagram claims is held against these before anything else looks at it.
"""

from __future__ import annotations

from jsonbus.core.wire.frames import BUCKET_SUM_BITS, BUCKETS

# The largest UDP payload that IPv4 can carry: 65,535 less 20 (IP) and 8 (UDP) bytes of headers.
DATAGRAM_BYTES_MAX = 65_507

# Every integer of the header and of the control datagrams. Beyond 2**53 a JSON parser that reads
# numbers as doubles (JavaScript's, for one) silently gives another number.
INTEGER_MAX = 2**53

# Ours have 16 characters; 64 leave room for another implementation's UUID or hash.
NODE_ID_BYTES_MAX = 64

# What a host name may have at most, and what a topic may have.
NODE_NAME_BYTES_MAX = 255

# The name of a machine: what Linux allows, and one more than a label of DNS. Who has a longer one
# cuts it: it tells people where to look, and names nothing.
HOST_BYTES_MAX = 64

# "10.20.30.post4+local.5" and the like.
SOFTWARE_BYTES_MAX = 32

# Of TCP, and so of a channel's listener.
PORT_MAX = 65_535

# orjson reads 1,024 levels but writes 254: a deeper value could be received, never passed on.
NESTING_LEVELS_MAX = 254

# An age travels as milliseconds. Eleven days: who was not heard for that long is long expired,
# and nine digits keep an entry's size predictable.
AGE_MS_MAX = 999_999_999

# Parts of one list. At 1,400 bytes a part, more nodes than multicast ever carried.
LIST_PARTS_MAX = 65_535

# Slices of one message: 64 MiB, the most that settings allow, in their smallest datagrams, if JSON
# has to escape every character.
SLICES_MAX = 1 << 18

# Slices that one NAK tells apart, in base64: 350 bytes, which leave room for ranges beside them.
NAK_SLICES_MAX = 2048

# Indexes into a list's payload: even of the shortest patterns, `"a",`, no more fit a datagram.
LIST_PATTERNS_MAX = DATAGRAM_BYTES_MAX // 4

# All bucket sums of a list, before base64.
SUMS_BYTES = BUCKETS * BUCKET_SUM_BITS // 8

# The text of a failed request: enough for one sentence of an exception. Four bytes a character,
# it still fits the default datagram of 1,400 bytes beside the header.
ERROR_CHARS_MAX = 250

# Where `peek_header` looks for the header of a message: the longest that we write has 170 bytes.
HEADER_PEEK_BYTES = 300
