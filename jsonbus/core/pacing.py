"""Pacer: sends no faster than the rate limit, and no faster than this host reads.

Theory of operation. A sender holds an *allowance*, subtracts the cost of each datagram, and asks
the pacer only when the allowance is used up. A datagram is sent whole while any allowance is left,
however large it is; the next answer accounts for the excess.

    while datagrams:
        if allowance <= 0:
            allowance = pacer.allowance(allowance, now, fill)
            if allowance <= 0:
                wait(pacer.retry_s)
                continue
        datagram = datagrams.popleft()
        send(datagram)
        allowance -= pacer.per_datagram + pacer.per_byte * len(datagram)

With a rate limit an allowance counts bytes; without one it counts what the kernel charges to
buffers, which predicts much better how far they fill.

Two bounds apply to an answer, and the smaller one counts:

- The **rate limit** is a bucket that fills at that rate and holds `burst_bytes`. A datagram that
  takes more than is in it leaves a debt, which is paid before the next one is sent. The pacer
  reads the time only when it is asked, so the rest of one answer may be spent together with the
  next: within any time t, at most rate * t + 2 * burst_bytes + one datagram are sent.
- **Receive buffers** of sockets on this host, including the sender's. A publisher that is faster
  than their readers would fill them, and the kernel would drop the rest. `Fill` describes the
  fullest one; the pacer allows a safe fraction of its room, and nothing once half of it is taken.
  The buffers of other hosts are unknown: for them, only the rate limit helps.

A receiver that does not read at all, because it is stopped or waits for its application, must not
block its publishers for ever. If a full buffer is hardly emptied for STUCK_S, it is ignored for
BLIND_S, or until it is read: that receiver loses messages, and counts them, as it would have
anyway. Others on this host may lose some meanwhile: only the fullest buffer is known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: How much the rate limit lets out at once, as time at that rate. It is long enough that a sleep of
#: a millisecond, which may take two, does not lower the rate; and short enough that at 10 MB/s the
#: bursts (two of these, at worst) fit the smallest usual buffer.
BURST_S = 0.005

#: How much output may wait because of the rate limit, as time at that rate, with a minimum of some
#: datagrams. Publishers wait rather than queue more, because closing would have to drop it.
BACKLOG_S = 0.1
BACKLOG_BYTES_MIN = 1 << 14

#: How long a full buffer may go unread. On a machine with three busy processes per core, a process
#: sometimes did not run for more than 0.1 s; a publisher sees that as a short pause.
STUCK_S = 0.2

#: "Hardly emptied" means by less than this fraction: 3 datagrams in the smallest usual buffer, 60
#: in ours.
PROGRESS_SHARE = 1 / 64

#: How long a stuck buffer is then ignored. One that stays stuck costs publishers a tenth of their
#: time.
BLIND_S = 2.0

#: Allowance while a buffer is ignored, because its reader may be back: some 60 datagrams, which
#: take ten times as long to send as a look at the buffer.
BLIND_BYTES = 1 << 18

#: How soon to check a full buffer again. A reader takes some 100 datagrams out of it meanwhile.
RETRY_S = 0.001

#: Allowance when no bound is known: asking once per this many costs nothing measurable.
FREE_BYTES = 1 << 22

#: Above this fraction of a buffer nothing more is sent.
FULL_SHARE = 1 / 2

#: Linux releases what was read only when it amounts to a quarter of the buffer, but reports it as
#: free at once. So up to a quarter of the space that looks free is not (observed: 2,096,640 bytes
#: of a buffer of 8,388,608).
USABLE_SHARE = 3 / 4

#: Other senders may ask at the same instant, and all of them see the same room.
OWN_SHARE = 1 / 2

#: The most that a buffer is charged for a datagram: Linux counts the memory that holds it. Measured
#: on loopback (6.18): 832 bytes for up to 150, 1,280 for 200 to 500, 2,304 for 700 to 1,472, 4,352
#: for 3,000, 16,640 for 8,000 and 16,000, 66,339 for the largest.
CHARGE_PER_DATAGRAM = 1280
CHARGE_PER_BYTE = 2

#: The same charge per byte, where only bytes are counted. The smallest datagram that a node sends,
#: some 105 bytes, is the dearest: 8 per byte. For larger ones the estimate is too high, which only
#: makes the sender ask the pacer more often than necessary.
CHARGE_PER_BYTE_MAX = 10


class Fill(NamedTuple):
    """The fullest of the receive buffers on this host."""

    queued_bytes: int  # as the kernel counts them
    limit_bytes: int  # from here on it drops datagrams


class Pacer:
    """Limits the rate of one sender. Not thread-safe; `now` is in seconds of a monotonic clock."""

    def __init__(self, rate_limit_bytes_s: float | None) -> None:
        #: How often it allowed nothing.
        self.waits = 0
        #: How often it stopped waiting for a receiver that does not read.
        self.given_up = 0
        #: How long to wait before asking again, after it allowed nothing.
        self.retry_s = RETRY_S
        self._rate = rate_limit_bytes_s
        #: What a datagram takes off an allowance.
        self.per_datagram = CHARGE_PER_DATAGRAM if rate_limit_bytes_s is None else 0
        self.per_byte = CHARGE_PER_BYTE if rate_limit_bytes_s is None else 1
        self.burst_bytes = math.inf if rate_limit_bytes_s is None else rate_limit_bytes_s * BURST_S
        #: How much output may wait before publishers have to wait.
        self.backlog_bytes_max = math.inf
        if rate_limit_bytes_s is not None:
            self.backlog_bytes_max = max(BACKLOG_BYTES_MIN, rate_limit_bytes_s * BACKLOG_S)
        self._tokens = self.burst_bytes  # in the bucket; negative is debt
        self._asked_at = 0.0
        self._answer = 0.0
        self._mark: float | None = None  # what was queued when the wait began or was last renewed
        self._mark_at = 0.0
        self._blind_until = -math.inf

    def allowance(self, left: float, now: float, fill: Fill | None) -> float:
        """Return how much may be sent before the next call; 0: nothing yet, wait for `retry_s`.

        `left` is the rest of the last answer, negative if more was sent, and 0 the first time.
        `fill` is None if the state of the buffers is unknown.
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
            # Half a burst is worth waking up for, and leaves room for waking up late.
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
