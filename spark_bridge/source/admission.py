"""Decides how far the next batch of a streaming query goes: what there is, less what the options
hold back.

Runs in the driver, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from .offsets import LogState, Offsets, OnLoss, Place, Places, end_after, resolve
from .options import Bound, SourceOptions
from .planning import count_rows, limit_rows
from .starting_offsets import resolve_bound
from .watcher import Watcher


class Admission:
    """Asks the bridges, and decides."""

    def __init__(self, options: SourceOptions, on_loss: OnLoss) -> None:
        self._options = options
        self._on_loss = on_loss
        self._starting = options.starting_offsets or Bound(latest=True)
        self._watcher = Watcher(options.endpoints)
        #: With Trigger.AvailableNow: where every log ended at the start of the query.
        self._target: dict[str, Offsets] | None = None
        self._batch_at = time.monotonic()

    def close(self) -> None:
        self._watcher.close()

    def stop_at_what_is_there(self) -> None:
        """From now on, take nothing that comes later."""
        self._target = {state.address: state.end for state in self._watcher.look()}

    def last_states(self) -> list[LogState]:
        """Return the last known states without asking, for bridges that were up once."""
        return self._watcher.states()

    def states(self) -> list[LogState]:
        """Return the last known states of all bridges; asks only if one was never heard."""
        states = self._watcher.states()
        return states if len(states) == len(self._options.bridge) else self._watcher.look()

    def first_places(self, on_loss: OnLoss | None = None) -> Places:
        """Return where a new query begins."""
        states = self._watcher.look()
        offsets = resolve_bound(
            "startingOffsets", self._starting, states, self._options, on_loss or self._on_loss
        )
        if self._target is not None and self._starting.latest:
            offsets = self._target
        return {
            state.address: Place(state.epoch, offsets[state.address], initial=True)
            for state in states
        }

    def advance(self, start: Places, limited: bool) -> Places | None:
        """Return the end of the batch that begins at `start`; None if there is nothing for one.

        Waits for news up to longPollMs. A new query that does not start with the earliest rows gets
        a first batch at once, even an empty one: Spark writes its end down, and from then on the
        query keeps its start, however often it is killed before it has read a row.
        """
        is_initial = any(place.initial for place in start.values())
        needed = self._rows_needed() if limited else 1
        # Nobody waits for news when the query is to stop at what there is. But then a bridge that
        # is down has to be awaited: it was not read to its end.
        stops = self._target is not None
        states = self._watcher.observe(
            lambda: self._measure(start) >= needed,
            0.0 if stops or is_initial else self._options.long_poll_ms / 1000,
            all_up=stops,
        )
        begins = resolve(start, states, self._on_loss)
        offsets = _offsets(begins)
        ends = self._available(offsets)
        if count_rows(offsets, ends) < needed:
            ends = offsets
        elif limited:
            ends = self._limit(states, offsets, ends)
        is_first = is_initial and not self._starting.earliest
        if not is_first and not count_rows(offsets, ends):
            return None
        self._batch_at = time.monotonic()
        return end_after(begins, ends)

    def _measure(self, start: Places) -> int:
        """Count the rows for a batch, by the last news; 0 as long as a bridge was never heard."""
        states = self._watcher.states()
        if len(states) < len(self._options.bridge):
            return 0
        offsets = _offsets(resolve(start, states, lambda *told: None))
        return count_rows(offsets, self._available(offsets))

    def _available(self, begins: Mapping[str, Offsets]) -> dict[str, Offsets]:
        """Return where a batch could end. Nothing can be read now from a bridge that is down."""
        ends = {}
        for state in self._watcher.states():
            end = state.end
            if self._watcher.is_down(state.address):
                end = begins[state.address]
            elif self._target is not None:
                end = tuple(map(min, end, self._target.get(state.address, end)))
            ends[state.address] = end
        return ends

    def _rows_needed(self) -> int:
        options = self._options
        waited_s = time.monotonic() - self._batch_at
        if (
            options.min_rows_per_trigger is None
            or self._target is not None
            or waited_s >= options.max_trigger_delay
        ):
            return 1
        return options.min_rows_per_trigger

    def _limit(
        self, states: Sequence[LogState], begins: dict[str, Offsets], ends: dict[str, Offsets]
    ) -> dict[str, Offsets]:
        options = self._options
        if options.max_rows_per_trigger is not None:
            ends = limit_rows(begins, ends, options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            # Several bridges divide the bytes in proportion to their rows.
            rows = [count_rows({a: begins[a]}, {a: ends[a]}) for a in (s.address for s in states)]
            for state, count in zip(states, rows, strict=True):
                if count:
                    max_bytes = max(1, options.max_bytes_per_trigger * count // sum(rows))
                    ends[state.address] = self._limit_bytes(
                        state, begins[state.address], ends[state.address], max_bytes
                    )
        return ends

    def _limit_bytes(
        self, state: LogState, begin: Offsets, end: Offsets, max_bytes: int
    ) -> Offsets:
        body = {"op": "limit", "start": list(begin), "end": list(end), "max_bytes": max_bytes}
        reply = self._options.endpoint(state.address).ask(body, state.epoch)
        return tuple(map(min, end, reply["offsets"]))


def _offsets(begins: Places) -> dict[str, Offsets]:
    return {address: begin.offsets for address, begin in begins.items()}
