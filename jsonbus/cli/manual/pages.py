"""The pages of the manual: what `--help` prints, of one command or of all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

import jsonbus

from ..command import write_bus_options
from ..group import no_such_command

#: Stands for a command in `jsonbus help bus`.
BUS = "bus"


def page_of(root: click.Context, words: Sequence[str]) -> str:
    """Return the page of a command, named as people call it. Raises a usage error."""
    if list(words) == [BUS]:
        return _bus_page(root)
    ctx = root
    for word in words:
        group = ctx.command
        known = group.list_commands(ctx) if isinstance(group, click.Group) else []
        if word not in known:
            raise no_such_command(ctx, word, [*known, BUS] if len(words) == 1 else known)
        ctx = _below(ctx, word)
    return ctx.get_help()


def all_pages(root: click.Context) -> Iterator[tuple[str, str]]:
    """Yield title and text of each page; that of the bus comes last."""
    yield root.command_path, root.get_help()
    yield from _pages_below(root)
    yield f"{root.command_path} help {BUS}", _bus_page(root)


def man_page(root: click.Context) -> str:
    """Return all pages as one for `man`."""
    assert root.command.help is not None
    parts = [
        f'.TH JSONBUS 1 "" "jsonbus {jsonbus.__version__}"',
        ".SH NAME",
        _as_roff(f"jsonbus - {root.command.help.rstrip('.')}"),
    ]
    for title, text in all_pages(root):
        parts += [f".SH {_as_roff(title)}", ".nf", _as_roff(text), ".fi"]
    return "\n".join(parts)


def _pages_below(ctx: click.Context) -> Iterator[tuple[str, str]]:
    assert isinstance(ctx.command, click.Group)
    for name in ctx.command.list_commands(ctx):
        inner = _below(ctx, name)
        yield inner.command_path, inner.get_help()
        if isinstance(inner.command, click.Group):
            yield from _pages_below(inner)


def _below(ctx: click.Context, name: str) -> click.Context:
    assert isinstance(ctx.command, click.Group)
    command = ctx.command.get_command(ctx, name)
    assert command is not None
    return click.Context(command, ctx, name)


def _bus_page(root: click.Context) -> str:
    formatter = root.make_formatter()
    formatter.write_text(
        "Every command that joins the bus takes these options. Each can also be an environment "
        "variable, such as JSONBUS_INTERFACE; an option beats its variable."
    )
    write_bus_options(root, formatter)
    return formatter.getvalue().rstrip("\n")


def _as_roff(text: str) -> str:
    """Return the text without what roff would take for commands."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.M)
