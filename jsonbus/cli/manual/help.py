from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from ..lib.parameters import flag
from .pages import BUS, all_pages, man_page, page_of


def _complete(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    words = [*root.command.list_commands(root), BUS]
    return [CompletionItem(each) for each in words if each.startswith(typed)]


@click.command(
    "help",
    epilog="""\b
Examples:
  jsonbus help pub                             the same as jsonbus pub --help
  jsonbus help channel open
  jsonbus help bus                             the options of all commands that join the bus
  jsonbus help --all | less
  jsonbus help --man > jsonbus.1; man ./jsonbus.1
""",
)
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete)
@flag("--all is_all", "Print the help of all commands, as one page.")
@flag("--man is_man", "Print the same as a man page.")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], is_all: bool, is_man: bool) -> None:
    """Explain a command, all commands, or the options of the bus.

    Without COMMAND it prints what `jsonbus --help` prints.
    """
    if is_all + is_man + bool(words) > 1:
        raise click.UsageError("give a COMMAND, --all or --man: one of them")
    root = ctx.find_root()
    if is_man:
        click.echo(man_page(root))
    elif is_all:
        for title, text in all_pages(root):
            click.echo(f"{title}\n{'=' * len(title)}\n\n{text}\n")
    else:
        click.echo(page_of(root, words))
