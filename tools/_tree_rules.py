"""The size of folders, files, functions and constructors, and maps that name every file.

A folder is a room: it has at most 20 Python files, and the docstring of its `__init__.py` is its
map. The map names every file of the folder (`name.py`) and every package in it (`name/`), and no
file that is not there. Only folders that a reader of the product or the tools opens need a map;
tests mirror the packages.

The length of a function is counted without its docstring: a long description of a public method
is no reason to split it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("jsonbus", "spark_bridge", "tools", "tests")
MAPPED = ("jsonbus", "spark_bridge", "tools")
#: Programs for other machines, which import nothing of each other.
UNMAPPED = "tools/examples"
SOURCES = ("jsonbus", "spark_bridge", "tools")

FILES_MAX = 20
LINES_MAX = 400
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 8
README_LINES_MAX = 260

#: What breaks a rule and may do so until it is changed. An entry that is not needed any more
#: fails the test: the list only shrinks.
EXCEPTIONS: frozenset[str] = frozenset()

_PYTHON_FILE = re.compile(r"(?<![\w/*])((?:\w+/)*\w+\.py)\b")


def broken_tree_rules(root: Path, exceptions: frozenset[str] = EXCEPTIONS) -> list[str]:
    """Return one line per broken rule that is no exception: `path: what, figures`."""
    return [
        f"{path}: {what}{reason}"
        for path, what, reason in _offences(root)
        if f"{path}: {what}" not in exceptions
    ]


def needless_exceptions(root: Path) -> list[str]:
    """Return the entries of EXCEPTIONS that break no rule any more."""
    return sorted(EXCEPTIONS - {f"{path}: {what}" for path, what, _ in _offences(root)})


def _offences(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield where and what, which together make an entry of EXCEPTIONS, and the figures."""
    readme = root / "README.md"
    if readme.exists() and (count := len(readme.read_text().splitlines())) > README_LINES_MAX:
        yield readme.name, "too long", f" ({count} lines, at most {README_LINES_MAX})"
    for top in FOLDERS:
        for folder in [root / top, *sorted(_folders(root / top))]:
            where = folder.relative_to(root).as_posix()
            files = sorted(folder.glob("*.py"))
            if len(files) > FILES_MAX:
                yield where, "too many files", f" ({len(files)}, at most {FILES_MAX})"
            if top in MAPPED and where != UNMAPPED:
                for problem in _problems_of_map(root, folder, files):
                    yield where, "map", f": {problem}"
            if top in SOURCES:
                for file in files:
                    yield from _offences_of_file(file, file.relative_to(root).as_posix())


def _problems_of_map(root: Path, folder: Path, files: list[Path]) -> Iterator[str]:
    start = folder / "__init__.py"
    if not start.exists():
        if files:
            yield "no __init__.py"
        return
    text = ast.get_docstring(ast.parse(start.read_text(encoding="utf-8"))) or ""
    for file in files:
        if file != start and not re.search(rf"(?<![\w/]){re.escape(file.name)}\b", text):
            yield f"does not name {file.name}"
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists() and f"{inner.name}/" not in text:
            yield f"does not name {inner.name}/"
    for name in sorted(set(_PYTHON_FILE.findall(text))):
        if not any((base / name).exists() for base in (folder, root / "jsonbus", root)):
            yield f"names {name}, which does not exist"


def _offences_of_file(file: Path, where: str) -> Iterator[tuple[str, str, str]]:
    source = file.read_text(encoding="utf-8")
    count = len(source.splitlines())
    if count > LINES_MAX:
        yield where, "too long", f" ({count} lines, at most {LINES_MAX})"
    for name, function in _functions(ast.parse(source), ""):
        length = _length(function)
        if length > FUNCTION_LINES_MAX:
            figures = f" ({length} lines, at most {FUNCTION_LINES_MAX})"
            yield where, f"{name} too long", figures
        if function.name == "__init__":
            given = function.args
            parameters = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
            if parameters > PARAMETERS_MAX:
                figures = f" ({parameters}, at most {PARAMETERS_MAX})"
                yield where, f"{name} has too many parameters", figures


def _functions(
    tree: ast.AST, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{prefix}{node.name}."
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        yield from _functions(node, inner)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines from `def` to the end, without the docstring."""
    assert function.end_lineno is not None
    length = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        text = function.body[0]
        assert text.end_lineno is not None
        length -= text.end_lineno - text.lineno + 1
    return length


def _folders(top: Path) -> Iterator[Path]:
    for each in top.rglob("*"):
        if each.is_dir() and each.name != "__pycache__":
            yield each
