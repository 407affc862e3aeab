"""The source of a batch query: the log between two offsets, fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .columns import check_schema
from .errors import OptionError
from .offsets import Range
from .options import Bound, SourceOptions
from .reading import as_partitions, on_loss, read_partition
from .starting_offsets import resolve_bound
from .watcher import Watcher


class JsonBusBatchReader(DataSourceReader):
    """Plans and reads for one query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Raise OptionError if options or schema are not for a batch query."""
        if options.has_limit:
            raise OptionError(
                "options maxRowsPerTrigger, maxBytesPerTrigger and minRowsPerTrigger are for "
                "streaming queries: a batch query has no trigger; use endingOffsets"
            )
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        watcher = Watcher(options.endpoints)
        try:
            states = watcher.look()
        finally:
            watcher.close()
        lost = partial(on_loss, options)
        bound = options.starting_offsets or Bound(earliest=True)
        starts = resolve_bound("startingOffsets", bound, states, options, lost)
        bound = options.ending_offsets or Bound(latest=True)
        ends = resolve_bound("endingOffsets", bound, states, options, lost)
        ranges = [
            Range(state.address, state.epoch, partition, start, end)
            for state in states
            for partition, (start, end) in enumerate(
                zip(starts[state.address], ends[state.address], strict=True)
            )
            if start < end
        ]
        return as_partitions(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, partition)
