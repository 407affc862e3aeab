"""How much work senders that were never met may cause: a flood of invented salts costs a bounded
number of derivations, and keeps nobody else from being met.
"""

from __future__ import annotations

#: Datagrams of strangers that are looked at, per second and source address, and at once. All nodes
#: of a machine share an address; each is a stranger for one datagram, when it has come or has
#: changed its key. To look at one takes some 7 µs: a source takes half a thousandth of a processor.
RATE = 64.0
BURST = 256.0

#: Addresses that are told apart; others share one allowance.
SOURCES_MAX = 1024
_OTHERS = ""

#: How often a full table is searched for addresses that have their whole allowance again.
_SWEEP_S = 1.0


class StrangerLimit:
    """A bucket of tokens for each source address."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when there were so many
        self._sweeps_at = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def allows(self, source: str, now: float) -> bool:
        """Whether a datagram of a stranger from there may be looked at; counts it if so."""
        bucket = self._buckets.get(source)
        if bucket is None and len(self._buckets) >= SOURCES_MAX:
            self._sweep(now)
            if len(self._buckets) >= SOURCES_MAX:
                source = _OTHERS
                bucket = self._buckets.get(source)
        tokens, at = bucket or (BURST, now)
        tokens = min(BURST, tokens + (now - at) * RATE)
        if tokens < 1:
            return False
        self._buckets[source] = tokens - 1, now
        return True

    def _sweep(self, now: float) -> None:
        """Forget the addresses that could do no more if they were new."""
        if now < self._sweeps_at:
            return
        self._sweeps_at = now + _SWEEP_S
        self._buckets = {
            source: (tokens, at)
            for source, (tokens, at) in self._buckets.items()
            if tokens + (now - at) * RATE < BURST
        }
