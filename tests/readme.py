"""The examples of the READMEs, run as people would: every block in a terminal, in real processes.

Blocks below one heading belong together: they run in order, on one bus of their own. What kind of
fence a block has says how it is run:

    console   lines after "$ " are given to bash, the others are what it must show
    python    a program
    text      what the programs so far must have printed
    json      datagrams, one a line
    sh        what sets up the machine or takes long: not run here

A block that stays (a subscriber) keeps running until its section is over; the next block begins
when the others know of it. Ids, names, numbers and times that differ from run to run are left out
of the comparison. A line "…" stands for any lines, or none.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jsonbus
from tests.helpers import PACKAGES, wait_until

ROOT = Path(__file__).parents[1]

#: Every page that people read, by its path.
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "jsonbus/README.md",
        "jsonbus/cli/README.md",
        "jsonbus/core/README.md",
        "jsonbus/gateway/README.md",
        "jsonbus/sealed/README.md",
        "spark_bridge/README.md",
        "tools/README.md",
    )
}

#: Far more than anything here takes, also on a machine that is slow and busy.
TIMEOUT_S = 120.0

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STAYS = re.compile(
    r"jsonbus (sub|serve|node|bridge) (?!.*(--count|--once))|for message in|while True"
    r"|--listen|--stay|jsonbus gateway|serve_forever|channel listen"
)
_WANTS_NOTHING = re.compile(r"jsonbus doctor|--stay|jsonbus gateway|serve_forever|channel listen")
_PROGRAM = re.compile(rf"\b({'|'.join(PACKAGES)}) ")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

#: A line that stands for what differs from machine to machine.
ANY_LINES = "…"

#: What differs from run to run, and what stands for it.
_VARIABLE = (
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d{3}\b"), "TIME"),
    (re.compile(r"\b\d+\.\d{3,}\b"), "NUMBER"),
    # The same in JSON, where a number that ends in zeros has fewer digits.
    (re.compile(r'("(?:at|rate|\w+_rate|\w+_s|\w+_at)":)\d[\d.e-]*'), r"\1NUMBER"),
    (re.compile(r"\b[a-z2-7]{16}\b"), "ID"),
    (re.compile(r"\b[A-Za-z][\w.-]*-\d+\b"), "NAME"),
)


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    text: str

    @property
    def stays(self) -> bool:
        return _STAYS.search(self.text) is not None

    @property
    def wants_nothing(self) -> bool:
        """Whether it subscribes to nothing, by which others could know that it is there."""
        return _WANTS_NOTHING.search(self.text) is not None

    @property
    def commands(self) -> list[str]:
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]

    @property
    def shown(self) -> str:
        return "\n".join(line for line in self.text.splitlines() if not line.startswith("$ "))


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    text: str
    blocks: list[Block]

    @property
    def is_runnable(self) -> bool:
        return any(block.kind in ("console", "python") for block in self.blocks)

    @property
    def programs(self) -> set[str]:
        """What has to be installed for it."""
        commands = [each for block in self.blocks for each in block.commands]
        return {found for each in commands for found in _PROGRAM.findall(each)}

    @property
    def names_the_default_bus(self) -> bool:
        """Whether a default port is written into a program: it needs a network of its own."""
        return any(
            re.search("2416|7710|7676|7677", block.text)
            for block in self.blocks
            if block.kind in ("console", "python")
        )


def read_sections(text: str) -> list[Section]:
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return [
        Section(title, body, [Block(*found) for found in _FENCE.findall(body)])
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    ]


def normalize(text: str) -> list[str]:
    """Return the lines with placeholders for everything that differs from run to run."""
    for pattern, name in _VARIABLE:
        text = pattern.sub(name, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def assert_shows(lines: list[str], expected: list[str]) -> None:
    """Assert that the lines are those expected, in which "…" stands for any lines."""
    if ANY_LINES not in expected:
        assert lines == expected  # pytest shows what differs
    pattern = "".join(
        r"(?:.*\n)*" if each == ANY_LINES else re.escape(each) + r"\n" for each in expected
    )
    assert re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)), (lines, expected)


class Terminal:
    """A process in a terminal of its own, and what it has shown so far."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._screen, far_end = pty.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=far_end,
            stdout=far_end,
            stderr=far_end,
            start_new_session=True,
        )
        os.close(far_end)
        self._shown = b""
        self._reader = threading.Thread(target=self._read, name="test-terminal")
        self._reader.start()

    @property
    def lines(self) -> list[str]:
        return normalize(_ESCAPES.sub("", self._shown.decode(errors="replace")))

    def wait(self) -> int:
        """Wait for its end and return the exit code; then `lines` is complete."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def close(self) -> None:
        """End it: by Ctrl-C, or by SIGKILL if it does not react."""
        for number in (signal.SIGINT, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)  # it leads a group of its own
            except ProcessLookupError:
                pass
            try:
                self.process.wait(10.0)
            except subprocess.TimeoutExpired:
                continue
        self._reader.join()
        os.close(self._screen)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._screen, 65_536)
            except OSError:
                return  # how Linux tells that the far end has been closed
            if not chunk:
                return
            self._shown += chunk


@dataclass(slots=True)
class Run:
    """One run of one section, in `folder`; port None is the default one."""

    folder: Path
    port: int | None
    terminals: list[Terminal] = field(default_factory=list)
    #: Of programs, in order; `text` blocks are compared with them.
    programs: list[Terminal] = field(default_factory=list)
    #: Consoles that stay, and what they must have shown in the end.
    staying: list[tuple[Terminal, str]] = field(default_factory=list)
    #: Programs that end well with Ctrl-C.
    ending: list[Terminal] = field(default_factory=list)
    observer: jsonbus.Bus | None = None

    def run(self, section: Section) -> None:
        """Raises AssertionError if something shows what the README does not."""
        try:
            for number, block in enumerate(section.blocks):
                self._run_block(block, number)
            for terminal, shown in self.staying:
                _expect(lambda terminal=terminal: terminal.lines, shown)  # type: ignore[misc]
            for terminal in self.ending:
                terminal.process.send_signal(signal.SIGINT)
                assert terminal.wait() == 0, terminal.lines
                assert not any("Traceback" in line for line in terminal.lines), terminal.lines
        finally:
            if self.observer is not None:
                self.observer.close()
            for terminal in self.terminals:
                terminal.close()

    def _run_block(self, block: Block, number: int) -> None:
        if block.kind == "text":
            programs = tuple(self.programs)
            self.programs.clear()
            _expect(lambda: [line for each in programs for line in each.lines], block.text)
        if block.kind not in ("console", "python"):
            return
        if block.stays and not block.wants_nothing and self.observer is None:
            self.observer = jsonbus.Bus(
                name="observer", interface="lo", **({"port": self.port} if self.port else {})
            )
        terminal = self._start(block, number)
        if block.kind == "python":
            self.programs.append(terminal)
        if block.stays:
            if block.kind == "console":
                self.staying.append((terminal, block.shown))
            elif "KeyboardInterrupt" in block.text:
                self.ending.append(terminal)
            if block.wants_nothing:
                assert wait_until(lambda: terminal.lines, TIMEOUT_S)
            else:
                self._wait_for_nodes(terminal)
            return
        assert terminal.wait() == 0, terminal.lines
        if block.kind == "console":
            assert_shows(terminal.lines, normalize(block.shown))

    def _start(self, block: Block, number: int) -> Terminal:
        if block.kind == "python":
            script = self.folder / f"example_{number}.py"
            script.write_text(block.text, encoding="utf-8")
            command = [sys.executable, str(script)]
        else:
            # In the end, wait for what was sent to the background.
            command = ["bash", "-c", "\n".join([*block.commands, "wait"])]
        self.terminals.append(Terminal(command, self._environment(), self.folder))
        return self.terminals[-1]

    def _wait_for_nodes(self, newest: Terminal) -> None:
        """Wait until the nodes that stay are known, so that what follows reaches them."""
        observer, count = self.observer, sum(1 for each in self.terminals if _is_alive(each))
        assert observer is not None

        def are_known() -> bool:
            wanting = [each for each in observer.nodes() if each.patterns]
            return len(wanting) >= count or not _is_alive(newest)

        assert wait_until(are_known, TIMEOUT_S), newest.lines
        assert _is_alive(newest), newest.lines

    def _environment(self) -> dict[str, str]:
        commands = self.folder / "bin"
        if not commands.exists():
            commands.mkdir()
            for name, call in (("jsonbus", "-m jsonbus"), ("python3", "")):
                shim = commands / name
                shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {call} "$@"\n')
                shim.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm",
            "COLUMNS": "200",
            "JSONBUS_INTERFACE": "lo",
        }
        if self.port is not None:
            environment["JSONBUS_PORT"] = str(self.port)
        return environment


def _is_alive(terminal: Terminal) -> bool:
    return terminal.process.poll() is None


def _expect(lines: Callable[[], list[str]], shown: str) -> None:
    expected = normalize(shown)
    wait_until(lambda: len(lines()) >= len(expected) - expected.count(ANY_LINES), TIMEOUT_S)
    assert_shows(lines(), expected)
