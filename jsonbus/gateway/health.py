"""Health: whether the gateway does its work at this moment, which `/health` tells.

The bus: an interface that it was on at the start may be down or gone; the bus notices that within
seconds. The store: a write is tried, since a disk that filled up or hangs shows in nothing else
while no messages come. The loop never waits for the disk: the commit thread does.
"""

from __future__ import annotations

import jsonbus

from .webhooks.ledger import WebhookLedger

#: How long an answer may take if the disk does: less than probes usually wait.
STORE_S_MAX = 2.0


class Health:
    """Finds out what is wrong. Make it when the bus is open; use it in the bus's event loop."""

    def __init__(self, bus: jsonbus.AsyncBus, ledger: WebhookLedger) -> None:
        self._bus = bus
        self._ledger = ledger
        self._interfaces = max(1, bus.stats()["interfaces_up"])

    async def find_trouble(self) -> str | None:
        """Return what is wrong, in one sentence, or None. Bounded by STORE_S_MAX."""
        found = (self._find_bus_trouble(), await self._ledger.find_trouble(STORE_S_MAX))
        return "; ".join(filter(None, found)) or None

    def _find_bus_trouble(self) -> str | None:
        if self._bus.is_closed:
            return "the gateway is closing"
        up = self._bus.stats()["interfaces_up"]
        if up >= self._interfaces:
            return None
        chosen = ", ".join(self._bus.config.interface)
        if up:
            return f"only {up} of {self._interfaces} network interfaces ({chosen}) are up"
        return f"this gateway is cut off from the bus: its interface ({chosen}) is down or gone"
