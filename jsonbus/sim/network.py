"""A multicast network made of dice: loss, bursts of it, delay, repeats, reordering, cut links.

Every datagram goes to every receiver over a link of its own, from sender to receiver. Each link
tosses for itself: one receiver may miss a datagram that all others hear, and two datagrams of one
sender arrive in either order if their delays say so (`keeps_order` makes links that do not
overtake). A link may have bursts of loss (Gilbert and Elliott's model): it turns bad now and then,
carries nothing while it is, and turns good again after some datagrams. A cut closes links in one
direction; a partition is two cuts.

Receivers are numbers here. The network knows neither nodes nor frames; it only says when a
datagram sent now arrives where. All dice come from the one generator given at birth.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

Arrival = tuple[float, int]  # when, and at which receiver

#: A link that loses everything for so long is as good as cut: three heartbeats in a row.
OUTAGE_S = 4.0

#: In larger worlds nobody looks for outages, and noting losses would cost too much.
OUTAGE_RECEIVERS_MAX = 256


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """How bad the network is; the defaults are an ordinary LAN without loss."""

    delay_min_s: float = 0.0001
    delay_max_s: float = 0.005
    loss: float = 0.0  # probability per datagram and receiver
    repeat: float = 0.0  # probability that a datagram arrives twice
    late: float = 0.0  # probability that a datagram is overtaken by much later ones
    late_max_s: float = 0.25
    bursts: float = 0.0  # probability, per datagram, that a link turns bad
    burst_datagrams: float = 8.0  # how many a bad link loses, on average
    keeps_order: bool = False  # datagrams of one link never overtake each other
    loops_back: bool = False  # the sender hears itself, too, as a multicast socket does
    is_attacked: bool = False  # somebody repeats and delays what was said

    def __post_init__(self) -> None:
        assert 0 <= self.delay_min_s <= self.delay_max_s
        for probability in (self.loss, self.repeat, self.late, self.bursts):
            assert 0 <= probability <= 1
        assert self.burst_datagrams >= 1

    @property
    def is_lossless(self) -> bool:
        """True if every datagram arrives."""
        return not (self.loss or self.bursts)

    @property
    def is_calm(self) -> bool:
        """True if every datagram arrives soon, and once."""
        return self.is_lossless and not (self.repeat or self.late or self.is_attacked)


@dataclass(frozen=True, slots=True)
class Cut:
    """Links that carry nothing: from each of `senders` to each of `receivers`."""

    senders: frozenset[int]
    receivers: frozenset[int]

    def closes(self, sender: int, receiver: int) -> bool:
        return sender in self.senders and receiver in self.receivers


class Network:
    """Says when a datagram arrives where, and remembers which links are closed and since when
    not.
    """

    def __init__(self, options: NetworkOptions, rng: random.Random) -> None:
        self.options = options  # may be replaced at any time: it applies to later sends
        self._rng = rng
        self._cuts: list[Cut] = []
        self._whole_since = -inf
        self._opened_at: dict[tuple[int, int], float] = {}  # links that were closed before
        self._last_arrival: dict[tuple[int, int], float] = {}  # only while links keep order
        self._bad: set[tuple[int, int]] = set()  # links within a burst of loss
        self._losing: dict[
            tuple[int, int], tuple[float, float]
        ] = {}  # first and last datagram lost
        self._passed_at: dict[tuple[int, int], float] = {}  # of the first datagram after an outage
        self._shut: set[tuple[int, int]] = set()  # links over which receivers let nothing in

    # --- Cut links ---

    def cut(self, senders: Collection[int], receivers: Collection[int]) -> Cut:
        """Close the links from `senders` to `receivers`, in this direction only.

        Datagrams in transit still arrive: a pulled cable does not call packets back.
        """
        cut = Cut(frozenset(senders), frozenset(receivers))
        self._cuts.append(cut)
        return cut

    def partition(self, group: Collection[int], rest: Collection[int]) -> tuple[Cut, Cut]:
        """Close the links between two groups in both directions."""
        return self.cut(group, rest), self.cut(rest, group)

    def mend(self, cut: Cut, now: float) -> None:
        """Reopen what `cut` closed, except where another cut still holds."""
        self._cuts.remove(cut)
        self._whole_since = now
        for sender in cut.senders:
            for receiver in cut.receivers:
                if sender != receiver:
                    self._opened_at[sender, receiver] = now

    def mend_all(self, now: float) -> None:
        for cut in tuple(self._cuts):
            self.mend(cut, now)

    @property
    def whole_since(self) -> float | None:
        """Since when all links have been open; -inf means always, None that some are closed."""
        return None if self._cuts or self._shut else self._whole_since

    def is_open(self, sender: int, receiver: int) -> bool:
        """Return whether datagrams pass; a node always hears itself."""
        return sender == receiver or not any(cut.closes(sender, receiver) for cut in self._cuts)

    def open_since(self, sender: int, receiver: int) -> float | None:
        """Return since when the link has been open; -inf means always, None that it is closed."""
        if not self.is_open(sender, receiver) or (sender, receiver) in self._shut:
            return None
        return self._opened_at.get((sender, receiver), -inf)

    def carries_since(self, sender: int, receiver: int) -> float | None:
        """Return since when datagrams have got through; -inf means always, None that they do not.

        Single losses do not count. But a link that lost everything for OUTAGE_S may as well have
        been cut, and was mended with the next datagram that passed.
        """
        opened_at = self.open_since(sender, receiver)
        first_at, last_at = self._losing.get((sender, receiver), (0.0, 0.0))
        if opened_at is None or last_at - first_at >= OUTAGE_S:
            return None
        return max(opened_at, self._passed_at.get((sender, receiver), -inf))

    def are_linked(self, one: int, other: int, since: float) -> bool:
        """Return whether the links between them have been open both ways since then."""
        links = (self.open_since(one, other), self.open_since(other, one))
        return all(opened_at is not None and opened_at <= since for opened_at in links)

    # --- Links over which everything arrives, and nothing is let in: see sealed/ ---

    def shut(self, sender: int, receiver: int) -> None:
        self._shut.add((sender, receiver))

    def unshut(self, sender: int, receiver: int, now: float) -> None:
        if (sender, receiver) in self._shut:
            self._shut.remove((sender, receiver))
            self._opened_at[sender, receiver] = self._whole_since = now

    def forget_shut(self, index: int, now: float) -> None:
        """Forget those from and to a participant that has ended."""
        for link in [link for link in self._shut if index in link]:
            self.unshut(*link, now)

    @property
    def shut_links(self) -> frozenset[tuple[int, int]]:
        return frozenset(self._shut)

    # --- Sending ---

    def arrivals(self, sender: int, receivers: Sequence[int], now: float) -> list[Arrival]:
        """Return when a datagram sent now arrives at which of `receivers`, in order of arrival."""
        options = self.options
        dice = self._rng.random
        soonest = now + options.delay_min_s
        spread = options.delay_max_s - options.delay_min_s
        # One comprehension each: with ten thousand receivers the simulator spends its time here.
        # Repeats, stragglers and order are for small worlds and come on top.
        if options.loss:
            loss = options.loss
            found = [(soonest + spread * dice(), r) for r in receivers if dice() >= loss]
        else:
            found = [(soonest + spread * dice(), r) for r in receivers]
        if options.bursts:
            found = [arrival for arrival in found if not self._swallows(sender, arrival[1])]
        if len(found) < len(receivers) <= OUTAGE_RECEIVERS_MAX or self._losing:
            self._note_losses(sender, receivers, found, now)
        if options.repeat or options.late:
            found = self._disturbed(found)
        if not options.loops_back:
            found = [arrival for arrival in found if arrival[1] != sender]
        if self._cuts:
            found = [arrival for arrival in found if self.is_open(sender, arrival[1])]
        if options.keeps_order:
            found = [(self._after_the_last(sender, r, at), r) for at, r in found]
        found.sort()
        return found

    def _swallows(self, sender: int, receiver: int) -> bool:
        """Return whether the link is bad when this datagram passes."""
        link = (sender, receiver)
        if link not in self._bad:
            if self._rng.random() >= self.options.bursts:
                return False
            self._bad.add(link)
        elif self._rng.random() < 1 / self.options.burst_datagrams:
            self._bad.discard(link)
            return False
        return True

    def _note_losses(
        self, sender: int, receivers: Sequence[int], found: list[Arrival], now: float
    ) -> None:
        passed = {receiver for _, receiver in found}
        for receiver in receivers:
            link = (sender, receiver)
            if receiver not in passed:
                self._losing[link] = (self._losing.get(link, (now,))[0], now)
            elif link in self._losing:
                first_at, last_at = self._losing.pop(link)
                if last_at - first_at >= OUTAGE_S:
                    self._passed_at[link] = now

    def _disturbed(self, arrivals: list[Arrival]) -> list[Arrival]:
        options = self.options
        dice = self._rng.random
        disturbed = []
        for at, receiver in arrivals:
            if dice() < options.late:
                at += options.late_max_s * dice()
            disturbed.append((at, receiver))
            if dice() < options.repeat:
                disturbed.append((at + options.late_max_s * dice(), receiver))
        return disturbed

    def _after_the_last(self, sender: int, receiver: int, at: float) -> float:
        link = (sender, receiver)
        # A microsecond apart: equal instants would leave the order to the heap.
        at = max(at, self._last_arrival.get(link, 0.0) + 1e-6)
        self._last_arrival[link] = at
        return at
