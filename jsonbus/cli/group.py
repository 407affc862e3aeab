"""The list of commands. The module of a command is imported when the command is run.

The short texts of the table are shown by `jsonbus --help`, which therefore imports no command. For
all commands alike, an error of the bus becomes one line on standard error and an exit code.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

import jsonbus
from jsonbus.errors import JsonBusError, LocalError

from . import signals
from .command import BusCommand
from .exit_codes import INTERRUPTED, TIMED_OUT, WRONG_USAGE

#: Name -> short help. The command is `command` in the module of that name.
COMMANDS = {
    "pub": "Publish a value, or the lines of standard input.",
    "sub": "Print the messages of topics.",
    "node": "Stay on the bus and report who joins, leaves and expires.",
    "nodes": "Show who is on the bus.",
    "topics": "Show what is subscribed to, and by whom.",
    "top": "Show what flows on the bus, live: topics, nodes, rates, losses.",
    "hz": "Measure how often messages come, and how regularly.",
    "bw": "Measure how much data flows, and how large values are.",
    "explain": "Explain why a value would be sent, held or not sent.",
    "request": "Ask a node that serves a topic, and print its reply.",
    "serve": "Answer requests.",
    "channel": "Connect standard input and output to another node.",
    "ping": "Measure the round trip to every node.",
    "record": "Record messages into a file: JSON lines or MCAP.",
    "replay": "Publish recorded messages, at their times.",
    "keygen": "Make the keys of a sealed bus, and change them.",
    "gateway": "Let HTTP and TCP clients use the bus, with durable webhooks.",
    "bridge": "Record the bus, and serve it to Spark.",
    "doctor": "Find out why nothing arrives, and what to do.",
    "demo": "Watch sensors, bus, bridge and Spark at work on this machine.",
    "completion": "Print how to complete commands and options in your shell.",
    "help": "Explain a command, all commands, or the options of the bus.",
}

#: The folders of commands that are not in commands/.
FOLDERS = {"completion": "manual", "help": "manual", "keygen": "keys"}


def load_command(name: str) -> click.Command:
    """Import the module of a command and return the command."""
    folder = FOLDERS.get(name, "commands")
    command = importlib.import_module(f"{__package__}.{folder}.{name}").command
    assert isinstance(command, click.Command)
    return command


def no_such_command(ctx: click.Context, name: str, known: Iterable[str]) -> click.UsageError:
    """Return an error that suggests what was meant: `publish` and `pbu` are close to `pub`."""
    known = list(known)
    meant = [each for each in known if name.startswith(each) or each.startswith(name)]
    meant = meant or difflib.get_close_matches(name, known, 2)
    hint = f" Did you mean {' or '.join(meant)}?" if meant and name else ""
    return click.UsageError(f"No such command {name!r}.{hint}", ctx)


class CommandGroup(click.Group):
    """Imports a command when it is needed; turns errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            option = error.option_name
            if option in (word for each in BusCommand("").params for word in each.opts):
                ctx.fail(f"{option} belongs behind the command, as in jsonbus sub {option} …")
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_option = args[0].startswith("-")
        if not (is_option or ctx.resilient_parsing or self.get_command(ctx, args[0])):
            raise no_such_command(ctx, args[0], [*self.list_commands(ctx), "--version"])
        name, command, rest = super().resolve_command(ctx, args)
        # These have more to import and do it themselves; so do the commands of a group.
        if not isinstance(command, BusCommand | click.Group):
            signals.raise_interrupt()
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _errors_as_exit_codes():  # this is where --help is printed
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        with _errors_as_exit_codes():
            return super().invoke(ctx)


class _WrongUsage(click.ClickException):
    exit_code = WRONG_USAGE


class _TimedOut(click.ClickException):
    exit_code = TIMED_OUT


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise click.exceptions.Exit(0) from None  # the reader has read enough
    except LocalError as error:
        raise _WrongUsage(str(error)) from error
    except JsonBusError as error:
        kind = _TimedOut if isinstance(error, TimeoutError) else click.ClickException
        raise kind(str(error)) from error


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Two terminals are enough to try it:
  jsonbus sub 'sensors/**'
  jsonbus pub sensors/kitchen '{"temp": 21.5}'

\b
Results go to standard output: readable on a terminal, one JSON object a line in a pipe.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 timed out, 130 interrupted before
it was done. Ctrl-C is the usual end of a command that has no other: 0.

\b
  jsonbus help COMMAND     explains it; so does jsonbus COMMAND --help
  jsonbus help --all       all commands on one page
  jsonbus completion       how your shell completes commands and options
""",
)
@click.version_option(jsonbus.__version__, prog_name="jsonbus", message="%(prog)s %(version)s")
def cli() -> None:
    """Publish and subscribe to JSON values on the local network, without a broker."""
