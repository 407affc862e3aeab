"""The source of a streaming query.

Spark makes one of these in a Python process of the driver, for offsets and planning, and sends
another one to the executors, for `read` alone. What is called when, as Spark 4.3 has it; 4.0 and
4.1 know no limits, and call `latestOffset` without arguments:

    initialOffset        before the first batch, twice; again if that batch has to be repeated
    latestOffset         for each trigger; waits a little for news (longPollMs)
    reportLatestOffset   for the progress report, behind it
    partitions           for each batch, also for one that was begun before a restart
    commit               for a batch while the next one is made; for the last one never
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .admission import Admission
from .columns import check_schema
from .errors import OptionError, SourceError
from .offsets import Place, dump, load, ranges_between
from .options import SourceOptions
from .process_pool import warn_once
from .reading import as_partitions, on_loss, read_partition

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2: no limits, and nobody asks for them
    if not TYPE_CHECKING:

        class SupportsTriggerAvailableNow:
            """Missing in older versions of Spark."""

        ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = None


class JsonBusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets, planning and reading for one query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Raise OptionError if options or schema are not for a streaming query."""
        if options.ending_offsets is not None:
            raise OptionError("option endingOffsets is for batch queries: a stream has no end")
        check_schema(schema, options)
        self._options = options
        self._schema = schema
        self._admission: Admission | None = None  # made when needed: it cannot be sent to executors
        self._initial: dict[str, Any] | None = None
        #: The last end that was given out or asked for: Spark before 4.2 passes no start.
        self._given: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = dump(self._take_in().first_places())
        return self._initial

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        # Spark asks for everything when the trigger is to ignore limits (Trigger.Once).
        limited = self._options.has_limit and type(limit).__name__ != "ReadAllAvailable"
        if start is None:
            start = self._given or self._initial
        if start is None:
            # Spark before 4.2, in the first call: a new query, or one that continues at an offset
            # that comes with the batch. For a new one, the end has to carry its begin; for the
            # other, it must not be before that offset, so it cannot be limited.
            start = dump(self._take_in().first_places(lambda *told: None))
            limited = False
        end = self._take_in().advance(load(start), limited)
        if end is None:
            return start
        self._given = dump(end)
        return self._given

    def getDefaultReadLimit(self) -> Any:
        """Tell Spark that there is a limit; the options define how limits combine."""
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_rows_per_trigger is not None:
            return ReadMinRows(options.min_rows_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._take_in().stop_at_what_is_there()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the logs ended when the bridges were last heard: the difference is the
        lag.
        """
        states = self._take_in().last_states()
        return dump({state.address: Place(state.epoch, state.end) for state in states}) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._given = end
        states = {state.epoch: state for state in self._take_in().states()}
        lost = partial(on_loss, self._options)
        ranges = ranges_between(load(start), load(end), states, lost)
        return as_partitions(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Report the progress of the query to the bridges. For people only: it never fails."""
        options = self._options
        states = {state.epoch: state.address for state in self._take_in().last_states()}
        for place in load(end).values():
            body = {"op": "commit", "group": options.group, "offsets": list(place.offsets)}
            address = states.get(place.epoch)
            if address is None:
                continue
            try:
                options.endpoint(address).tell(body, place.epoch)
            except (SourceError, OSError) as error:
                warn_once(
                    f"commit {address}",
                    f"cannot tell the bridge at {address} how far the query is: {error}",
                )

    def stop(self) -> None:
        if self._admission is not None:
            self._admission.close()

    def _take_in(self) -> Admission:
        if self._admission is None:
            self._admission = Admission(self._options, partial(on_loss, self._options))
        return self._admission
