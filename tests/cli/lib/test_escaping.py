from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from jsonbus.cli.lib.escaping import clean, fit

#: What turns the direction of the text that follows.
COMMANDING = ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")


@given(st.text(), st.integers(0, 40))
def test_text_takes_exactly_the_cells_it_is_given(text: str, width: int) -> None:
    assert cell_len(fit(clean(text), width)) == width


@given(st.text())
def test_nothing_that_commands_a_terminal_is_left(text: str) -> None:
    for character in clean(text):
        assert unicodedata.category(character) not in ("Cc", "Cs")
        assert unicodedata.bidirectional(character) not in (
            "RLO",
            "LRO",
            "RLE",
            "LRE",
            "RLI",
            "FSI",
        )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain     "),
        ("much too long", "much too …"),
        ("日本語テキスト", "日本語テ …"),
        ("\x1b[2Jx", "\\u001b[2Jx"),
        ("\x1b[2Jxy", "\\u001b[2J…"),
        ("👨\u200d👩", "👨👩      "),
    ],
)
def test_text_is_cut_or_filled_up(text: str, shown: str) -> None:
    assert fit(clean(text), 10) == shown


def test_any_number_of_signs_without_width_takes_no_time() -> None:
    assert cell_len(fit(clean("e" + "\u0301" * 1_000_000), 10)) == 10
