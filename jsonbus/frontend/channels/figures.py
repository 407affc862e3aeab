"""What stats() tells of channels. Apart from manager.py, which few programs import."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jsonbus.core.channel.end import ChannelEnd


class Traffic(NamedTuple):
    """The messages of a channel, or of many."""

    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    skipped: int = 0
    discarded: int = 0
    unsent: int = 0

    def plus(self, end: ChannelEnd) -> Traffic:
        return Traffic(
            self.sent + end.sent,
            self.received + end.received,
            self.bytes_sent + end.bytes_sent,
            self.bytes_received + end.bytes_received,
            self.skipped + end.skipped,
            self.discarded + end.discarded,
            self.unsent + end.unsent,
        )


class Tally:
    """What has happened so far; counted by the exchange."""

    def __init__(self) -> None:
        self.opened = 0  # channels, by either side
        self.lost = 0  # channels that neither side has closed on purpose
        self.refused_here = 0  # callers
        self.refused_there = 0  # attempts of this bus that failed
        self.strangers = 0  # connections that were no callers, or too many
        self.past = Traffic()  # of channels that have ended

    def add_discarded(self, count: int) -> None:
        self.past = self.past._replace(discarded=self.past.discarded + count)


def channel_figures(open_channels: int, tally: Tally, traffic: Traffic) -> dict[str, int]:
    """What stats() shows; `traffic` of all channels there ever were."""
    return {
        "channels_open": open_channels,
        "channels_opened": tally.opened,
        "channels_lost": tally.lost,
        "channels_refused": tally.refused_here,
        "channel_attempts_failed": tally.refused_there,
        "channel_connections_dropped": tally.strangers,
        "channel_messages_sent": traffic.sent,
        "channel_messages_received": traffic.received,
        "channel_bytes_sent": traffic.bytes_sent,
        "channel_bytes_received": traffic.bytes_received,
        "channel_messages_too_large": traffic.skipped,
        "channel_messages_discarded": traffic.discarded,
        "channel_messages_unsent": traffic.unsent,
    }


#: Of a bus that never had any.
NO_CHANNELS = channel_figures(0, Tally(), Traffic())
