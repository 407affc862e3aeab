from __future__ import annotations

import os
import signal
import subprocess
import threading

import click

import jsonbus
from jsonbus.config import BusSettings

from .. import signals
from ..command import BusCommand, logger, note
from ..lib.names import TOPIC
from ..lib.parameters import Figure, option
from ..lib.values import parse_argument, parse_json, shorten, to_json


@click.command(
    "serve",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus serve echo                           reply with the value of the request
  jsonbus serve version --value '"1.4.2"'      always reply with the same value
  jsonbus serve add --exec "jq '.a + .b'"      run a command for every request
  jsonbus serve time --exec 'date +%s'
""",
)
@click.argument("topic", type=TOPIC)
@option("--value JSON", "Reply with this value.")
@option(
    "--exec COMMAND shell_command",
    "Reply with what this shell command prints; it reads the value as JSON on its input.",
)
@option(
    "-t --timeout SECONDS",
    "End a command of --exec that takes longer; the request then fails.",
    10.0,
    type=Figure(min=0, min_open=True),
)
def command(
    settings: BusSettings,
    topic: str,
    value: str | None,
    shell_command: str | None,
    timeout: float,
) -> None:
    """Answer requests.

    Without --value and --exec the reply is the value of the request. With --exec the reply is what
    the command prints: as JSON if it is JSON, else as text. If the command fails, the request fails
    with the last line of the command's standard error. Runs until Ctrl-C.
    """
    if value is not None and shell_command is not None:
        raise click.UsageError("--value and --exec exclude each other: leave out one")
    fixed = None if value is None else parse_argument(value, name="--value")
    shell = None if shell_command is None else Shell(shell_command, timeout)

    def answer(message: jsonbus.Message) -> object:
        logger.debug("%r asks %s", message.name, shorten(to_json(message.value)))
        if shell is not None:
            return shell.answer(message.value)
        return message.value if value is None else fixed

    with signals.until_interrupted(), jsonbus.Bus(**settings) as bus:
        try:
            bus.serve(topic, answer)
            note(f"{bus.name} serves {topic}; Ctrl-C ends")
            signals.stay()
        finally:
            if shell is not None:
                shell.close()


class CommandFailed(Exception):
    """A command of --exec gave no reply; the text is for the requester."""


class Shell:
    """Runs a shell command for each request; safe from several workers at once."""

    def __init__(self, shell_command: str, timeout_s: float) -> None:
        self._command = shell_command
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def answer(self, value: object) -> object:
        """Return the value that the command prints. Raises CommandFailed."""
        # Its own session, so that everything the shell started can be ended with it.
        process = subprocess.Popen(
            self._command,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
        try:
            printed, complaints = process.communicate(
                to_json(value).encode() + b"\n", self._timeout_s
            )
        except subprocess.TimeoutExpired:
            _end(process)
            process.communicate()
            raise CommandFailed(f"the command took longer than {self._timeout_s:g} s") from None
        finally:
            with self._lock:
                self._running.discard(process)
        if process.returncode != 0:
            lines = complaints.decode(errors="replace").strip().splitlines()
            reason = f": {lines[-1]}" if lines else ""
            raise CommandFailed(f"the command ended with {process.returncode}{reason}")
        text = printed.decode(errors="replace").strip()
        try:
            return parse_json(text)
        except ValueError:
            return text

    def close(self) -> None:
        """End the commands that run."""
        with self._lock:
            for process in self._running:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself
