from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from click.core import ParameterSource

from jsonbus.config import BusSettings
from jsonbus.doctor import LEVELS, Asking, EchoListener, Facts, Finding, examine, judge, worst

from .. import signals
from ..command import BusCommand, logger, note
from ..exit_codes import FAILED
from ..lib.output import Output
from ..lib.parameters import Figure, flag, option
from ..lib.values import printable

#: Longer than anybody waits for a diagnosis.
TIMEOUT_S_MAX = 3_600.0

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


@click.command(
    "doctor",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus doctor                               examine this machine and its network
  jsonbus doctor --interface eth0              on this interface
  jsonbus doctor --listen                      on another machine: answer the doctor's echoes
  jsonbus doctor | jq -r '.findings[] | select(.level == "problem") | .remedy'
""",
)
@flag("--listen", "Answer the echoes of other doctors instead, until Ctrl-C.")
@option(
    "-t --timeout SECONDS",
    "Listen and measure this long.",
    3.0,
    type=Figure(min=0, min_open=True, max=TIMEOUT_S_MAX),
)
@flag("--json as_json", "Print JSON on a terminal, too.")
@click.pass_context
def command(
    ctx: click.Context, settings: BusSettings, listen: bool, timeout: float, as_json: bool
) -> None:
    """Find out why nothing arrives, and what to do.

    Checks interfaces, joining, loopback, buffers, drops, foreign traffic and nodes. With `jsonbus
    doctor --listen` on another machine, it also measures the way there and back: loss, round trip,
    repeats, and the largest datagram that passes. Sends some small datagrams, and if somebody
    answers, 120 of up to 65,507 bytes. Exit code 1 if there is a problem.
    """
    output = Output()
    is_readable = output.is_terminal and not as_json
    if listen:
        if ctx.get_parameter_source("timeout") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--listen runs until Ctrl-C: leave out --timeout")
        _listen(settings, output, is_readable)
        return
    if is_readable:
        note(f"listening and measuring for {timeout:g} s …")
    with _quiet_bus():
        facts = examine(settings, timeout)
    findings = judge(facts)
    if is_readable:
        _show(findings)
    else:
        output.write_results([_as_dict(facts, findings)])
    if worst(findings) == "problem":
        raise click.exceptions.Exit(FAILED)


def _listen(settings: BusSettings, output: Output, is_readable: bool) -> None:
    with signals.until_interrupted(), EchoListener(settings) as listener:
        info = listener.info
        names = ", ".join(each.name for each in info.interfaces)
        note(f"{listener.name} answers echoes on {info.group}:{info.port} by {names}; Ctrl-C ends")
        try:
            while output.has_reader():
                _write_askers(output, listener.listen(signals.CHECK_S), is_readable)
                signals.check()
        finally:
            _write_askers(output, listener.end(), is_readable)


def _write_askers(output: Output, askers: Sequence[Asking], is_readable: bool) -> None:
    for each in askers:
        largest = max(each.sizes, default=0)
        if is_readable:
            output.write_line(
                f"answered {each.answered} echoes of {each.address}, the largest of {largest:,} "
                f"bytes; {each.repeated} came more than once"
            )
        else:
            output.write_result(
                {
                    "address": each.address,
                    "answered": each.answered,
                    "repeated": each.repeated,
                    "largest_bytes": largest,
                }
            )
    output.flush()


def _as_dict(facts: Facts, findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "level": worst(findings),
        "findings": [dataclasses.asdict(each) for each in findings],
        "facts": dataclasses.asdict(facts),
    }


def _show(findings: Sequence[Finding]) -> None:
    """Print one row per finding, with the remedy below it."""
    # Imported only for a terminal: it takes as long as all other imports together.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=max(map(len, LEVELS)))
    table.add_column(overflow="fold")
    for each in findings:
        # Text, since rich would take [brackets] in a name for markup.
        table.add_row(Text(each.level, _STYLES[each.level]), Text(printable(each.text)))
        if each.remedy:
            table.add_row("", Text(f"→ {printable(each.remedy)}", "bold"))
    console = Console(highlight=False)
    console.print(table)
    console.print(_summary(findings))


def _summary(findings: Sequence[Finding]) -> str:
    counts = {level: sum(each.level == level for each in findings) for level in LEVELS[:1:-1]}
    told = [f"{count} {level}{'s' * (count > 1)}" for level, count in counts.items() if count]
    return f"{' and '.join(told) or 'nothing wrong'} found"


@contextmanager
def _quiet_bus() -> Iterator[None]:
    """Silence the warnings of the bus without -v: the findings say the same."""
    log = logging.getLogger("jsonbus.bus")
    before = log.level
    if not logger.isEnabledFor(logging.INFO):
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
