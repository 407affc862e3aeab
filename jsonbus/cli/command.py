"""The base of commands that join the bus: the options that all of them have, and their log.

An option that is not given is left to jsonbus.config, which reads the environment and has the
defaults. So each setting is read, checked and explained in one place.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from collections.abc import Iterable
from typing import Any, cast

import click

import jsonbus
from jsonbus.config import MODES, BusSettings

from . import signals
from .lib.names import Name
from .lib.parameters import Whole

logger = logging.getLogger("jsonbus.cli")


class SharedOption(click.Option):
    """An option of every command that joins the bus; `jsonbus help bus` explains it."""


class BusCommand(click.Command):
    """A command whose function gets `settings`, the keywords to open a bus with."""

    #: The level of the log without -v and -q.
    level = logging.WARNING

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for options in BUS_OPTIONS.values():
            self.params += map(_make, options)

    def invoke(self, ctx: click.Context) -> Any:
        shared = {
            param.name: ctx.params.pop(param.name)
            for param in self.params
            if isinstance(param, SharedOption) and param.name
        }
        _start_log(ctx, self.level - 10 * (shared.pop("verbose") - 2 * shared.pop("quiet")))
        # A flag that was not given is False, a repeatable option (); 0 is a value.
        given = {
            key: value
            for key, value in shared.items()
            if value is not None and value is not False and value != ()
        }
        ctx.params["settings"] = cast(BusSettings, given)
        _ = jsonbus.Bus  # imports everything while a signal may still end the process at once
        signals.raise_interrupt()
        self._hint(ctx)
        return super().invoke(ctx)

    def _hint(self, ctx: click.Context) -> None:
        """Say so if a topic or pattern looks like one of another system."""
        for param in self.params:
            if isinstance(param.type, Name) and (given := ctx.params[param.name or ""]):
                for each in (given,) if isinstance(given, str) else given:
                    if hint := param.type.hint(each):
                        note(hint)
                        self._say_once(ctx)

    def _say_once(self, ctx: click.Context) -> None:
        """Keep the bus from logging the same again."""
        log = logging.getLogger("jsonbus.bus.program.patterns")
        log.setLevel(logging.ERROR)
        ctx.call_on_close(lambda: log.setLevel(logging.NOTSET))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Explain the command's own options, and only name those that all commands have."""
        own = (
            param.get_help_record(ctx)
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and not isinstance(param, SharedOption)
        )
        with formatter.section("Options"):
            formatter.write_dl([record for record in own if record is not None])
        named = {
            purpose: ", ".join(names for names, _, _ in options)
            for purpose, options in BUS_OPTIONS.items()
        }
        with formatter.section("Bus options, explained by jsonbus help bus"):
            formatter.write_dl(list(named.items()))


class ValueCommand(BusCommand):
    """A command whose last argument is a JSON value, possibly a negative number."""

    allow_extra_args = True  # refused below, with the likely cause

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, self._put_negative_number_last(args))
        if rest and not ctx.resilient_parsing:
            ctx.fail(f"VALUE is one argument: put quotes around it; {rest[0]!r} is too much")
        return rest

    def _put_negative_number_last(self, args: list[str]) -> list[str]:
        """Turn `x -5 --count 2` into `x --count 2 -- -5`; click would take -5 for an option."""
        expects_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not (param.is_flag or param.count)
            for name in param.opts
        }
        previous = ""
        for index, arg in enumerate(args):
            if arg == "--":
                break
            if re.match(r"-(\.?\d|Infinity$)", arg) and previous not in expects_value:
                return [*args[:index], *args[index + 1 :], "--", arg]
            previous = arg
        return args


class NodeCommand(BusCommand):
    """A command that stays: it logs who joins and leaves even without -v."""

    level = logging.INFO


def note(text: str) -> None:
    """Print a line for people on standard error, unless -q was given."""
    if is_quiet():
        return
    try:
        click.echo(text, err=True)
    except OSError:
        pass  # nobody reads it, which is no reason to fail


def is_quiet() -> bool:
    """Return True if -q was given: results and errors only."""
    return not logger.isEnabledFor(logging.WARNING)


def need_modules(part: str, modules: Iterable[str]) -> None:
    """Raise an error that says how to install this part of jsonbus if a module is missing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise click.ClickException(
                f"the {part} needs {module}: python3 -m pip install 'jsonbus[{part}]'"
            )


def wait_until_sure(bus: jsonbus.Bus) -> None:
    """Wait until the bus knows what the other nodes want.

    That takes a round trip, or most of a second if no other node is there. A bus that cannot become
    sure at all (mode master without a master) is used as it is after 2 seconds.
    """
    bus.wait_until_sure(timeout=2.0)


def warn_unless_sure(bus: jsonbus.Bus) -> None:
    """Warn that what is shown may be incomplete."""
    if bus.state != "sure":
        note(f"this node is {bus.state}: there may be nodes that it does not know yet")


#: The options of every command that joins the bus, by purpose: names, help, and the rest.
BUS_OPTIONS: dict[str, tuple[tuple[str, str, dict[str, Any]], ...]] = {
    "Network": (
        ("--interface", "Network interface, by name or address; may be repeated [auto].",
         {"multiple": True, "metavar": "NAME"}),
        ("--group", "Multicast group [239.255.24.16].", {"metavar": "ADDRESS"}),
        ("--port", "UDP port of the group [2416].", {"type": int}),
        ("--ttl", "Number of routers a datagram may pass, plus one [1].", {"type": int}),
        ("--classic", "Defaults of the first implementation: group 224.1.2.3, TTL 10, no batching.",
         {"is_flag": True}),
    ),
    "Node": (
        ("--name", "Name of this node [host and process].", {}),
        ("--reliable", "Repair lost messages and keep their order, for what this node publishes.",
         {"is_flag": True}),
        ("--rate-limit", "Send at most this many bytes per second (k, M, G) [unlimited].",
         {"metavar": "RATE"}),
        ("--key-file", "Keys of a sealed bus, made by jsonbus keygen [none: open to all].",
         {"metavar": "FILE"}),
    ),
    "Sharing": (
        ("--mode", "How nodes share their subscription lists [delayed].",
         {"type": click.Choice(MODES)}),
        ("--master", "Answer late joiners; implies mode master.", {"is_flag": True}),
        ("--subs-share-delay",
         "Answer late joiners after this fixed delay; implies mode delayed [random].",
         {"type": float, "metavar": "MS"}),
    ),
    "Log": (
        ("-v --verbose", "Log who joins and leaves; twice: also state changes and tracebacks.",
         {"count": True, "type": Whole(min=0), "envvar": "JSONBUS_VERBOSE"}),
        ("-q --quiet", "Print results and errors only.",
         {"count": True, "type": Whole(min=0), "envvar": "JSONBUS_QUIET"}),
    ),
}  # fmt: skip


def write_bus_options(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Explain each of them, for `jsonbus help bus`."""
    for purpose, options in BUS_OPTIONS.items():
        records = (_make(each).get_help_record(ctx) for each in options)
        with formatter.section(purpose):
            formatter.write_dl([record for record in records if record is not None])


def _make(option: tuple[str, str, dict[str, Any]]) -> SharedOption:
    names, help, more = option
    return SharedOption(names.split(), help=help, **more)


def _start_log(ctx: click.Context, level: int) -> None:
    """Log to standard error while the command runs."""
    log = logging.getLogger("jsonbus")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LogFormatter(has_tracebacks=level <= logging.DEBUG))
    # A log that cannot be written (standard error closed) is not worth a traceback.
    logging.raiseExceptions = False
    before = log.level
    log.setLevel(max(logging.DEBUG, min(level, logging.ERROR)))
    log.addHandler(handler)

    def stop() -> None:
        log.removeHandler(handler)
        log.setLevel(before)

    ctx.call_on_close(stop)


class _LogFormatter(logging.Formatter):
    """`12:34:56.789 text`, with the level if it is a warning or worse; tracebacks only with -vv."""

    default_time_format = "%H:%M:%S"
    default_msec_format = "%s.%03d"

    def __init__(self, *, has_tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(prefix)s%(message)s")
        self._has_tracebacks = has_tracebacks

    def format(self, record: logging.LogRecord) -> str:
        is_plain = record.levelno <= logging.INFO
        record.prefix = "" if is_plain else f"{record.levelname.lower()}: "
        return super().format(record)

    def formatException(self, ei: Any) -> str:
        if self._has_tracebacks:
            return super().formatException(ei)
        return f"    {ei[0].__name__}: {ei[1]}"
