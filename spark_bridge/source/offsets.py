"""The offsets that Spark keeps in its checkpoint, and what they mean. Pure logic.

    {"host:port": {"0": 17, "1": 4, "epoch": "id of the log"}, …}

By bridge and partition, the offset behind the last row that was read. Spark compares offsets as
JSON text, so keys are always sorted, and a query with nothing new gives back what it was given.

An initial offset has `"initial": true` in each bridge, and the first end offset made out of one
carries `"from": {"0": n, …}`: where the first batch begins. Spark writes an end offset down before
it runs the batch, but asks for the initial offset again when that batch has to be repeated after a
crash; with `latest`, that would be a later one, and the rows between would be lost. So if the
start is initial and the end has a `from`, the batch begins at `from`. The same goes for a bridge
that was added to a query: it is in no start, and its rows begin at `from`.

A bridge is known by the id of its log, then by its address: one that moved keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import SourceError

Offsets = tuple[int, ...]  # by partition

#: Called with a loss, as cause, fact and advice: raises, or warns once for the cause.
OnLoss = Callable[[str, str, str], None]


class LogState(NamedTuple):
    """The state of a bridge's log: it has the offsets first … end - 1, by partition."""

    address: str
    epoch: str  # the id of the log
    first: Offsets
    end: Offsets


class Place(NamedTuple):
    """A position in one bridge's log: everything before it was read."""

    epoch: str
    offsets: Offsets
    initial: bool = False
    begins: Offsets | None = None  # "from"


class Range(NamedTuple):
    """A batch's rows in one partition of one bridge: start … end - 1."""

    address: str
    epoch: str
    partition: int
    start: int
    end: int


Places = dict[str, Place]  # by address


def load(form: Mapping[str, Any]) -> Places:
    """Parse the places in an offset; SourceError if it is not an offset of this source."""
    try:
        return {address: _load_place(place) for address, place in form.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SourceError(
            f"the checkpoint has {form!r}, which is no offset of jsonbus: "
            "give the query a new checkpointLocation"
        ) from None


def dump(places: Mapping[str, Place]) -> dict[str, Any]:
    """Return the offset with these places, in its canonical form."""
    return {address: _dump_place(place) for address, place in sorted(places.items())}


def resolve(start: Places, states: Sequence[LogState], on_loss: OnLoss) -> Places:
    """Return where a batch begins that continues after `start`; `initial` where its end has to say
    so.
    """
    served = {state.epoch for state in states}
    homes = {place.epoch: address for address, place in start.items()}
    begins: Places = {}
    replaced = set()
    for state in states:
        home = homes.get(state.epoch)
        if home is not None:
            kept = _check_place(start[home], state, on_loss)
            begins[state.address] = Place(state.epoch, kept, start[home].initial)
            continue
        former = start.get(state.address)
        if former is not None and former.epoch not in served:
            replaced.add(state.address)
            on_loss(
                f"replaced {state.address} {state.epoch}",
                f"the bridge at {state.address} has another log ({state.epoch}) than the query "
                f"read ({former.epoch}): what was in that one cannot be read",
                "bring its directory back, or give the query a new checkpointLocation, or set "
                "failOnDataLoss=false to go on with the first offset of the new log",
            )
        begins[state.address] = Place(state.epoch, state.first, True)
    for address, place in start.items():
        if place.epoch not in served and address not in replaced:
            on_loss(
                f"gone {address} {place.epoch}",
                f"the query read the log {place.epoch} of the bridge at {address}, which no bridge "
                "of the option `bridge` has any more",
                "name it again, or set failOnDataLoss=false to go on without it",
            )
    return begins


def end_after(begins: Places, ends: Mapping[str, Offsets]) -> Places:
    """Return the places after a batch: never before its begin, whatever `ends` says."""
    return {
        address: Place(
            begin.epoch,
            tuple(map(max, begin.offsets, ends[address])),
            begins=begin.offsets if begin.initial else None,
        )
        for address, begin in begins.items()
    }


def ranges_between(
    start: Places, end: Places, states: Mapping[str, LogState], on_loss: OnLoss
) -> list[Range]:
    """Return the rows of the batch from `start` to `end`, at the current addresses of the logs.

    `states` are by the id of the log. Rows that expired since then are reported when they are read.
    """
    starts = {place.epoch: place for place in start.values()}
    ranges = []
    for address, place in sorted(end.items()):
        state = states.get(place.epoch)
        if state is None:
            on_loss(
                f"lost {address} {place.epoch}",
                f"a batch that was begun needs the log {place.epoch} of the bridge at {address}, "
                "which no bridge of the option `bridge` has",
                "bring it back, or set failOnDataLoss=false to go on without its rows",
            )
            continue
        before = starts.get(place.epoch)
        if place.begins is not None and (before is None or before.initial):
            begins = place.begins
        elif before is not None:
            begins = before.offsets
        else:
            begins = state.first
        for partition, (start_at, end_at) in enumerate(zip(begins, place.offsets, strict=True)):
            if start_at < end_at:
                start_at = check_kept(partition, start_at, state, on_loss)
            if start_at < end_at:
                ranges.append(Range(state.address, place.epoch, partition, start_at, end_at))
    return ranges


def _check_place(place: Place, state: LogState, on_loss: OnLoss) -> Offsets:
    if len(place.offsets) != len(state.end):
        raise SourceError(
            f"the log {state.epoch} of the bridge at {state.address} has {len(state.end)} "
            f"partitions, the query's offsets have {len(place.offsets)}: this is no offset of it"
        )
    begins = []
    for partition, offset in enumerate(place.offsets):
        end = state.end[partition]
        if offset > end:
            on_loss(
                f"ahead {state.epoch} {partition}", *ahead(state.address, partition, offset, end)
            )
        begins.append(check_kept(partition, offset, state, on_loss))
    return tuple(begins)


def check_kept(partition: int, offset: int, state: LogState, on_loss: OnLoss) -> int:
    """Return the offset, or the first one that is kept, after reporting the loss."""
    first = state.first[partition]
    if offset < first:
        on_loss(
            f"expired {state.epoch} {partition}", *expired(state.address, partition, offset, first)
        )
    return max(offset, first)


def expired(address: str, partition: int, offset: int, first: int) -> tuple[str, str]:
    """Return fact and advice."""
    return (
        f"offset {offset} of partition {partition} is no longer in the log of the bridge at "
        f"{address}, which begins at {first}: {first - offset} rows expired before they were read",
        "let the bridge keep more (--retention-bytes, --retention-hours), or set "
        "failOnDataLoss=false to go on with what is left",
    )


def ahead(address: str, partition: int, offset: int, end: int) -> tuple[str, str]:
    """Return fact and advice."""
    return (
        f"offset {offset} of partition {partition} is not yet in the log of the bridge at "
        f"{address}, which ends at {end}: was its directory replaced by an older copy?",
        "give the query a new checkpointLocation, or set failOnDataLoss=false to go on when the "
        "log is there again",
    )


def _load_place(form: Mapping[str, Any]) -> Place:
    count = sum(name.isdecimal() for name in form)
    begins = form.get("from")
    return Place(
        str(form["epoch"]),
        _load_offsets(form, count),
        bool(form.get("initial", False)),
        None if begins is None else _load_offsets(begins, count),
    )


def _load_offsets(form: Mapping[str, Any], count: int) -> Offsets:
    return tuple(int(form[str(partition)]) for partition in range(count))


def _dump_place(place: Place) -> dict[str, Any]:
    form: dict[str, Any] = {**_dump_offsets(place.offsets), "epoch": place.epoch}
    if place.initial:
        form["initial"] = True
    if place.begins is not None:
        form["from"] = _dump_offsets(place.begins)
    return dict(sorted(form.items()))


def _dump_offsets(offsets: Offsets) -> dict[str, int]:
    return dict(sorted((str(partition), offset) for partition, offset in enumerate(offsets)))
