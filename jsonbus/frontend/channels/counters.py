"""What stats() reports about channels. Separate from manager.py: every bus imports this."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jsonbus.core.channel.end import ChannelEnd


class Traffic(NamedTuple):
    """Message counts of one channel, or the sum of many."""

    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    skipped: int = 0
    discarded: int = 0
    unsent: int = 0

    def plus(self, end: ChannelEnd) -> Traffic:
        return Traffic(*(count + getattr(end, name) for name, count in self._asdict().items()))


class ChannelCounters:
    """Counts of events so far, kept by the channel manager."""

    def __init__(self) -> None:
        self.opened = 0  # channels, by either side
        self.lost = 0  # channels that neither side closed on purpose
        self.refused_here = 0  # channels that other nodes wanted
        self.refused_there = 0  # attempts of this bus that failed
        self.unidentified = 0  # connections that never said hello, or were too many
        self.foreign = 0  # connections of a sealed bus whose other side has no key of it
        self.past = Traffic()  # of channels that have ended

    def add_discarded(self, count: int) -> None:
        self.past = self.past._replace(discarded=self.past.discarded + count)


def channel_figures(
    open_channels: int, counters: ChannelCounters, traffic: Traffic
) -> dict[str, int]:
    """Return the part of stats() about channels; `traffic` sums all channels, open or ended."""
    return {
        "channels_open": open_channels,
        "channels_opened": counters.opened,
        "channels_lost": counters.lost,
        "channels_refused": counters.refused_here,
        "channel_attempts_failed": counters.refused_there,
        "channel_connections_dropped": counters.unidentified,
        "channels_foreign": counters.foreign,
        "channel_messages_sent": traffic.sent,
        "channel_messages_received": traffic.received,
        "channel_bytes_sent": traffic.bytes_sent,
        "channel_bytes_received": traffic.bytes_received,
        "channel_messages_too_large": traffic.skipped,
        "channel_messages_discarded": traffic.discarded,
        "channel_messages_unsent": traffic.unsent,
    }


#: The figures of a bus that never had a channel.
NO_CHANNELS = channel_figures(0, ChannelCounters(), Traffic())
