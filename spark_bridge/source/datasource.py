"""The class that Spark is given: `format("jsonbus")`.

The package travels by value where it is not installed (register.py). So its modules import names
from each other, never modules, and none inside a function: a pickled function brings along the
names that it uses, but cannot import what is not there.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .batch_reader import JsonBusBatchReader
from .columns import default_schema
from .errors import OptionError
from .options import SourceOptions, parse_options
from .sink_options import SINK_OPTIONS
from .stream_reader import JsonBusStreamReader
from .writer import JsonBusBatchWriter, JsonBusStreamWriter


class JsonBusDataSource(DataSource):
    """The log of a bridge as a source, the bus as a sink."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raise OptionError if an option is unknown or impossible."""
        super().__init__(options)
        self._parsed = parse_options(dict(options), also_known=SINK_OPTIONS)

    @classmethod
    def name(cls) -> str:
        return "jsonbus"

    def schema(self) -> StructType:
        return default_schema(self._parsed)

    def reader(self, schema: StructType) -> JsonBusBatchReader:
        return JsonBusBatchReader(self._source_options(), schema)

    def streamReader(self, schema: StructType) -> JsonBusStreamReader:
        return JsonBusStreamReader(self._source_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> JsonBusBatchWriter:
        """Raise OptionError for overwrite: what is on the bus cannot be called back."""
        if overwrite:
            raise OptionError('a bus cannot be overwritten: write with mode("append")')
        return JsonBusBatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> JsonBusStreamWriter:
        """`overwrite` is the output mode "complete": every batch publishes the whole result."""
        return JsonBusStreamWriter(self.options, schema)

    def _source_options(self) -> SourceOptions:
        """Parse again without the sink's options, which a source does not use."""
        parse_options(dict(self.options), also_known=frozenset())
        return self._parsed
