"""Requests and replies of the bridge, bytes only. Version 1.

A client opens with MAGIC, then sends requests and gets one reply to each, in order. A request or
reply is a length (4 bytes, big endian) and that many bytes of a JSON object in UTF-8:

    hello    {"op":"hello","version":1,"token":"…","client":"text for people"}; always the first
             → {"ok":true,"version":1,"bridge":"name","log":"id of the log","partitions":4,
                "software":"0.3.0"}
    poll     {"op":"poll","known":[n,…]|null,"wait_ms":250}
             → {"ok":true,"first":[n,…],"end":[n,…]}, as soon as an end differs from `known`, or
               the time is over. `first` is the oldest offset kept, `end` the one behind the last
               that is on disk, by partition.
    find     {"op":"find","time_us":n} → {"ok":true,"offsets":[n,…]}: by partition, the first offset
             received at that time or later, the end if there is none
    limit    {"op":"limit","start":[n,…],"end":[n,…],"max_bytes":n}
             → {"ok":true,"offsets":[n,…]}: the largest ends, shared fairly among partitions, whose
               rows from `start` take about that many bytes uncompressed; at least one row
    read     {"op":"read","partition":0,"start":a,"end":b,"topics":["sensors/**"],"gaps":false}
             → {"ok":true}, then chunks (below): the rows a … b-1 that match, gap records only if
               asked for
    commit   {"op":"commit","group":"name","offsets":[n,…]} → {"ok":true}: how far a query is
    note     {"op":"note","group":"name","misfits":n} → {"ok":true}: values that fitted no schema
    stage    {"op":"stage","query":"id","batch":n,"partition":n,"attempt":n,"bytes":n} and, behind
             the request, that many bytes of an Arrow IPC stream with the columns topic, value
             (JSON text) and optionally retain
             → {"ok":true,"rows":n}: on disk. `attempt` is a number that only one try of one task
               has. Optional: "part":n, from 0 on and in order, for rows in several requests (a
               part that comes again replaces itself); "run":"id", which differs whenever the
               query is started again; "skip_bad":true, which leaves out rows that the bus would
               refuse (`rows` are those kept).
    publish  {"op":"publish","query":"id","batch":n,"partitions":[[partition,attempt],…]}
             → {"ok":true,"published":n,"repeated":false}: the batch is on the bus. `repeated`: it
               was before, nothing was sent. May take long; may be asked again if no reply came.
    discard  {"op":"discard","query":"id","batch":n} → {"ok":true}: forget what was staged, unless
             it is on its way out
    stats    {"op":"stats"} → {"ok":true, …}: every counter

A refusal is {"ok":false,"error":"code","message":"one sentence", …facts}; the connection stays
usable, unless it is the answer to hello. Codes: ERRORS below.

After the reply to `read` come chunks: one byte for the kind, 8 bytes (big endian) for the length,
and that many bytes:

    B   whole blocks, as block.py describes them, one behind the other
    E   the end: {"rows":n}, the rows in all chunks
    X   a refusal, in the middle of things: the connection is closed behind it

Whatever else comes on the port is counted, and the connection is closed.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from .errors import ProtocolError

MAGIC = b"jsonbus-bridge/1\n"
VERSION = 1

#: A request may be this long; the first one, of a client that is not known yet, only this.
REQUEST_BYTES_MAX = 1 << 20
HELLO_BYTES_MAX = 4096
#: What is staged in one request: more than a row may take. Tasks stage in parts of some megabytes.
STAGE_BYTES_MAX = 256 << 20

LENGTH = struct.Struct(">I")
CHUNK = struct.Struct(">cQ")
BLOCKS, END, BROKEN = b"B", b"E", b"X"

ERRORS = (
    "bad_request",  # not understood
    "bad_token",
    "out_of_range",  # with partition, offset, first, end
    "disk_full",
    "too_large",
    "busy",  # too many connections, or too much staged: try again later
    "failed",  # a bug or a broken disk; the bridge's log has details
)


def encode(body: dict[str, Any]) -> bytes:
    """Encode a request or a reply."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return LENGTH.pack(len(text)) + text


def decode(text: bytes) -> dict[str, Any]:
    """Decode a request; raise ProtocolError if it is not an object."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if type(body) is not dict:
        raise ProtocolError("not a JSON object")
    return body


def refusal(code: str, message: str, **facts: Any) -> dict[str, Any]:
    """Return the reply to a request that cannot be granted."""
    assert code in ERRORS
    return {"ok": False, "error": code, "message": message, **facts}


def encode_chunk(kind: bytes, length: int) -> bytes:
    """Return the head of a chunk."""
    return CHUNK.pack(kind, length)
