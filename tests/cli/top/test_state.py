from __future__ import annotations

import pytest

from jsonbus.cli.top.state import ORDER_KEYS, State
from jsonbus.survey import Picture, Survey
from tests.survey.making import make_message, make_node


def make_picture(**rates: int) -> Picture:
    """Topics with so many messages each, in one second."""
    survey = Survey()
    nodes = [make_node("n1", "a/**"), make_node("n2", name="zeta"), make_node("n3", name="alpha")]
    survey.picture(0.0, nodes, {})
    for name, rate in rates.items():
        survey.take([make_message(name, 1, n, received_at=rate) for n in range(rate)])
    return survey.picture(1.0, nodes, {})


def press(state: State, picture: Picture, *keys: str) -> None:
    state.look(picture)
    for key in keys:
        state.press(key)
        state.look(picture)


def shown(state: State) -> list[str]:
    return [state.place.table.identity(row) for row in state.rows]


PICTURE = make_picture(a=5, b=20, c=10)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", "bca"),
        ("t", "abc"),
        ("tt", "cba"),
        ("ti", "cba"),
        ("b", "bca"),
        ("r", "acb"),  # the order there is, turned round
        ("<", "abc"),
        (">", "bca"),
        ("n", "bca"),  # means nothing here
    ],
)
def test_keys_choose_the_order(keys: str, expected: str) -> None:
    state = State()
    press(state, PICTURE, *keys)
    assert shown(state) == list(expected)


def test_equal_rows_stay_in_the_order_of_their_names() -> None:
    state = State()
    press(state, make_picture(c=1, a=1, b=1))
    assert shown(state) == ["a", "b", "c"]
    press(state, make_picture(c=1, a=1, b=1), "i")
    assert shown(state) == ["a", "b", "c"]


def test_the_chosen_row_is_followed_where_it_goes() -> None:
    state = State()
    press(state, PICTURE, "down", "down")
    assert state.rows[state.place.index].topic == "a"
    press(state, make_picture(a=50, b=20, c=10))
    assert (state.place.index, state.rows[0].topic) == (0, "a")


def test_where_the_chosen_row_has_gone_another_takes_its_place() -> None:
    state = State()
    press(state, PICTURE, "end")
    press(state, make_picture(b=20))
    assert state.place.index == 0
    press(state, make_picture())
    press(state, make_picture(), "down", "enter", "pagedown", "home")
    assert (state.rows, state.is_detail_shown) == ([], False)


def test_a_page_always_has_the_chosen_row() -> None:
    picture = make_picture(**{f"t{n:03}": 1 for n in range(100)})
    state = State()
    press(state, picture)
    for key in ("pagedown", "down", "pagedown", "end", "up", "pageup", "home", "G", "k", "g", "j"):
        rows = state.scroll(7)
        press(state, picture, key)
        rows = state.scroll(7)
        assert len(rows) == 7
        assert state.rows[state.place.index] in rows
    state.press("end")
    state.scroll(7)
    assert len(state.scroll(50)) == 50


def test_a_filter_is_seen_while_it_is_typed() -> None:
    state = State()
    picture = make_picture(**{"sensors/Kitchen": 1, "sensors/hall": 2, "door": 3})
    press(state, picture, *"/kitq")
    assert (shown(state), state.typed, state.is_done) == ([], "kitq", False)
    press(state, picture, "backspace")
    assert shown(state) == ["sensors/Kitchen"]
    press(state, picture, "enter", "t")
    assert (shown(state), state.typed) == (["sensors/Kitchen"], None)
    press(state, picture, "escape")
    assert len(shown(state)) == 3
    press(state, picture, *"/sensors/*", "enter")
    assert sorted(shown(state)) == ["sensors/Kitchen", "sensors/hall"]
    press(state, picture, "/", "clear", *"a*b", "enter")  # no pattern: anything between
    assert shown(state) == []
    press(state, picture, "/", "clear", *"S*kit*", "enter")
    assert shown(state) == ["sensors/Kitchen"]
    press(state, picture, "/", "escape")
    assert len(shown(state)) == 3


def test_each_table_keeps_its_own_order_and_filter() -> None:
    state = State("topic")
    press(state, PICTURE, "/", "b", "enter", "tab")
    assert shown(state) == ["n3", "n1", "n2"]
    press(state, PICTURE, "n")
    assert shown(state) == ["n2", "n1", "n3"]
    press(state, PICTURE, *"/ALPHA", "enter")
    assert shown(state) == ["n3"]
    press(state, PICTURE, "/", "clear", *"al*a*", "enter")
    assert shown(state) == ["n3"]
    press(state, PICTURE, "backtab")
    assert shown(state) == ["b"]


def test_details_stay_those_of_the_row_that_was_first() -> None:
    state = State()
    press(state, make_picture(a=2, b=1), "enter")
    press(state, make_picture(a=2, b=3))
    assert state.is_detail_shown
    assert state.rows[state.place.index].topic == "a"


def test_details_help_and_pause_come_and_go() -> None:
    state = State()
    press(state, PICTURE, "enter")
    assert state.is_detail_shown
    press(state, PICTURE, "down", "pagedown", "r")
    assert (state.detail_first > 0, state.place.is_reversed) == (True, False)
    press(state, PICTURE, "escape", "?")
    assert (state.is_detail_shown, state.is_help_shown) == (False, True)
    press(state, PICTURE, "q")
    assert (state.is_help_shown, state.is_done) == (False, False)
    press(state, PICTURE, " ")
    assert state.is_paused
    press(state, PICTURE, " ", "redraw", "q")
    assert (state.is_paused, state.is_stale, state.is_done) == (False, True, True)


@pytest.mark.parametrize("first", ["", "tab"])
@pytest.mark.parametrize("key", [*ORDER_KEYS, "<", ">", "left", "right", "i", "x", "é", "end"])
def test_every_key_may_be_pressed_in_both_tables(first: str, key: str) -> None:
    state = State()
    press(state, PICTURE, *filter(None, [first]), *[key] * 12)
    assert len(state.rows) == 3
