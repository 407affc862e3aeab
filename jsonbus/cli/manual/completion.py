from __future__ import annotations

import os
from pathlib import PurePath

import click

#: Shell -> the file that it reads, and what to add there.
SHELLS = {
    "bash": ("~/.bashrc", 'eval "$(_JSONBUS_COMPLETE=bash_source jsonbus)"'),
    "zsh": ("~/.zshrc, below compinit", 'eval "$(_JSONBUS_COMPLETE=zsh_source jsonbus)"'),
    "fish": (
        "~/.config/fish/completions/jsonbus.fish",
        "_JSONBUS_COMPLETE=fish_source jsonbus | source",
    ),
}


@click.command(
    "completion",
    epilog="""\b
Examples:
  jsonbus completion
  jsonbus completion bash >> ~/.bashrc
  jsonbus completion fish > ~/.config/fish/completions/jsonbus.fish
""",
)
@click.argument("shell", required=False, type=click.Choice(list(SHELLS)), metavar="[SHELL]")
def command(shell: str | None) -> None:
    """Print how to complete commands and options in your shell.

    Prints the line to add, and as a comment the file to add it to. SHELL is bash (4.4 or later),
    zsh or fish; without it, the one that the variable SHELL names.
    """
    shell = shell or PurePath(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        what = f"{shell} is none of them" if shell else "the variable SHELL is empty"
        raise click.UsageError(
            f"there is completion for {', '.join(SHELLS)}, but {what}: jsonbus completion bash"
        )
    file, line = SHELLS[shell]
    click.echo(f"# completion of jsonbus, for {file}:\n{line}")
