"""What a node counts. Nothing is lost or refused without one of these going up."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Counters:
    """Plain integers that only grow, but for `messages_lost`; `as_dict` is what stats() shows."""

    #: publish() calls that nobody wanted.
    messages_suppressed: int = 0
    #: publish() calls that waited until the node was sure, and what became of them.
    messages_held: int = 0
    held_sent: int = 0
    held_suppressed: int = 0
    #: publish() calls that only this node's own subscriptions wanted.
    messages_local: int = 0

    datagrams_received: int = 0
    bytes_received: int = 0
    messages_received: int = 0
    #: Received, and wanted by a subscription of this node; one that several want counts once.
    messages_delivered: int = 0
    #: Received, and wanted by none.
    messages_unwanted: int = 0
    #: Messages of other nodes that never came; one that comes late is taken back.
    messages_lost: int = 0
    #: Slices of messages that no datagram holds.
    fragments_received: int = 0
    #: Items of a batch that were no messages, and what came after them in the batch.
    messages_malformed: int = 0
    datagrams_repeated: int = 0
    #: From a node that has since started anew.
    datagrams_outdated: int = 0
    datagrams_plain: int = 0

    #: Datagrams refused, by cause (wire.CAUSES).
    rejected: dict[str, int] = field(default_factory=dict)

    announcements_sent: int = 0
    presences_sent: int = 0
    #: Full lists sent in answer; each counts once, however many datagrams it took.
    list_shares_sent: int = 0
    #: Parts of the list sent because they differed somewhere.
    list_repairs_sent: int = 0
    suspicions_sent: int = 0
    plain_peers_refused: int = 0

    #: Times that a publisher of reliable messages had to wait for subscribers to catch up.
    reliable_waits: int = 0
    #: Of this and other nodes' messages.
    naks_received: int = 0

    requests_sent: int = 0
    requests_repeated: int = 0
    #: Requests of this and other nodes that were answered.
    requests_served: int = 0
    requests_refused: int = 0
    replies_too_late: int = 0

    events_dropped: int = 0

    def reject(self, cause: str) -> None:
        self.rejected[cause] = self.rejected.get(cause, 0) + 1

    def as_dict(self) -> dict[str, int]:
        counts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rejected"}
        counts["datagrams_rejected"] = sum(self.rejected.values())
        for cause, count in sorted(self.rejected.items()):
            counts[f"rejected_{cause}"] = count
        return counts
