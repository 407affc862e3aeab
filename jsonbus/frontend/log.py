"""The log of a bus: what happens on it, in one line each."""

from __future__ import annotations

import logging
from collections.abc import Hashable

from jsonbus.core.events import (
    DatagramRejected,
    Event,
    GapFound,
    MasterMissing,
    MessagesLost,
    NodeJoined,
    NodeLeft,
    StateChanged,
)

_log = logging.getLogger("jsonbus.bus")

#: Causes that were warned about. Beyond this number, new causes are logged at debug level only: a
#: user with that many different problems has read enough warnings.
WARNED_MAX = 1024


class BusLog:
    """The log of one bus. Safe from any thread; at worst two threads warn about the same cause.

    Text that came from the network is logged as its repr, so that it cannot forge a line.
    """

    def __init__(self, bus_name: str) -> None:
        self._bus = bus_name
        self._warned: set[Hashable] = set()

    def warn_once(self, cause: Hashable, text: str, *arguments: object) -> None:
        """Log a warning the first time for each cause, then at debug level."""
        level = logging.DEBUG
        if cause not in self._warned and len(self._warned) < WARNED_MAX:
            self._warned.add(cause)
            level = logging.WARNING
        _log.log(level, "%s: " + text, self._bus, *arguments)

    def fail(self, text: str, *arguments: object) -> None:
        """Log the current exception with its traceback: a handler failed, or there is a bug."""
        _log.exception("%s: " + text, self._bus, *arguments)

    def report(self, event: Event) -> None:
        """Log one line for an event of the core that concerns people."""
        match event:
            case NodeJoined(node, name):
                _log.info("%s: node %r (%s) joined", self._bus, name, node)
            case NodeLeft(node, name, "left"):
                _log.info("%s: node %r (%s) left", self._bus, name, node)
            case NodeLeft(node, name, _):
                _log.info("%s: node %r (%s) expired: it is silent", self._bus, name, node)
            case StateChanged(state, reason):
                _log.debug("%s: = %s: %s", self._bus, state, reason)
            case MasterMissing():
                self.warn_once(
                    MasterMissing,
                    "no master answers, so this node may not know every subscription: "
                    "start one node with --master",
                )
            case DatagramRejected(cause, sender, detail):
                # The core reports each cause and sender once.
                _log.warning(
                    "%s: datagrams from %s are dropped (%s: %r)", self._bus, sender, cause, detail
                )
            case MessagesLost(node, name, count):
                self.warn_once(
                    (MessagesLost, node),
                    "%d messages of node %r (%s) did not arrive; reliable ones are requested again",
                    count,
                    name,
                    node,
                )
            case GapFound(node, name, topic, first, last):
                self.warn_once(
                    (GapFound, node, topic),
                    "%d messages of node %r (%s) to the reliable topic %r were given up",
                    last - first + 1,
                    name,
                    node,
                    topic,
                )
            case _:
                pass
