"""The TCP connection of a sealed channel: like an open one, but what is written travels in records.

Theory of operation. The end of a channel (core/channel/end.py) knows nothing of records. It is told
how many of its bytes were written, and it is over once all of them are. So records that the kernel
has not taken whole must count as unwritten, although they are sealed and cannot be taken back:

- Of the bytes in them, `write` reports all but the last one. So the end has something to write, and
  is not over; and its owner waits for room and calls `write` again.
- Then the rest of these records is written first. When the kernel has it, the last byte is
  reported.
- An end drops what nobody reads any more, but never the rest of a frame that it has begun to write.
  A frame in these records counts as begun if a byte of it was reported: so no record ends with the
  first byte of a frame alone (`cut` sees to that).

`read_into` needs no memory between calls but for a record that has not come whole: it opens records
where they lie, in the reader's buffer, and a record is longer than what is in it. So nothing that
was opened ever waits for the reader, which `select` could not tell anybody.

The caller's offer leaves when the connection is made. Its end says hello meanwhile, which is kept
until the listener's offer has come. A listener's end says nothing before it has heard a hello.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

from jsonbus.errors import TransportError
from jsonbus.sealed.keys import KeyRing
from jsonbus.sealed.records import (
    OFFER_BYTES,
    RECORD_BYTES_MAX,
    SEALED_BYTES_MAX,
    Offer,
    Piece,
    Records,
    check_beginning,
    choose_key,
    cut,
)
from jsonbus.transport.tcp import TcpConnection

#: Records given to the kernel in one call: a message of 64 KiB and its prefix are two. With more, a
#: connection that is full would keep more.
RECORDS_AT_ONCE = 2


class SealedTcp(TcpConnection):
    """See the head of this file. Reading and writing may go on in two threads, once it is open."""

    __slots__ = (
        "_has_heard_part",
        "_hello",
        "_is_caller",
        "_is_foreign",
        "_offer",
        "_records",
        "_ring",
        "_theirs",
        "_unwritten",
    )

    def __init__(self, sock: socket.socket, ring: KeyRing, *, is_caller: bool) -> None:
        super().__init__(sock)
        self._ring = ring
        self._is_caller = is_caller
        self._is_foreign = False
        self._has_heard_part = False
        self._records: Records | None = None  # from when both offers are known
        self._unwritten: Piece = b""  # the rest of records
        # Until then:
        self._offer: Offer | None = None
        self._theirs = b""  # what has come of the other side's offer
        self._hello = b""  # plaintext of a caller's first record

    @property
    def is_foreign(self) -> bool:
        return self._is_foreign

    @property
    def has_heard_part(self) -> bool:
        return self._has_heard_part

    def finish_dialing(self) -> None:
        super().finish_dialing()
        ring = self._ring
        self._offer = Offer(ring, ring.sealing_key(time.time()), os.urandom)
        self._send_at_once(self._offer.data)

    def read_into(self, buffer: memoryview) -> int | None:
        """Return how many bytes of plaintext came, which may be fewer than have come in records.

        The buffer must hold SEALED_BYTES_MAX. Raises TransportError if a record is not the one that
        the other side has sent.
        """
        records = self._records
        if records is None:
            return self._agree(buffer)
        assert len(buffer) >= SEALED_BYTES_MAX
        if records.failure:
            raise TransportError(records.failure)
        held_bytes = records.resume(buffer)
        count = super().read_into(buffer[held_bytes:])
        if not count:
            if count == 0 and held_bytes:
                raise TransportError("the connection was cut within a record")
            self._has_heard_part = False
            return count
        plain_bytes = records.open(buffer, held_bytes + count)
        if records.failure:
            self._is_foreign = not records.is_proved
            if not plain_bytes:
                raise TransportError(records.failure)
            self.hang_up()  # so that the next call comes soon, and raises
        self._has_heard_part = not plain_bytes
        return plain_bytes or None

    def write(self, pieces: Sequence[Piece]) -> int:
        """Return how many bytes of the pieces may be forgotten; see the head of this file."""
        records = self._records
        if records is None:
            assert self._is_caller  # a listener hears the hello first
            self._hello += b"".join(pieces)
            return sum(map(len, pieces))
        if records.failure:
            raise TransportError(records.failure)
        count = 0
        if self._unwritten:
            if not self._send([self._unwritten]):
                return 0
            count = 1  # the last byte of these records is the first one of the pieces
        elif len(pieces) == 1 and len(pieces[0]) <= RECORD_BYTES_MAX:  # as nearly always
            size = len(pieces[0])
            return size if self._send([records.seal(pieces[0])]) else size - 1
        together: list[Piece] = []
        for plaintext in cut(pieces, count):
            together.append(records.seal(plaintext))
            count += len(plaintext)
            if len(together) == RECORDS_AT_ONCE:
                if not self._send(together):
                    return count - 1
                together = []
        return count if not together or self._send(together) else count - 1

    def _send(self, records: Sequence[Piece]) -> bool:
        """Send records, or the rest of them; return whether the kernel took everything."""
        sent = super().write(records)
        is_sent = sent == sum(map(len, records))
        self._unwritten = b"" if is_sent else memoryview(b"".join(records))[sent:]
        return is_sent

    def _send_at_once(self, data: bytes) -> None:
        """Send some of the first few hundred bytes, for which a new connection has room."""
        if super().write((data,)) < len(data):
            raise TransportError("the connection has no room")

    def _agree(self, buffer: memoryview) -> int | None:
        """Read the other side's offer; then answer it, or send the hello. Nothing else comes yet.

        Raises TransportError, without having sent anything, if the other side has no key.
        """
        count = super().read_into(buffer[: OFFER_BYTES - len(self._theirs)])
        if not count:
            if count == 0 and self._is_caller:
                assert self._offer is not None
                raise TransportError(
                    f"it closed the connection at once: it lacks the key {self._offer.key_id!r}, "
                    "or its bus is not sealed"
                )
            return count
        self._theirs += buffer[:count]
        try:
            check_beginning(self._theirs)
            if len(self._theirs) < OFFER_BYTES:
                return None
            offer = self._offer or Offer(
                self._ring, choose_key(self._ring, self._theirs), os.urandom
            )
            records = offer.agree(self._theirs, is_caller=self._is_caller)
        except TransportError:
            self._is_foreign = True
            raise
        self._send_at_once(records.seal(self._hello) if self._is_caller else offer.data)
        self._records = records
        self._offer, self._theirs, self._hello = None, b"", b""
        return None
