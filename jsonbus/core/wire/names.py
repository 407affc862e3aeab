"""The names and the bounds of the wire format: reserved topics, keys of `jb`, and limits.

Decoders compare every claim of a datagram with these bounds before other code sees it.
"""

from __future__ import annotations

import re

from jsonbus.core.wire.frames import BUCKET_SUM_BITS, BUCKETS, PLAIN_PREFIX

# --- Names ---------------------------------------------------------------------------------------

# How a sealed datagram begins (jsonbus/sealed/datagrams.py), and no JSON text.
SEALED_START = b"\xb5"

# Topics. No application may publish under the prefix.
RESERVED_PREFIX = "jsonbus."
BATCH = "jsonbus.batch"
FRAGMENT = "jsonbus.frag"
TOPICS = "jsonbus.topics"
PRESENCE = "jsonbus.presence"
BYE = "jsonbus.bye"
REQUEST = "jsonbus.request"
REPLY = "jsonbus.reply"
NAK = "jsonbus.nak"
BEAT = "jsonbus.beat"
REPAIR = "jsonbus.repair"
RETAINED = "jsonbus.retained"
PING = "jsonbus.ping"
PONG = "jsonbus.pong"
WHERE = "jsonbus.where"
ECHO = "jsonbus.echo"
ECHOED = "jsonbus.echoed"

# A node that serves TOPIC has the pattern "jsonbus.request/TOPIC" in its entry of the list.
SERVED_PREFIX = REQUEST + "/"

# Keys of `jb` in every datagram: short, because every message pays for them.
KEY_NODE = "n"
KEY_INCARNATION = "i"
KEY_COUNTER = "q"
KEY_FIRST_MESSAGE = "m"
KEY_SENT_US = "t"

# In a datagram with a single message: its sequence, if the topic is reliable; 1 if it is retained.
KEY_SEQUENCE = "s"
KEY_RETAINED = "k"

# Keys of `jb` in control datagrams.
KEY_FRAGMENT = "f"
KEY_ENTRIES = "subs"
KEY_DIGEST = "dig"
KEY_SUMS = "sum"
KEY_COVERS = "cov"
KEY_PART = "part"
KEY_SETTLED = "u"
KEY_VERSION = "v"
KEY_NAME = "name"
KEY_MODE = "mode"
KEY_IS_MASTER = "ms"
KEY_SUSPECTS = "sus"
KEY_RECEIVE_BUFFER = "rb"
KEY_HOST = "host"
KEY_SOFTWARE = "sw"
KEY_CHANNELS = "ch"
KEY_TOTALS = "st"
KEY_REQUEST = "r"
KEY_REPLY = "re"
KEY_ERROR = "er"
KEY_NAK = "nak"
KEY_BEAT = "beat"
KEY_PING = "p"
KEY_TO = "to"
KEY_WHO = "who"
KEY_ANSWER = "an"
KEY_HEARD = "got"

COVERS_ALL = "all"

# Bits of an entry's flags. Higher bits are for later versions and ignored.
FLAG_LEFT = 1
FLAG_GONE = 2
FLAG_BASIC = 4
FLAG_MASTER_MODE = 8
FLAG_IS_MASTER = 16
FLAG_COARSE = 32

MODES = ("basic", "master", "delayed")

# --- Bounds --------------------------------------------------------------------------------------

# The largest UDP payload that IPv4 can carry: 65,535 less 20 (IP) and 8 (UDP) bytes of headers.
DATAGRAM_BYTES_MAX = 65_507

# A longer presence is not kept to recognize its repetition. Ours take 200 to 400 bytes, some more
# with the longest names; a forged one could fill a datagram, for each of 100,000 nodes.
PRESENCE_KEPT_BYTES_MAX = 1_024

# Every integer of the header and of the control datagrams. Beyond 2**53 a JSON parser that reads
# numbers as doubles (JavaScript's, for one) silently gives another number.
INTEGER_MAX = 2**53

# Ours have 16 characters; 64 leave room for another implementation's UUID or hash.
NODE_ID_BYTES_MAX = 64

# As long as a host name may be, and a topic.
NODE_NAME_BYTES_MAX = 255

# The name of a machine: as long as Linux allows, and one more than a label of DNS. A longer name is
# cut: it tells people where to look, and identifies nothing.
HOST_BYTES_MAX = 64

# "10.20.30.post4+local.5" and the like.
SOFTWARE_BYTES_MAX = 32

# The highest TCP port.
PORT_MAX = 65_535

# orjson reads 1,024 levels but writes 254: a deeper value could be received, never passed on.
NESTING_LEVELS_MAX = 254

# The age of an entry, in milliseconds: eleven days. A node that was not heard for that long expired
# long ago, and nine digits keep an entry's size predictable.
AGE_MS_MAX = 999_999_999

# Parts of one list. At 1,400 bytes each, enough for more nodes than multicast ever carried.
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

# The text of a failed request: enough for one sentence of an exception. At four bytes a character
# it still fits the default datagram of 1,400 bytes beside the header.
ERROR_CHARS_MAX = 250

# --- Names of nodes ------------------------------------------------------------------------------


def is_node_id(text: object) -> bool:
    """Return whether this is a node id: up to 64 characters of printable ASCII.

    Printable, because ids reach logs and terminals. The prefix is reserved for plain peers.
    """
    return (
        type(text) is str
        and 0 < len(text) <= NODE_ID_BYTES_MAX
        and text.isascii()
        and text.isprintable()
        and not text.startswith(PLAIN_PREFIX)
    )


def is_listed_id(text: object) -> bool:
    """Return whether an entry of a list may have this id: that of a node, or of a plain peer."""
    return (
        type(text) is str
        and len(text) <= NODE_ID_BYTES_MAX
        and is_node_id(text.removeprefix(PLAIN_PREFIX))
    )


def is_node_name(text: object) -> bool:
    """Return whether this is a node name: up to 255 bytes without control characters."""
    return is_short_text(text, NODE_NAME_BYTES_MAX)


def is_host_name(text: object) -> bool:
    """Return whether this is the name of a machine."""
    return text != "" and is_short_text(text, HOST_BYTES_MAX)


def is_software_version(text: object) -> bool:
    """Return whether this is a version of some software."""
    return text != "" and is_short_text(text, SOFTWARE_BYTES_MAX)


def is_short_text(text: object, bytes_max: int) -> bool:
    return (
        type(text) is str
        and len(text.encode(errors="replace")) <= bytes_max
        and _CONTROL_CHARACTER.search(text) is None
    )


# C0, DEL and C1: any of them may begin an escape sequence of a terminal.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
