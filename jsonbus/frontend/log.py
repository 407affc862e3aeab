"""The log of a bus: what happens on it, in one line each.

What the program itself did wrong, a handler that failed or a reader that was too slow, has a logger
of its own: a program that never configured logging has to see it, too. All else is silent then.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable

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
from jsonbus.core.wire.topics import translate_pattern

_log = logging.getLogger("jsonbus.bus")
_program_log = logging.getLogger("jsonbus.bus.program")
_pattern_log = logging.getLogger("jsonbus.bus.program.patterns")  # by itself: some mean it so

#: Causes that were warned about. Beyond this number, new causes are logged at debug level only: a
#: user with that many different problems has read enough warnings.
WARNED_MAX = 1024


class _LastResort(logging.Handler):
    """Writes to standard error, as Python's own last resort does, if nothing else handles a record.

    Python's is not used below `jsonbus`, because the NullHandler there counts as a handler.
    """

    def emit(self, record: logging.LogRecord) -> None:
        last_resort = logging.lastResort
        if last_resort is not None and not self._is_handled_elsewhere():
            last_resort.handle(record)

    def _is_handled_elsewhere(self) -> bool:
        logger: logging.Logger | None = _program_log
        while logger is not None:
            for handler in logger.handlers:
                if handler is not self and not isinstance(handler, logging.NullHandler):
                    return True
            logger = logger.parent if logger.propagate else None
        return False


_program_log.addHandler(_LastResort(logging.WARNING))


class BusLog:
    """The log of one bus. Safe from any thread; at worst two threads warn about the same cause.

    Text that came from the network is logged as its repr, so that it cannot forge a line.
    """

    def __init__(self, bus_name: str) -> None:
        self._bus = bus_name
        self._warned: set[Hashable] = set()

    def warn_once(self, cause: Hashable, text: str, *arguments: object) -> None:
        """Log a warning the first time for each cause, then at debug level."""
        self._log_once(_log, cause, text, arguments)

    def warn_program_once(self, cause: Hashable, text: str, *arguments: object) -> None:
        """The same, about what the program has to change: seen also if logging is unconfigured."""
        self._log_once(_program_log, cause, text, arguments)

    def warn_of_wildcards(self, patterns: Iterable[str]) -> None:
        """Warn once of each pattern whose wildcards look like those of another system."""
        for pattern in patterns:
            if (meant := translate_pattern(pattern)) is not None:
                text = "%r has a wildcard of another system: did you mean %r?"
                self._log_once(_pattern_log, ("wildcards", pattern), text, (pattern, meant))

    def warn_program(self, text: str, *arguments: object) -> None:
        """Log a warning about what the program has to change; the caller bounds how many."""
        _program_log.warning("%s: " + text, self._bus, *arguments)

    def fail(self, text: str, *arguments: object) -> None:
        """Log the current exception with its traceback: a handler failed, or there is a bug.

        Seen also if logging is unconfigured.
        """
        _program_log.exception("%s: " + text, self._bus, *arguments)

    def fail_to_reply(self, topic: str, error: str) -> None:
        """Log that what a handler returned cannot be sent."""
        _program_log.error("%s: a request to %r failed here: %s", self._bus, topic, error)

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

    def _log_once(
        self, log: logging.Logger, cause: Hashable, text: str, arguments: tuple[object, ...]
    ) -> None:
        level = logging.DEBUG
        if cause not in self._warned and len(self._warned) < WARNED_MAX:
            self._warned.add(cause)
            level = logging.WARNING
        log.log(level, f"%s: {text}", self._bus, *arguments)  # noqa: G004 - a constant text
