"""Commands in this process, and what they print."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from jsonbus.cli.group import cli

Run = Callable[..., Result]


def make_runner() -> CliRunner:
    """One that keeps standard output and error apart; click 8.1 must be told so, others cannot."""
    is_told = "mix_stderr" in inspect.signature(CliRunner).parameters
    options: dict[str, Any] = {"mix_stderr": False} if is_told else {}
    return CliRunner(**options)


def run_command(*args: str, input: str | bytes | None = None) -> Result:
    """Run a command to its end; standard output is a pipe to it, not a terminal."""
    result = make_runner().invoke(cli, args, prog_name="jsonbus", input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do something in a thread beside the block, which ends when both have; passes errors on."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]
