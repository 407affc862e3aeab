"""Folders stay small, and the map of each package names all of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools._tree_rules import broken_tree_rules, needless_exceptions

ROOT = Path(__file__).parents[2]


def write(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_the_tree_keeps_its_rules() -> None:
    assert broken_tree_rules(ROOT) == []


def test_every_exception_is_still_needed() -> None:
    assert needless_exceptions(ROOT) == []


def test_a_tree_that_keeps_all_rules_passes(tmp_path: Path) -> None:
    write(tmp_path, "jsonbus/__init__.py", '"""A bus.\n\nnode.py  a node\nwire/    bytes\n"""\n')
    write(tmp_path, "jsonbus/node.py", "def run():\n" + "    pass\n" * 59)
    write(tmp_path, "jsonbus/wire/__init__.py", '"""Bytes, for node.py."""\n')
    write(tmp_path, "jsonbus/static/style.css")
    assert broken_tree_rules(tmp_path, frozenset()) == []


@pytest.mark.parametrize(
    ("name", "text", "offence"),
    [
        ("jsonbus/node.py", "", "jsonbus: map: does not name node.py"),
        ("jsonbus/wire/__init__.py", "", "jsonbus: map: does not name wire/"),
        ("jsonbus/wire/names.py", "", "jsonbus/wire: map: no __init__.py"),
        ("jsonbus/__init__.py", '"""See outbox.py."""', "names outbox.py, which does not exist"),
        ("tools/long.py", "x = 1\n" * 401, "tools/long.py: too long (401 lines, at most 400)"),
        ("tools/a.py", "def f():\n" + "    pass\n" * 60, "a.py: f too long (61 lines, at most 60)"),
        (
            "tools/b.py",
            "class B:\n    def __init__(self, a, b, c, d, *, e, f, g, h, i): ...",
            "tools/b.py: B.__init__ has too many parameters (9, at most 8)",
        ),
    ],
)
def test_what_breaks_a_rule_is_found(tmp_path: Path, name: str, text: str, offence: str) -> None:
    write(tmp_path, "jsonbus/__init__.py", '"""A bus."""\n')
    if name.startswith("tools/"):
        write(tmp_path, "tools/__init__.py", f'"""Tools: {name.removeprefix("tools/")}."""\n')
    write(tmp_path, name, text)
    (found,) = broken_tree_rules(tmp_path, frozenset())
    assert offence in found


def test_a_full_folder_is_found_in_tests_as_well(tmp_path: Path) -> None:
    for number in range(21):
        write(tmp_path, f"tests/core/test_{number}.py")
    assert broken_tree_rules(tmp_path, frozenset()) == [
        "tests/core: too many files (21, at most 20)"
    ]


def test_a_docstring_does_not_count_as_lines_of_its_function(tmp_path: Path) -> None:
    write(tmp_path, "tools/__init__.py", '"""Tools: a.py."""\n')
    write(tmp_path, "tools/a.py", 'def f():\n    """Do.' + "\n    More." * 70 + '\n    """\n')
    assert broken_tree_rules(tmp_path, frozenset()) == []
