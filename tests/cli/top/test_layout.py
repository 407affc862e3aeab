from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import jsonbus
from jsonbus.cli.top.layout import HELP, Frame, Paint, lay_out
from jsonbus.cli.top.state import State
from jsonbus.survey import Picture, Survey
from tests.survey.making import make_message, make_node

FRAME = Frame("239.255.24.16:2416", is_subscribing=False)

EVIL = (
    "\x1b[2J\x1b]0;title\x07",
    "\u202eright to left",
    "שלום עולם",
    "👨\u200d👩\u200d👧 family",
    "日本語テキスト" * 20,
    "e" + "\u0301" * 500,
    "[bold red]no markup[/]",
    "x" * 100_000,
)


def make_picture(topics: int = 5, *, value: object = 1) -> Picture:
    survey = Survey()
    nodes = [
        make_node("n1", "t/**", received=90, lost=10, totals=jsonbus.Totals(1, 2, 3, 4, 5, 6)),
        make_node("n2", "jsonbus.request/add", name="\x1b[31mevil", host="日本"),
    ]
    survey.picture(0.0, nodes, {})
    survey.take([make_message(f"t/{n}", value, n) for n in range(topics)])
    return survey.picture(1.0, nodes, {})


def draw(
    picture: Picture, *keys: str, size: tuple[int, int] = (80, 24), frame: Frame = FRAME
) -> list[str]:
    state = State()
    state.look(picture)
    for key in keys:
        state.press(key)
        state.look(picture)
    return lay_out(picture, state, frame, size, Paint(has_colours=True))


def plain(line: str) -> str:
    return re.sub(r"\x1b\[\d+(;\d+)*[mG]", "", line)


KEYS = [(), ("tab",), ("enter",), ("tab", "enter"), ("?",), ("/", "t"), ("tab", "/", "z"), (" ",)]


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10), (20, 5), (10, 3), (3, 2), (1, 1)])
@pytest.mark.parametrize("keys", KEYS)
def test_a_screen_is_never_larger_than_the_terminal(
    size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    for topics in (0, 1, 100):
        lines = draw(make_picture(topics), *keys, size=size)
        assert len(lines) == size[1]
        # Topic and rate are never left out; a terminal that is narrower cuts them off.
        assert all(cell_len(plain(line)) <= max(20, size[0]) for line in lines)


@pytest.mark.parametrize("text", EVIL, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize("keys", KEYS)
def test_text_from_the_network_neither_commands_nor_moves_anything(
    text: str, keys: tuple[str, ...]
) -> None:
    survey = Survey()
    nodes = [make_node("n1", name=text, host=text)]
    survey.take([make_message("a", {text: [text]}), make_message("b/" + text[:200], text)])
    for line in draw(survey.picture(0.0, nodes, {}), *keys, frame=Frame("x", False, text, text)):
        assert cell_len(plain(line)) <= 80
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", plain(line))


def test_columns_begin_at_the_same_place_in_every_row() -> None:
    survey = Survey()
    survey.take([make_message(name, 7) for name in ("plain", "日本語", "👨\u200d👩\u200d👧", "é")])
    heading, *rows = [plain(each) for each in draw(survey.picture(0.0, [], {}))[2:7]]
    at = cell_len(heading[: heading.index("VALUE")])
    for row in rows:
        assert cell_len(row[: row.rindex("7")]) == at


def test_narrow_terminals_keep_topic_and_rate() -> None:
    for columns in (20, 30, 50, 80):
        heading = plain(draw(make_picture(), size=(columns, 24))[2])
        assert heading.startswith("TOPIC") and "RATE/s" in heading
    assert "VALUE" in plain(draw(make_picture(), size=(80, 24))[2])
    assert "SUBSCRIBERS" in plain(draw(make_picture(), size=(200, 24))[2])


def test_totals_of_the_bus_are_on_top() -> None:
    title, totals = map(plain, draw(make_picture())[:2])
    assert title.split("  ")[:3] == ["jsonbus 239.255.24.16:2416", "2 nodes", "5 topics"]
    assert "suppressed 2 (66.7%)  lost 4 (57.1%)  repaired 5  1 without totals" in totals


def test_without_colours_there_is_bold_but_no_colour() -> None:
    state, picture = State(), make_picture()
    state.look(picture)
    coloured = "".join(lay_out(picture, state, FRAME, (80, 24), Paint(has_colours=True)))
    assert "\x1b[33m" in coloured
    grey = "".join(lay_out(picture, state, FRAME, (80, 24), Paint(has_colours=False)))
    assert not re.search(r"\x1b\[(3\d|4\d|9\d)", grey) and "\x1b[7m" in grey


def test_a_silent_bus_tells_why() -> None:
    frame = Frame("x", is_subscribing=False, silence="nothing flows: --subscribe asks for it")
    lines = [plain(each).strip() for each in draw(make_picture(0), frame=frame)]
    assert "nothing flows: --subscribe asks for it" in lines


def test_a_filter_that_nothing_matches_says_so() -> None:
    assert "nothing matches z" in [
        plain(each).strip() for each in draw(make_picture(), *"/z", "enter")
    ]


def test_details_have_all_of_a_value() -> None:
    lines = draw(make_picture(1, value={"a": list(range(100))}), "enter", "end")
    assert [plain(each).strip() for each in lines[-4:-1]] == ["99", "]", "}"]
    facts = "\n".join(draw(make_picture(1), "enter"))
    assert "name of n1" in facts and "10.0% of all messages of its publishers" in facts


def test_details_of_a_node_have_what_it_counts() -> None:
    lines = [plain(each).split() for each in draw(make_picture(), "tab", "down", "enter")]
    assert ["suppressed", "2"] in lines and ["subscribes", "t/**"] in lines


def test_the_help_fits_a_small_terminal() -> None:
    assert all(len(line) <= 80 for line in HELP.splitlines())
    assert len(HELP.splitlines()) <= 21


@given(st.integers(1, 250), st.integers(1, 60), st.lists(st.sampled_from(["tab", "enter", "down"])))
def test_any_size_can_be_drawn(columns: int, height: int, keys: list[str]) -> None:
    assert len(draw(make_picture(30), *keys, size=(columns, height))) == height
