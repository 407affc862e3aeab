"""Options of the source, and how options are parsed.

Names are case-insensitive. An option that is not in its table is an error that names it: an option
with a typing mistake must not be an option without effect.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pyspark.sql.types import DataType

from .client import Endpoint
from .errors import OptionError
from .json.ddl import parse_value_schema
from .tls import Trust, read_ca

T = TypeVar("T")
Parser = Callable[
    [str], Any
]  # from stripped text; a ValueError says, after the text, what is wrong

DEFAULT_PORT = 7710
TOPIC_BYTES_MAX = 255
NAME_CHARACTERS_MAX = 200  # of a group, at the bridge
LONG_POLL_MS_MAX = 60_000  # at the bridge
PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"

#: In the JSON form of offsets, as in Kafka's.
LATEST, EARLIEST = -1, -2

#: Unknown options that get a special explanation.
_EXPLAINED = {
    "path": "load() takes no path here: the option `bridge` names the bridge",
    # Spark passes it, as of 4.3, when a table of its catalog is made with a Python source. Such a
    # table is never given its own options again, and would read from the default bridge.
    "owner": "Spark does not keep the options of a table with a Python source: use CREATE "
    "TEMPORARY VIEW … USING jsonbus OPTIONS (…) instead of CREATE TABLE",
}

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_DURATION_UNITS_S = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}


@dataclass(frozen=True)
class Bound:
    """Where reading starts or ends: one of the four is set."""

    latest: bool = False
    earliest: bool = False
    time_us: int | None = None
    offsets: Mapping[str, Mapping[str, Any]] | None = None  # by bridge, then by partition


@dataclass(frozen=True)
class BridgeOptions:
    """Options that source and sink share; each field is named like its option, in our spelling."""

    bridge: tuple[str, ...] = (f"127.0.0.1:{DEFAULT_PORT}",)
    token: str | None = None
    connect_timeout_ms: int = 30_000
    tls: bool = False
    tls_ca: str | None = None  # what the file contains

    def __post_init__(self) -> None:
        if self.tls_ca is not None and not self.tls:
            raise OptionError("option tlsCa: it needs the option tls, which is not set to true")

    def endpoint(self, address: str) -> Endpoint:
        trust = Trust(self.tls_ca) if self.tls else None
        return Endpoint(address, self.token, self.connect_timeout_ms / 1000, trust)

    @property
    def endpoints(self) -> list[Endpoint]:
        return [self.endpoint(address) for address in self.bridge]


@dataclass(frozen=True)
class SourceOptions(BridgeOptions):
    """The source's options."""

    topics: tuple[str, ...] = ("**",)
    group: str = ""
    starting_offsets: Bound | None = None
    ending_offsets: Bound | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_rows_per_trigger: int | None = None
    max_trigger_delay: float = 900.0  # seconds, as in Kafka's source
    min_partitions: int | None = None
    max_rows_per_partition: int | None = None
    fail_on_data_loss: bool = True
    value_schema: DataType | None = None
    value_mode: str = PERMISSIVE
    include_gaps: bool = False
    long_poll_ms: int = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        # A Python source is not told the name of its query, nor where its checkpoint is.
        if not self.group:
            object.__setattr__(self, "group", f"query-{uuid.uuid4().hex[:12]}")
        low, high = self.min_rows_per_trigger, self.max_rows_per_trigger
        if low is not None and high is not None and low > high:
            raise OptionError(
                f"minRowsPerTrigger is {low}, more than maxRowsPerTrigger ({high}): "
                "no batch can have as many rows"
            )

    @property
    def has_limit(self) -> bool:
        """Return whether a batch is limited to less, or more, than what there is."""
        limits = (self.max_rows_per_trigger, self.max_bytes_per_trigger, self.min_rows_per_trigger)
        return limits != (None, None, None)


def parse_options(given: Mapping[str, str], also_known: frozenset[str]) -> SourceOptions:
    """Return the source's options from everything that Spark passes; OptionError names the wrong
    one.

    `also_known`: names, in lower case, that are not the source's but not mistakes either.
    """
    return SourceOptions(**parse_texts(given, _PARSERS, "", also_known, _EXPLAINED))


def parse_texts(
    given: Mapping[str, str],
    parsers: Mapping[str, Parser],
    owner: str,
    also_known: frozenset[str],
    explained: Mapping[str, str],
) -> dict[str, Any]:
    """Return the values of options, by their names in our spelling; OptionError names the wrong
    one.
    """
    names = {name.lower(): name for name in parsers}
    values: dict[str, Any] = {}
    for name, text in given.items():
        low = name.lower()
        if low in names:
            option = names[low]
            try:
                values[_field_name(option)] = parsers[option](text.strip())
            except (ValueError, OverflowError) as error:
                shown = "the value" if option == "token" else repr(text)
                raise OptionError(f"option {option}: {shown} {error}") from None
        elif low in explained:
            raise OptionError(explained[low])
        elif low not in also_known:
            close = difflib.get_close_matches(low, names, n=1)
            hint = f": did you mean {names[close[0]]}?" if close else ""
            known = ", ".join(parsers)
            raise OptionError(f"unknown option {name!r}{owner}{hint} (the options are {known})")
    return values


def _parse_bridges(text: str) -> tuple[str, ...]:
    addresses = tuple(_parse_address(each.strip()) for each in text.split(","))
    for address in addresses:
        if addresses.count(address) > 1:
            raise ValueError(f"names {address} twice: its rows would be read twice")
    return addresses


def _parse_address(text: str) -> str:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.%\w]+\]|[^\s:\[\]/]+)(?::(\d{1,5}))?", text)
    port = int(match[2] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65_536:
        raise ValueError(f"has {text!r}, which is no host:port")
    return f"{match[1].lower()}:{port}"


def _parse_topics(text: str) -> tuple[str, ...]:
    patterns = json.loads(text) if text.startswith("[") else [p.strip() for p in text.split(",")]
    if not all(isinstance(pattern, str) and _is_pattern(pattern) for pattern in patterns):
        raise ValueError(
            "is no list of patterns: levels separated by `/`, none empty, `*` and `**` only as "
            "whole levels, patterns separated by commas (or a JSON array of them)"
        )
    return tuple(dict.fromkeys(patterns))


def _is_pattern(pattern: str) -> bool:
    levels = pattern.split("/")
    return (
        all(level and (level in ("*", "**") or "*" not in level) for level in levels)
        and pattern.isprintable()
        and len(pattern.encode(errors="replace")) <= TOPIC_BYTES_MAX
    )


def _parse_bound(text: str) -> Bound:
    if text.lower() in ("earliest", "latest"):
        return Bound(latest=text.lower() == "latest", earliest=text.lower() == "earliest")
    if text.startswith("{"):
        return Bound(offsets=_parse_offsets(text))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "is none of earliest, latest, a time like 2026-01-31T12:00:00Z, "
            'and JSON like {"host:port": {"0": 17, "1": -1}} (-1: latest, -2: earliest)'
        ) from None
    # Spark's session time zone is not known here: a time without a zone is UTC.
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return Bound(time_us=since // timedelta(microseconds=1))


def _parse_offsets(text: str) -> dict[str, dict[str, Any]]:
    form = json.loads(text)
    parsed: dict[str, dict[str, Any]] = {}
    for bridge, by_partition in form.items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"has no object of partitions for {bridge!r}")
        for name, offset in by_partition.items():
            if name.isdecimal() and not (type(offset) is int and offset >= EARLIEST):
                raise ValueError(f"has {offset!r} as offset of partition {name}")
            # A whole offset, as in a progress report or a checkpoint, is accepted, too.
            if not name.isdecimal() and name not in ("epoch", "from", "initial"):
                raise ValueError(f"has {name!r}, which is no number of a partition")
        parsed[_parse_address(bridge)] = by_partition
    return parsed


def whole_number(low: int, high: float, wanted: str) -> Callable[[str], int]:
    """Return the parser of a whole number in a range, which `wanted` describes."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"is no whole number {wanted}")
        return int(text)

    return parse


def choice(meanings: Mapping[str, T]) -> Callable[[str], T]:
    """Return the parser of one word out of two."""

    def parse(text: str) -> T:
        for word, meaning in meanings.items():
            if text.lower() == word.lower():
                return meaning
        raise ValueError(f"is neither {' nor '.join(meanings)}")

    return parse


def _parse_duration_s(text: str) -> float:
    match = _DURATION.fullmatch(text.lower())
    if match is None or match[2] not in _DURATION_UNITS_S:
        raise ValueError("is no duration like 500ms, 30s, 15m or 1h")
    return float(match[1]) * _DURATION_UNITS_S[match[2]]


def parse_name(text: str) -> str:
    if not 0 < len(text) <= NAME_CHARACTERS_MAX or not text.isprintable():
        raise ValueError(f"is no name of 1 to {NAME_CHARACTERS_MAX} characters without controls")
    return text


def _parse_token(text: str) -> str:
    if not text:
        raise ValueError("is empty: leave the option out if the bridge has no token")
    return text


def _field_name(option: str) -> str:
    return re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), option)


_COUNT = whole_number(1, math.inf, "from 1 up")
_LONG_POLL = f"of milliseconds from 0 to {LONG_POLL_MS_MAX:,}"
parse_flag = choice({"false": False, "true": True})

BRIDGE_PARSERS: dict[str, Parser] = {
    "bridge": _parse_bridges,
    "token": _parse_token,
    "connectTimeoutMs": whole_number(100, 86_400_000, "of milliseconds from 100 to a day"),
    "tls": parse_flag,
    "tlsCa": read_ca,
}
_PARSERS: dict[str, Parser] = {
    **BRIDGE_PARSERS,
    "topics": _parse_topics,
    "group": parse_name,
    "startingOffsets": _parse_bound,
    "endingOffsets": _parse_bound,
    "maxRowsPerTrigger": _COUNT,
    "maxBytesPerTrigger": _COUNT,
    "minRowsPerTrigger": _COUNT,
    "maxTriggerDelay": _parse_duration_s,
    "minPartitions": _COUNT,
    "maxRowsPerPartition": _COUNT,
    "failOnDataLoss": parse_flag,
    "valueSchema": parse_value_schema,
    "valueMode": choice({each: each for each in (PERMISSIVE, FAILFAST)}),
    "includeGaps": parse_flag,
    "longPollMs": whole_number(0, LONG_POLL_MS_MAX, _LONG_POLL),
}
assert [*map(_field_name, _PARSERS)] == [each.name for each in fields(SourceOptions)]
