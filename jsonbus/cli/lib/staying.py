"""What `pub` and `replay` do when all is published: retained values live as long as their node."""

from __future__ import annotations

import jsonbus

from .. import signals
from ..command import note
from .numbers import counted


def stay_if_asked(bus: jsonbus.Bus, ending: signals.Ending, *, stay: bool) -> None:
    """With --stay, stay until Ctrl-C, for retained values and repairs.

    Without it, say which retained values end now: a newcomer expects them to remain.
    """
    count = bus.stats()["values_retained"]
    if stay:
        ending.is_usual = True
        note(f"{bus.name} retains {counted(count, 'value')}; Ctrl-C ends")
        signals.stay()
    elif count:
        end = "1 retained value ends" if count == 1 else f"{count:,} retained values end"
        note(f"{end} with this command: add --stay to retain until Ctrl-C")
