"""Offsets: their one form, and what a batch reads by them."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_bridge.source.errors import DataLossError, SourceError
from spark_bridge.source.offsets import (
    LogState,
    Place,
    Range,
    dump,
    end_after,
    load,
    ranges_between,
    resolve,
)

#: No time limits: the machine may be busy.
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

A = LogState("a:1", "A", (0, 0), (10, 5))


def fail(cause: str, fact: str, advice: str) -> None:
    raise DataLossError(fact)


class Warnings:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def __call__(self, cause: str, fact: str, advice: str) -> None:
        self.messages.append(fact)


def places() -> st.SearchStrategy[Place]:
    numbers = st.integers(0, 1 << 62)
    return st.integers(1, 12).flatmap(
        lambda count: st.builds(
            Place,
            st.text(),
            st.tuples(*[numbers] * count),
            st.booleans(),
            st.none() | st.tuples(*[numbers] * count),
        )
    )


@pytest.mark.slow
@BUSY
@given(st.dictionaries(st.text(), places()))
def test_offsets_have_one_form_and_come_back_from_it(given_places: dict[str, Place]) -> None:
    form = dump(given_places)
    assert load(json.loads(json.dumps(form))) == given_places
    # Spark compares text: all keys in order, at every depth, whatever the order they were made in.
    assert json.dumps(form) == json.dumps(form, sort_keys=True)
    assert json.dumps(dump(dict(reversed(given_places.items())))) == json.dumps(form)


@pytest.mark.parametrize("form", [{"a": 1}, {"a": {"0": 1}}, {"a": {"epoch": "x", "1": 5}}])
def test_offsets_of_another_source_are_refused(form: dict[str, object]) -> None:
    with pytest.raises(SourceError, match="new checkpointLocation"):
        load(form)


def test_a_query_goes_on_where_it_was() -> None:
    assert resolve({"a:1": Place("A", (3, 5))}, [A], fail) == {"a:1": Place("A", (3, 5))}


def test_a_bridge_that_moved_keeps_its_place() -> None:
    start = {"old:1": Place("A", (3, 5))}
    assert resolve(start, [A], fail) == {"a:1": Place("A", (3, 5))}
    end = {"old:1": Place("A", (4, 5))}
    assert ranges_between(start, end, {"A": A}, fail) == [Range("a:1", "A", 0, 3, 4)]


def test_bridges_that_swap_addresses_keep_their_places() -> None:
    b = LogState("b:1", "B", (0,), (9,))
    start = {"a:1": Place("B", (2,)), "b:1": Place("A", (3, 5))}
    assert resolve(start, [A, b], fail) == {
        "a:1": Place("A", (3, 5)),
        "b:1": Place("B", (2,)),
    }


def test_a_bridge_that_was_added_is_read_from_its_first_offset() -> None:
    b = LogState("b:1", "B", (4,), (9,))
    begins = resolve({"a:1": Place("A", (10, 5))}, [A, b], fail)
    assert begins["b:1"] == Place("B", (4,), initial=True)
    end = end_after(begins, {"a:1": (10, 5), "b:1": (9,)})
    later = LogState("b:1", "B", (4,), (20,))
    ranges = ranges_between({"a:1": Place("A", (10, 5))}, end, {"A": A, "B": later}, fail)
    assert ranges == [Range("b:1", "B", 0, 4, 9)]


def test_a_batch_that_is_repeated_is_told_what_expired_meanwhile() -> None:
    start, end = {"a:1": Place("A", (2, 0))}, {"a:1": Place("A", (9, 0))}
    state = A._replace(first=(6, 0))
    with pytest.raises(DataLossError, match=r"offset 2 of partition 0 .* begins at 6"):
        ranges_between(start, end, {"A": state}, fail)
    assert ranges_between(start, end, {"A": state}, Warnings()) == [Range("a:1", "A", 0, 6, 9)]
    gone = {"A": A._replace(first=(9, 0))}
    assert ranges_between(start, end, gone, Warnings()) == []


def test_a_new_log_at_an_address_where_the_old_one_moved_away_from_is_an_added_bridge() -> None:
    moved = LogState("b:1", "A", (0, 0), (10, 5))
    fresh = LogState("a:1", "C", (0,), (1,))
    begins = resolve({"a:1": Place("A", (3, 5))}, [fresh, moved], fail)
    assert begins == {"b:1": Place("A", (3, 5)), "a:1": Place("C", (0,), initial=True)}


def test_a_log_that_was_replaced_is_an_error_or_is_read_from_its_first_offset() -> None:
    start = {"a:1": Place("gone", (3, 5))}
    with pytest.raises(DataLossError, match=r"another log \(A\) than the query read \(gone\)"):
        resolve(start, [A], fail)
    warnings = Warnings()
    assert resolve(start, [A], warnings) == {"a:1": Place("A", (0, 0), initial=True)}
    assert len(warnings.messages) == 1


def test_a_bridge_that_is_no_longer_named_is_an_error_or_is_left_out() -> None:
    start = {"a:1": Place("A", (3, 5)), "b:1": Place("B", (1,))}
    with pytest.raises(DataLossError, match="bridge at b:1"):
        resolve(start, [A], fail)
    warnings = Warnings()
    assert resolve(start, [A], warnings) == {"a:1": Place("A", (3, 5))}
    assert len(warnings.messages) == 1


def test_offsets_that_expired_are_an_error_with_both_numbers_or_a_jump() -> None:
    state = A._replace(first=(7, 0))
    with pytest.raises(DataLossError, match=r"offset 3 of partition 0 .* begins at 7: 4 rows"):
        resolve({"a:1": Place("A", (3, 5))}, [state], fail)
    warnings = Warnings()
    assert resolve({"a:1": Place("A", (3, 5))}, [state], warnings)["a:1"].offsets == (7, 5)
    assert len(warnings.messages) == 1


def test_offsets_ahead_of_the_log_never_go_back() -> None:
    with pytest.raises(DataLossError, match=r"offset 12 of partition 0 .* ends at 10"):
        resolve({"a:1": Place("A", (12, 5))}, [A], fail)
    begins = resolve({"a:1": Place("A", (12, 5))}, [A], Warnings())
    assert end_after(begins, {"a:1": A.end})["a:1"].offsets == (12, 5)


def test_the_first_batch_begins_where_its_end_says_whatever_is_initial_by_now() -> None:
    initial = {"a:1": Place("A", (4, 4), initial=True)}
    begins = resolve(initial, [A], fail)
    end = end_after(begins, {"a:1": (6, 5)})
    assert end["a:1"] == Place("A", (6, 5), begins=(4, 4))
    repeated = {"a:1": Place("A", (10, 5), initial=True)}
    assert ranges_between(repeated, end, {"A": A}, fail) == [
        Range("a:1", "A", 0, 4, 6),
        Range("a:1", "A", 1, 4, 5),
    ]


def test_the_second_batch_begins_where_the_first_one_ended() -> None:
    first_end = {"a:1": Place("A", (6, 5), begins=(4, 4))}
    begins = resolve(first_end, [A], fail)
    end = end_after(begins, {"a:1": (10, 5)})
    assert end["a:1"].begins is None
    assert ranges_between(first_end, end, {"A": A}, fail) == [Range("a:1", "A", 0, 6, 10)]
    assert ranges_between(first_end, first_end, {"A": A}, fail) == []


def test_a_begun_batch_whose_log_is_gone_is_an_error_or_has_no_rows() -> None:
    start, end = {"a:1": Place("gone", (1,))}, {"a:1": Place("gone", (3,))}
    with pytest.raises(DataLossError, match="a batch that was begun needs the log gone"):
        ranges_between(start, end, {"A": A}, fail)
    assert ranges_between(start, end, {"A": A}, Warnings()) == []


def test_a_bridge_in_no_start_and_without_a_begin_is_read_from_what_is_kept() -> None:
    # Spark before 4.2 does not tell the start when an end is asked for.
    end = {"a:1": Place("A", (10, 5))}
    state = A._replace(first=(8, 5))
    assert ranges_between({}, end, {"A": state}, fail) == [Range("a:1", "A", 0, 8, 10)]
