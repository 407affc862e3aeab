"""However a command ends, it ends cleanly: no traceback, the right exit code, a goodbye."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import jsonbus
from tests.end_to_end.processes import Desk, Process


def assert_no_traceback(process: Process) -> None:
    assert not any("Traceback" in line or "Exception" in line for line in process.complaints), (
        process.complaints
    )


@pytest.mark.parametrize(
    ("number", "arguments"),
    [
        (signal.SIGINT, ("sub", "x")),
        (signal.SIGTERM, ("sub", "x")),
        (signal.SIGHUP, ("sub", "x")),
        (signal.SIGINT, ("node", "--sub", "x")),
        (signal.SIGINT, ("serve", "x")),
    ],
)
def test_a_signal_ends_a_command_that_stays(
    desk: Desk, number: int, arguments: tuple[str, ...]
) -> None:
    process = desk.start(*arguments, "--name", "staying")
    desk.wait_for_node("staying")
    process.send_signal(number)
    process.expect_exit(0)
    assert_no_traceback(process)
    desk.wait_until(lambda: not desk.names())


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "--rate", "5", "x", "1"),
        ("hz", "x"),
        ("top",),
        ("channel", "listen", "--keep", "port"),
    ],
)
def test_ctrl_c_right_after_joining_is_the_usual_end(
    desk: Desk, arguments: tuple[str, ...]
) -> None:
    process = desk.start(*arguments, "--name", "staying")
    desk.wait_until(lambda: "staying" in desk.names())
    process.send_signal(signal.SIGINT)
    process.expect_exit(0)
    assert_no_traceback(process)


def test_ctrl_c_ends_a_request_that_is_being_served_by_a_command(desk: Desk) -> None:
    server = desk.start("serve", "--name", "server", "x", "--exec", "sleep 1000")
    desk.wait_for_node("server")
    client = desk.start("request", "--timeout", "600", "x")
    desk.wait_until(lambda: _children(server.pid))
    client.send_signal(signal.SIGINT)
    client.expect_exit(130)
    server.send_signal(signal.SIGINT)
    server.expect_exit(0)
    assert_no_traceback(client)
    assert_no_traceback(server)


def test_ctrl_c_cancels_a_request_that_waits_for_its_handler(desk: Desk) -> None:
    server, ran, may_end = desk.observer, list[object](), threading.Event()

    def serve(message: jsonbus.Message) -> object:
        ran.append(message.value)
        may_end.wait(120)
        return message.value

    service = server.serve("x", serve)
    served = desk.start("request", "--timeout", "600", "x", "1")
    desk.wait_until(lambda: ran)
    interrupted = desk.start("request", "--timeout", "600", "x", "2")
    desk.wait_until(lambda: service.pending)
    interrupted.send_signal(signal.SIGINT)
    interrupted.expect_exit(130)
    desk.wait_until(lambda: server.stats()["requests_cancelled"])
    may_end.set()
    served.expect_exit(0)
    assert ran == [1]
    assert_no_traceback(interrupted)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sub", "x", "--count", "5"),
        ("sub", "x", "--timeout", "600"),
        ("hz", "--count", "5"),
        ("bw", "--duration", "600"),
        ("top", "--duration", "600"),
        ("top", "--once", "--duration", "600"),
        ("ping", "--count", "600"),
        ("channel", "listen", "port"),
        ("channel", "listen", "port", "--keep", "--timeout", "600"),
    ],
)
def test_ctrl_c_before_a_command_is_done_is_told_by_the_exit_code(
    desk: Desk, arguments: tuple[str, ...]
) -> None:
    process = desk.start(*arguments, "--name", "staying")
    desk.wait_until(lambda: "staying" in desk.names())
    process.send_signal(signal.SIGINT)
    process.expect_exit(130)
    assert_no_traceback(process)


def test_ctrl_c_ends_a_publisher_that_waits(desk: Desk) -> None:
    process = desk.start("pub", "--name", "waiting", "--wait", "600", "x", "1")
    desk.wait_until(lambda: "waiting" in desk.names())
    process.send_signal(signal.SIGINT)
    process.expect_exit(130)
    assert_no_traceback(process)


def test_ctrl_c_is_the_usual_end_of_a_publisher_that_repeats(desk: Desk) -> None:
    subscriber = desk.subscribe("x")
    process = desk.start("pub", "--rate", "50", "x", "1")
    desk.wait_until(lambda: len(subscriber.lines) > 2)
    process.send_signal(signal.SIGINT)
    process.expect_exit(0)
    assert_no_traceback(process)


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3])
def test_ctrl_c_at_any_moment_shows_no_traceback(desk: Desk, delay_s: float) -> None:
    # Not before Python itself has started: until then it is Python that shows a traceback.
    script = (
        "import signal, sys; from jsonbus.cli.main import main; "
        "print('ready', flush=True); sys.argv = ['jsonbus', 'sub', 'x']; main()"
    )
    process = desk.start_python(script)
    desk.wait_until(lambda: process.lines == ["ready"])
    time.sleep(delay_s)  # any moment will do: this is not waiting for something to happen
    process.send_signal(signal.SIGINT)
    assert process.wait() in (0, 130)
    assert_no_traceback(process)


def test_ctrl_c_that_python_loses_is_noticed_soon(desk: Desk) -> None:
    script = """
import os, signal, weakref
from jsonbus.cli import signals

class Thing:
    pass

signals.leave_at_once()
signals.raise_interrupt()
thing = Thing()
reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
del thing
print("lost", flush=True)
try:
    signals.stay()
except KeyboardInterrupt:
    print("noticed", flush=True)
"""
    process = desk.start_python(script)
    process.expect_exit(0)
    assert process.lines == ["lost", "noticed"]
    assert process.complaints == []


def test_a_signal_that_is_ignored_stays_ignored(desk: Desk) -> None:
    process = desk.start_shell("trap '' HUP; exec jsonbus sub --name hardened x")
    desk.wait_for_node("hardened")
    process.send_signal(signal.SIGHUP)
    desk.run("pub", "x", "1")
    desk.wait_until(lambda: process.lines)
    process.send_signal(signal.SIGINT)
    process.expect_exit(0)


def test_a_reader_that_has_enough_ends_the_command_at_once(desk: Desk) -> None:
    process = desk.start_shell("set -o pipefail; jsonbus sub --name piped x | head -n 1")
    desk.wait_for_node("piped")
    desk.run("pub", "x", "1")
    # No second message is needed to notice.
    process.expect_exit(0)
    assert len(process.lines) == 1
    assert_no_traceback(process)


@pytest.mark.parametrize(
    "script", ["jsonbus --help | true", "jsonbus nodes | true", "jsonbus sub --help | head -n 1"]
)
def test_a_closed_pipe_is_no_trouble(desk: Desk, script: str) -> None:
    process = desk.start_shell(f"set -o pipefail; {script}")
    process.expect_exit(0)
    assert_no_traceback(process)


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [
        ("jsonbus pub x 1 >&-", 0),
        ("jsonbus pub x 1 <&-", 0),
        ("jsonbus pub x 1 2>&-", 0),
        ("jsonbus pub x 1 <&- >&- 2>&-", 0),
        ("jsonbus pub x <&-", 1),
        ("jsonbus explain x >&-", 1),
        ("jsonbus explain x > /dev/full", 1),
        ("jsonbus sub x --count 1 --timeout 0.1 >&- 2>&-", 3),
    ],
)
def test_closed_and_full_streams_end_without_a_traceback(
    desk: Desk, script: str, exit_code: int
) -> None:
    process = desk.start_shell(script)
    process.expect_exit(exit_code)
    assert_no_traceback(process)
    if exit_code == 1:
        assert len(process.complaints) == 1
        assert process.complaints[0].startswith("Error: cannot ")


def test_ctrl_c_ends_a_subscriber_whose_reader_does_not_read(desk: Desk) -> None:
    read_end, write_end = os.pipe()
    try:
        process = desk.start("sub", "--name", "stuck", "x", stdout=write_end)
        os.close(write_end)
        desk.wait_for_node("stuck")
        publisher = desk.start("pub", "x", stdin=subprocess.PIPE)
        publisher.stdin.write("".join(f'"{"y" * 1000}"\n' for _ in range(500)))
        publisher.stdin.close()
        publisher.expect_exit(0)
        process.send_signal(signal.SIGINT)
        process.expect_exit(0)
        assert_no_traceback(process)
    finally:
        os.close(read_end)


def test_on_a_terminal_output_is_for_people(desk: Desk) -> None:
    ours, theirs = pty.openpty()
    try:
        process = desk.start("sub", "--name", "screen", "--count", "1", "sensors/*", stdout=theirs)
        os.close(theirs)
        desk.wait_for_node("screen")
        desk.run("pub", "--name", "kitchen", "sensors/k", '"\\u009b31mred"')
        process.expect_exit(0)
        shown = _read_all(ours)
    finally:
        os.close(ours)
    assert "\x1b[36msensors/k\x1b[0m" in shown
    assert r'"\u009b31mred"' in shown
    assert "\x9b" not in shown


def _children(pid: int) -> list[str]:
    """Processes that it started, in whichever thread."""
    children = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has just ended
            children += (task / "children").read_text().split()
    return children


def _read_all(descriptor: int) -> str:
    data = b""
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux says EIO at the end of a terminal
            break
        if not chunk:
            break
        data += chunk
    return data.decode()
