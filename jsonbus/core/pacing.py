"""How fast datagrams may leave: no faster than was asked for, nor than this host reads them.

Theory of operation. Whoever sends counts an *allowance* down, by what each datagram costs, and
asks the pacer only when nothing is left of it. A datagram leaves whole as soon as anything is left,
however large it is; what it takes too much shows in the next answer.

    while datagrams:
        if allowance <= 0:
            allowance = pacer.allowance(allowance, now, fill)
            if allowance <= 0:
                wait(pacer.retry_s)
                continue
        datagram = datagrams.popleft()
        send(datagram)
        allowance -= pacer.per_datagram + pacer.per_byte * len(datagram)

With a rate limit an allowance counts bytes; without one it counts what buffers are charged, which
tells how far they may fill much better.

Two things bound an answer, and the smaller one counts:

- The **rate limit** is a bucket that fills at that rate and holds `burst_bytes`. A datagram that
  takes more than is in it leaves a debt, which is paid before the next one leaves. The clock is
  looked at only with a question, so what is left of one answer may be spent together with the next:
  within any time t, at most rate * t + 2 * burst_bytes + one datagram leave.
- **Buffers** of sockets on this host, the own one included. Who publishes faster than they are read
  would fill them, and the kernel would throw away the rest. `Fill` tells of the fullest; what is
  allowed is a safe part of its room, and nothing once half of it is taken. Of buffers on other
  hosts nobody knows: there, the rate limit has to do.

A receiver that does not read at all, because it is stopped or waits for its application, must not
hold its publishers for ever. If a full buffer is hardly emptied for STUCK_S, it is disregarded for
BLIND_S, or until it was read: that receiver loses messages, and counts them, as it would have
anyway. So may others on this host meanwhile, since only the fullest buffer is known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: What the rate limit lets out at once, as time at that rate: long enough that a sleep of a
#: millisecond, which systems make two of, leaves the rate what it is; short enough that 10 MB/s
#: come in bursts (two of these, at worst) that the smallest usual buffer takes.
BURST_S = 0.005

#: What may wait because of the rate limit, as time at that rate; but some datagrams in any case.
#: Publishers wait rather than have more of it wait for them: closing would have to drop it.
BACKLOG_S = 0.1
BACKLOG_BYTES_MIN = 1 << 14

#: How long a full buffer may be left alone by its reader. On a machine with three busy processes
#: per core, one did not run for more than 0.1 s now and then; to a publisher it is a hitch.
STUCK_S = 0.2

#: "Hardly emptied": by less than this part. 3 datagrams in the smallest usual buffer, 60 in ours.
PROGRESS_SHARE = 1 / 64

#: How long it is then disregarded. One that stays stuck takes a tenth of the publishers' time.
BLIND_S = 2.0

#: Allowed at once meanwhile: its reader may be back. Some 60 datagrams, which take ten times as
#: long as to look.
BLIND_BYTES = 1 << 18

#: How soon to look at a full buffer again. A reader takes some 100 datagrams out of it meanwhile.
RETRY_S = 0.001

#: Allowed where nothing is known against it: to ask once per so many costs nothing.
FREE_BYTES = 1 << 22

#: Above this part of a buffer nothing more is sent.
FULL_SHARE = 1 / 2

#: Linux gives back what was read only when it amounts to a quarter of the buffer, and tells as if
#: it had done so at once: up to a quarter of what looks free is not (observed: 2,096,640 bytes of
#: a buffer of 8,388,608).
USABLE_SHARE = 3 / 4

#: Others may be asking at the same instant, and all see the same room.
OWN_SHARE = 1 / 2

#: What a buffer is charged for a datagram, at most: Linux counts the memory that it sits in.
#: Measured on loopback (6.18): 832 bytes for up to 150, 1,280 for 200 to 500, 2,304 for 700 to
#: 1,472, 4,352 for 3,000, 16,640 for 8,000 and 16,000, 66,339 for the largest.
CHARGE_PER_DATAGRAM = 1280
CHARGE_PER_BYTE = 2

#: The same where only bytes are counted. The dearest is the smallest that a node sends, some 105
#: bytes: 8 per byte. The difference only makes the pacer be asked more often than it had to.
CHARGE_PER_BYTE_MAX = 10


class Fill(NamedTuple):
    """The fullest of the receive buffers on this host."""

    queued_bytes: int  # as the kernel counts them
    limit_bytes: int  # where it begins to throw datagrams away


class Pacer:
    """One per sender. Not thread-safe; `now` is in seconds of a clock that never goes back."""

    __slots__ = (
        "_answer",
        "_asked_at",
        "_blind_until",
        "_mark",
        "_mark_at",
        "_rate",
        "_tokens",
        "backlog_bytes_max",
        "burst_bytes",
        "given_up",
        "per_byte",
        "per_datagram",
        "retry_s",
        "waits",
    )

    def __init__(self, rate_limit_bytes_s: float | None) -> None:
        #: Times it allowed nothing.
        self.waits = 0
        #: Times it stopped waiting for a receiver that does not read.
        self.given_up = 0
        #: When to ask again after it allowed nothing.
        self.retry_s = RETRY_S
        self._rate = rate_limit_bytes_s
        #: What a datagram takes off an allowance.
        self.per_datagram = CHARGE_PER_DATAGRAM if rate_limit_bytes_s is None else 0
        self.per_byte = CHARGE_PER_BYTE if rate_limit_bytes_s is None else 1
        self.burst_bytes = math.inf if rate_limit_bytes_s is None else rate_limit_bytes_s * BURST_S
        #: How much output may wait before publishers have to.
        self.backlog_bytes_max = math.inf
        if rate_limit_bytes_s is not None:
            self.backlog_bytes_max = max(BACKLOG_BYTES_MIN, rate_limit_bytes_s * BACKLOG_S)
        self._tokens = self.burst_bytes  # in the bucket; negative is debt
        self._asked_at = 0.0
        self._answer = 0.0
        self._mark: float | None = None  # what was queued when a wait began, or went on
        self._mark_at = 0.0
        self._blind_until = -math.inf

    def allowance(self, left: float, now: float, fill: Fill | None) -> float:
        """How much may leave before it is asked again; 0: nothing yet, wait for `retry_s`.

        `left` is what is left of the last answer, negative if more was sent; 0 the first time.
        `fill` is None where nothing is known of buffers.
        """
        self.retry_s = RETRY_S
        answer = math.inf if self._rate is None else self._refill(self._rate, left, now)
        if answer > 0:
            answer = min(answer, self._room(now, fill))
        if answer <= 0:
            self.waits += 1
            answer = 0.0
        self._answer = answer
        return answer

    def _refill(self, rate: float, left: float, now: float) -> float:
        spent = self._answer - left
        earned = rate * (now - self._asked_at)
        self._asked_at = now
        self._tokens = min(self.burst_bytes, self._tokens - spent + earned)
        if self._tokens <= 0:
            # Half a burst is worth waking up for, and has room for waking up late.
            self.retry_s = (self.burst_bytes / 2 - self._tokens) / rate
        return self._tokens

    def _room(self, now: float, fill: Fill | None) -> float:
        if fill is None:
            return FREE_BYTES
        queued, limit = fill
        if queued < limit * FULL_SHARE:
            self._mark = None
            self._blind_until = -math.inf
            room = (limit * USABLE_SHARE - queued) * OWN_SHARE
            return room if self._rate is None else room / CHARGE_PER_BYTE_MAX
        if now < self._blind_until:
            return BLIND_BYTES
        if self._mark is None or queued < self._mark - limit * PROGRESS_SHARE:
            self._mark, self._mark_at = queued, now
        elif now - self._mark_at >= STUCK_S:
            self.given_up += 1
            self._mark = None
            self._blind_until = now + BLIND_S
            return BLIND_BYTES
        return 0.0
