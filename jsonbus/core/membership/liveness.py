"""Liveness: heartbeats, suspicion and expiry of nodes.

Every node is heard at least once per heartbeat. A node that is silent for a lease is suspected:
another node asks for it, and it has a grace period to answer, or for others to vouch for it. Only
then is it gone. The question starts the grace period on every node that hears it, so that all of
them expire the node at the same time and their lists stay equal.

Plain peers cannot be asked. They have a longer lease and expire silently.
"""

from __future__ import annotations

import math
import random

from jsonbus.core.limits import (
    HEARTBEAT_MIN_S,
    HEARTBEATS_PER_S,
    LEASE_HEARTBEATS,
    PLAIN_LEASE_S,
    SHARE_DELAY_MAX_S,
    SUSPECT_GRACE_S,
    SUSPECT_PAUSE_S,
    SUSPECTS_PER_DATAGRAM,
)
from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.timers import share_delay_s
from jsonbus.core.wire.frames import Entry


def heartbeat_s(known_nodes: int) -> float:
    return max(HEARTBEAT_MIN_S, known_nodes / HEARTBEATS_PER_S)


def lease_s(known_nodes: int) -> float:
    return LEASE_HEARTBEATS * heartbeat_s(known_nodes)


class Liveness:
    """Finds silent nodes, asks for them, and reports which are gone."""

    __slots__ = ("_ask_at", "_asked", "_check_at", "_list", "_own_node", "_rng")

    def __init__(
        self, own_node: str, subscription_list: SubscriptionList, rng: random.Random
    ) -> None:
        self._own_node = own_node
        self._list = subscription_list
        self._rng = rng
        self._asked: dict[str, float] = {}  # when each suspect is gone
        self._ask_at = math.inf
        self._check_at = math.inf

    @property
    def is_asking(self) -> bool:
        """Whether some node's life is in question."""
        return bool(self._asked)

    def forget(self, node: str) -> None:
        """The node is in the list no more: when it comes back, all begins anew."""
        self._asked.pop(node, None)

    def timer_at(self) -> float:
        return min(self._ask_at, self._check_at)

    def watch(self, heard_at: float) -> None:
        """A node was added that was last heard then: make sure that a check is planned."""
        self._check_at = min(self._check_at, heard_at + lease_s(len(self._list)))

    def check(self, due: float) -> list[Entry]:
        """Return the nodes that are gone by now, and plan the question for silent ones."""
        if self._check_at > due:
            return []
        gone = []
        next_at = math.inf
        silent = False
        lease = lease_s(len(self._list))
        for entry in self._list:
            if entry.node == self._own_node:
                continue
            lasts_s = PLAIN_LEASE_S if entry.is_plain else lease
            expires_at = self._list.heard_at(entry.node) + lasts_s
            if expires_at > due:
                self._asked.pop(entry.node, None)
                next_at = min(next_at, expires_at)
                continue
            if entry.is_plain:
                gone.append(entry)
                continue
            gone_at = self._asked.get(entry.node)
            if gone_at is None:
                silent = True
            elif gone_at <= due:
                gone.append(entry)
            else:
                next_at = min(next_at, gone_at)
        if silent:
            if self._ask_at == math.inf:
                self._ask_at = due + share_delay_s(len(self._list), self._rng.random())
            # If they are heard before they are asked for, nothing else plans the next check.
            next_at = min(next_at, due + SHARE_DELAY_MAX_S + SUSPECT_GRACE_S)
        self._check_at = next_at
        return gone

    def gone_since(self, entry: Entry, now: float) -> float:
        """Return when a node that is gone by now was gone for others, which did not sleep.

        This node may have slept: what it knows is then as old as what they have forgotten.
        """
        heard_at = self._list.heard_at(entry.node)
        return min(now, heard_at + self._lease_of(entry) + SUSPECT_GRACE_S)

    def take_question(self, due: float) -> tuple[tuple[str, int], ...]:
        """Return the nodes to ask for, if it is time to ask."""
        if self._ask_at > due:
            return ()
        self._ask_at = math.inf
        suspects: list[tuple[str, int]] = []
        for entry in self._list:
            if entry.is_plain or entry.node in self._asked or entry.node == self._own_node:
                continue
            if self._list.heard_at(entry.node) + self._lease_of(entry) > due:
                continue
            if len(suspects) == SUSPECTS_PER_DATAGRAM:
                self._ask_at = due + SUSPECT_PAUSE_S
                break
            suspects.append((entry.node, entry.incarnation))
            self._asked[entry.node] = due + SUSPECT_GRACE_S
        if suspects:
            self._check_at = min(self._check_at, due + SUSPECT_GRACE_S)
        return tuple(suspects)

    def hear_question(self, node: str, now: float) -> bool:
        """Another node asks for a node. Returns True if this one knows it to be alive."""
        entry = self._list.get(node)
        if entry is None or entry.is_plain:
            return False
        if self._list.heard_at(node) + self._lease_of(entry) > now:
            return True
        if node not in self._asked:
            self._asked[node] = now + SUSPECT_GRACE_S
            self._check_at = min(self._check_at, now + SUSPECT_GRACE_S)
        return False

    def _lease_of(self, entry: Entry) -> float:
        return PLAIN_LEASE_S if entry.is_plain else lease_s(len(self._list))
