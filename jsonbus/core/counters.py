"""The counters of a node. Every loss and every refusal increments one of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Counters:
    """Plain integers that only grow, except `messages_lost`; stats() shows `as_dict`."""

    #: publish() calls that were not sent because no subscription wanted them.
    messages_suppressed: int = 0
    #: publish() calls that waited until the node was sure, and their outcomes.
    messages_held: int = 0
    held_sent: int = 0
    held_suppressed: int = 0
    #: publish() calls that only subscriptions of this node wanted.
    messages_local: int = 0

    datagrams_received: int = 0
    bytes_received: int = 0
    messages_received: int = 0
    #: Messages received that a subscription of this node wants; each counts once.
    messages_delivered: int = 0
    #: Messages received that no subscription of this node wants.
    messages_unwanted: int = 0
    #: Messages, retained values and requests whose topic does not belong on this bus: the key that
    #: they were sealed with is not for it.
    messages_misplaced: int = 0
    #: Messages of other nodes that never came; one that comes late is subtracted.
    messages_lost: int = 0
    #: Slices of messages that are too large for one datagram.
    fragments_received: int = 0
    #: Items of a batch that were not messages, and the items after them in the batch.
    messages_malformed: int = 0
    datagrams_repeated: int = 0
    #: Datagrams of an earlier incarnation, from before the node restarted.
    datagrams_outdated: int = 0
    datagrams_plain: int = 0

    #: Datagrams refused, by cause (wire.CAUSES).
    rejected: dict[str, int] = field(default_factory=dict)

    announcements_sent: int = 0
    presences_sent: int = 0
    #: Full lists sent in answer; each counts once, however many datagrams it took.
    list_shares_sent: int = 0
    #: Parts of the list sent because another node's list differed.
    list_repairs_sent: int = 0
    suspicions_sent: int = 0
    plain_peers_refused: int = 0

    #: How often a publisher of reliable messages had to wait for subscribers to catch up.
    reliable_waits: int = 0
    #: Concerning messages of this node and of other nodes.
    naks_received: int = 0

    requests_sent: int = 0
    requests_repeated: int = 0
    #: Requests whose handler ran, of this node and of other nodes.
    requests_served: int = 0
    requests_refused: int = 0
    #: Requests that were not run because the time of the asking node was over.
    requests_expired: int = 0
    #: Requests that were not run because the asking node cancelled them.
    requests_cancelled: int = 0
    replies_too_late: int = 0

    events_dropped: int = 0

    def reject(self, cause: str) -> None:
        self.rejected[cause] = self.rejected.get(cause, 0) + 1

    def refuse_misplaced(self, count: int, counted: int) -> None:
        """Count misplaced messages, of which some were counted as delivered."""
        self.messages_misplaced += count
        self.messages_delivered -= counted

    def as_dict(self) -> dict[str, int]:
        counts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rejected"}
        counts["datagrams_rejected"] = sum(self.rejected.values())
        for cause, count in sorted(self.rejected.items()):
            counts[f"rejected_{cause}"] = count
        return counts
