"""Resolves the options startingOffsets and endingOffsets into offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import OptionError
from .offsets import LogState, Offsets, OnLoss, check_kept
from .options import EARLIEST, LATEST, Bound, SourceOptions


def resolve_bound(
    option: str,
    bound: Bound,
    states: Sequence[LogState],
    options: SourceOptions,
    on_loss: OnLoss,
) -> dict[str, Offsets]:
    """Return the offsets that `option` means now, by bridge; asks the bridges for a time."""
    if bound.earliest:
        return {state.address: state.first for state in states}
    if bound.latest:
        return {state.address: state.end for state in states}
    if bound.time_us is not None:
        body = {"op": "find", "time_us": bound.time_us}
        return {
            state.address: tuple(options.endpoint(state.address).ask(body, state.epoch)["offsets"])
            for state in states
        }
    given = bound.offsets or {}
    served = {state.address for state in states}
    for address in given:
        if address not in served:
            raise OptionError(f"option {option}: {address} is not in the option `bridge`")
    return {
        state.address: _from_json(option, given.get(state.address), state, on_loss)
        for state in states
    }


def _from_json(
    option: str, given: Mapping[str, Any] | None, state: LogState, on_loss: OnLoss
) -> Offsets:
    names = [str(partition) for partition in range(len(state.end))]
    if given is None or not set(names) == {name for name in given if name.isdecimal()}:
        raise OptionError(
            f"option {option}: the bridge at {state.address} has the partitions "
            f"0 to {len(names) - 1}, and each needs an offset (-1: latest, -2: earliest)"
        )
    epoch = given.get("epoch", state.epoch)
    if epoch != state.epoch:
        raise OptionError(
            f"option {option}: these offsets are of the log {epoch}, "
            f"the bridge at {state.address} has the log {state.epoch}"
        )
    return tuple(
        _one_offset(option, int(given[name]), partition, state, on_loss)
        for partition, name in enumerate(names)
    )


def _one_offset(option: str, offset: int, partition: int, state: LogState, on_loss: OnLoss) -> int:
    end = state.end[partition]
    if offset == LATEST:
        return end
    if offset == EARLIEST:
        return state.first[partition]
    if offset > end:
        raise OptionError(
            f"option {option}: partition {partition} of the bridge at {state.address} "
            f"ends at {end}, before the offset {offset}"
        )
    return check_kept(partition, offset, state, on_loss)
