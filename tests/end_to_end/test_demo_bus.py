"""`jsonbus demo --bus` as people run it; whatever happens, none of its processes stays behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import wait_until

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "jsonbus", "demo", "--bus"]

#: Far more than it takes, also on a machine that is slow and busy.
TIMEOUT_S = 300


def pids_in(text: str) -> dict[str, int]:
    """The processes that the demo told of."""
    return {name: int(pid) for name, pid in re.findall(r"(\w+) \(pid (\d+)\)", text)}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # Whoever adopts an orphan may leave it unburied.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return Path("/proc").exists() is False  # no /proc to ask, but the process is there


def assert_all_end(pids: dict[str, int]) -> None:
    assert pids
    assert wait_until(lambda: not any(map(is_running, pids.values())), timeout_s=60)


class RunningDemo:
    """A demo in a process of its own, and what it has written so far."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def wait_for(self, text: str) -> None:
        assert wait_until(lambda: text in self.text, TIMEOUT_S), self.text

    def wait_for_end(self) -> int:
        code = self.process.wait(TIMEOUT_S)
        self._reader.join()
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def running_demo(*options: str) -> Iterator[RunningDemo]:
    demo = RunningDemo(*options)
    try:
        yield demo
    finally:
        demo.close()


def test_all_three_modes_end_by_themselves_with_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    # The settings of a user's own bus are not the demo's, be they right or wrong.
    monkeypatch.setenv("JSONBUS_PORT", "2416")
    monkeypatch.setenv("JSONBUS_TTL", "many")
    monkeypatch.setenv("JSONBUS_MASTER", "1")
    result = subprocess.run(
        [*COMMAND, "--seconds", "1"], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert_all_end(pids_in(result.stdout))
    ports = re.findall(r"mode \w+, 239\.255\.24\.16:(\d+)", result.stdout)
    assert len(ports) == 3 and "2416" not in ports
    rows = {
        mode: [int(each.replace(",", "")) for each in figures.split()]
        for mode, figures in re.findall(
            r"^(basic|master|delayed)((?: +[\d,]+){7})", result.stdout, re.MULTILINE
        )
    }
    assert list(rows) == ["basic", "master", "delayed"]
    for published, sent, suppressed, delivered, *_ in rows.values():
        assert published == sent + suppressed
        assert delivered > 0
    assert rows["basic"][2] == 0
    assert rows["master"][2] > 0 and rows["delayed"][2] > 0


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_its_processes_and_sums_up(signal_number: int) -> None:
    with running_demo("--forever", "--seconds", "1") as demo:
        # Twice: with --forever the subscriber comes again.
        assert wait_until(lambda: demo.text.count("first value") >= 2, TIMEOUT_S)
        demo.process.send_signal(signal_number)
        assert demo.wait_for_end() == 0
        assert "mode delayed" in demo.text and "mode basic" not in demo.text
        assert re.search(r"^delayed ", demo.text, re.MULTILINE)
        assert_all_end(pids_in(demo.text))


def test_a_demo_interrupted_while_its_processes_start_ends_them() -> None:
    with running_demo("--mode", "master") as demo:
        demo.wait_for(" start\n")
        demo.process.send_signal(signal.SIGINT)
        assert demo.wait_for_end() == 130
        assert_all_end(pids_in(demo.text))


def test_the_processes_of_a_killed_demo_end_by_themselves() -> None:
    with running_demo("--forever") as demo:
        demo.wait_for("sensors publish")
        pids = pids_in(demo.text)
        demo.process.kill()
        demo.wait_for_end()
        assert_all_end(pids)


def test_a_demo_whose_sensor_dies_fails_and_ends_the_others() -> None:
    with running_demo("--forever") as demo:
        demo.wait_for("sensors publish")
        pids = pids_in(demo.text)
        os.kill(pids["garage"], signal.SIGKILL)
        assert demo.wait_for_end() == 1
        assert demo.process.stderr is not None
        assert "garage failed" in demo.process.stderr.read()
        assert_all_end(pids)


def test_a_demo_whose_reader_has_gone_ends() -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen([*COMMAND, "--forever"], cwd=ROOT, stdout=write_end)
    os.close(write_end)
    try:
        text = ""
        while "publish to" not in text:
            text += os.read(read_end, 1024).decode()
        os.close(read_end)
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
    assert_all_end(pids_in(text))


def test_on_a_terminal_a_table_changes_in_place() -> None:
    terminal, far_end = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--seconds", "1", "--mode", "delayed"],
        cwd=ROOT,
        stdin=far_end,
        stdout=far_end,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(far_end)
    written = b""
    try:
        while True:
            try:
                chunk = os.read(terminal, 65_536)
            except OSError:
                break  # Linux's way of saying that the far end has been closed
            if not chunk:
                break
            written += chunk
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    text = written.decode()
    assert "\x1b[1A" in text, "the cursor goes up to change what is there"
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") > 0, "the cursor is shown again"
    plain = " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).split())
    assert "kitchen/temp" in plain and "display has said goodbye" in plain
    assert "woke a node for nothing" in plain
