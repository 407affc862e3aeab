"""`jsonbus top` on a real terminal: keys work, and the terminal is given back whatever happens."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator

import pytest

import jsonbus
from tests.end_to_end.processes import Desk
from tests.end_to_end.screens import ENTER, LEAVE, ScreenProcess
from tests.helpers import wait_until

Start = Callable[..., ScreenProcess]


@pytest.fixture
def start(desk: Desk) -> Iterator[Start]:
    """Start `top` beside a node that publishes and one that subscribes."""
    screens: list[ScreenProcess] = []
    desk.observer.subscribe("a/**", lambda message: None)
    desk.start("pub", "--name", "sensor", "--rate", "20", "--count", "100000", "a/kitchen", "7")
    desk.start("pub", "--name", "clock", "--rate", "5", "--count", "100000", "a/time", '"noon"')

    def start_screen(*args: str, **env: str) -> ScreenProcess:
        screens.append(ScreenProcess(desk.port, "-m", "jsonbus", "top", *args, **env))
        return screens[-1]

    yield start_screen
    for each in screens:
        each.end()


def assert_given_back(screen: ScreenProcess, code: int = 0) -> None:
    assert screen.wait() == code
    assert wait_until(lambda: LEAVE in screen.written)
    after = screen.written.rpartition(LEAVE)[2]
    assert screen.modes == screen.modes_before
    assert screen.written.count(ENTER) == screen.written.count(LEAVE)
    assert b"Traceback" not in after


def test_the_screen_shows_topics_with_rates_and_values(start: Start) -> None:
    screen = start()
    screen.expect("a/kitchen")
    screen.expect("a/time")

    def is_measured() -> bool:
        rows = [line.split() for line in screen.lines if line.startswith("a/kitchen")]
        # topic, rate, bytes, publishers, subscribers, loss, age, value
        return bool(rows) and rows[0][3:6] == ["1", "1", "0%"] and 15 < float(rows[0][1]) < 25

    assert wait_until(is_measured), screen.lines
    assert screen.lines[0].startswith("jsonbus 239.255.24.16:")
    screen.press(b"q")
    assert_given_back(screen)


def test_keys_switch_filter_sort_and_open(start: Start) -> None:
    screen = start()
    screen.expect("a/kitchen")
    screen.expect("a/time")
    screen.press(b"\t")
    screen.expect("sensor")
    assert screen.lines[2].startswith("NODE")
    screen.press(b"\t/kit")
    screen.expect("filter: kit_")
    assert wait_until(lambda: not screen.shows("a/time"))
    screen.press(b"\r")
    screen.expect("filter kit")
    screen.press(b"\x1b")
    screen.expect("a/time")
    screen.press(b"t")
    screen.expect("TOPIC▲")
    screen.press(b"\x1b[B\r")
    screen.expect("publishers   clock")
    screen.press(b"\x1b")
    screen.expect("TOPIC▲")
    screen.press(b"?")
    screen.expect("any key goes back")
    screen.press(b" ")
    screen.expect("TOPIC▲")
    screen.press(b" ")
    screen.expect("PAUSED")
    screen.press(b" q")
    assert_given_back(screen)


def test_a_new_size_is_filled(start: Start) -> None:
    screen = start()
    screen.expect("a/kitchen")
    screen.resize(160, 40)
    assert wait_until(lambda: len(screen.lines) == 40 and "MESSAGES" in screen.lines[2])
    screen.resize(30, 8)
    assert wait_until(lambda: len(screen.lines) == 8 and len(screen.lines[2]) <= 30)
    screen.press(b"q")
    assert_given_back(screen)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(start: Start, number: int) -> None:
    screen = start()
    screen.expect("a/kitchen")
    os.kill(screen.process.pid, number)
    assert_given_back(screen)


def test_the_end_of_the_time_gives_the_terminal_back(start: Start) -> None:
    assert_given_back(start("--duration", "0.5"))


def test_an_error_gives_the_terminal_back() -> None:
    script = """
from jsonbus.cli.top.terminal import Terminal
with Terminal() as terminal:
    terminal.paint(["here it is"])
    terminal.wait(60)
    raise ValueError("a bug")
"""
    screen = ScreenProcess(0, "-c", script)
    try:
        screen.expect("here it is")
        screen.press(b"x")
        assert screen.wait() == 1
        assert wait_until(lambda: b"a bug" in screen.written.rpartition(LEAVE)[2])
        assert screen.modes == screen.modes_before
    finally:
        screen.end()


def test_it_can_be_stopped_and_continued(start: Start) -> None:
    screen = start()
    screen.expect("a/kitchen")
    # A process group that no shell looks after cannot be stopped by SIGTSTP: so it only seems to.
    os.kill(screen.process.pid, signal.SIGTSTP)
    assert wait_until(lambda: screen.written.count(LEAVE) == 1 and screen.written.count(ENTER) == 2)
    screen.expect("a/kitchen")
    screen.press(b"q")
    assert_given_back(screen)


def test_without_colours_none_is_written(start: Start) -> None:
    screen = start(NO_COLOR="1")
    screen.expect("a/kitchen")
    screen.press(b"q")
    assert_given_back(screen)
    assert not re.search(rb"\x1b\[3\d", screen.written)


def test_a_terminal_that_can_do_nothing_gets_tables(start: Start) -> None:
    screen = start("--interval", "0.3", "--duration", "1", TERM="dumb")
    assert screen.wait() == 0
    assert wait_until(lambda: b"a/kitchen" in screen.written)
    assert b"\x1b" not in screen.written


def test_what_is_on_screen_already_is_not_written_again(start: Start) -> None:
    screen = start("nothing/here")
    screen.expect("nothing flows that matches nothing/here")
    before = len(screen.written)
    screen.press(b"?")
    screen.expect("any key goes back")
    assert before and len(screen.written) - before < 8_000
    screen.press(b"xq")
    assert_given_back(screen)


def test_the_log_is_shown_below_and_written_afterwards(start: Start, desk: Desk) -> None:
    screen = start("-v")
    screen.expect("a/kitchen")
    with jsonbus.Bus(port=desk.port, interface="lo", name="latecomer"):
        assert wait_until(lambda: "latecomer" in screen.lines[-1]), screen.lines
    screen.press(b"q")
    assert_given_back(screen)
    assert wait_until(lambda: b"latecomer" in screen.written.rpartition(LEAVE)[2])
    assert len(screen.lines) == 24


def test_it_does_not_change_what_is_sent(start: Start, desk: Desk) -> None:
    screen = start("--name", "looker")
    screen.expect("a/kitchen")
    with jsonbus.Bus(port=desk.port, interface="lo") as other:
        assert other.wait_until_sure(timeout=30)
        assert wait_until(lambda: "looker" in [each.name for each in other.nodes()])
        assert not other.publish("nobody/wants/this", 1)
    screen.press(b"q")
    assert_given_back(screen)


@pytest.mark.parametrize("command", ["hz", "bw", "top"])
def test_a_closed_pipe_is_a_clean_end(desk: Desk, command: str) -> None:
    desk.observer.subscribe("a", lambda message: None)
    desk.start("pub", "--rate", "50", "--count", "100000", "a", "1")
    process = desk.start_shell(f"set -o pipefail; jsonbus {command} --interval 0.1 | head -n 1")
    process.expect_exit(0)
    assert len(process.lines) == 1 and not process.complaints


@pytest.mark.parametrize("command", ["hz", "bw", "top"])
def test_ctrl_c_is_the_usual_end_in_a_pipe(desk: Desk, command: str) -> None:
    process = desk.start(command, "--interval", "0.1", "--name", "looker")
    desk.wait_until(lambda: "looker" in desk.names())
    process.send_signal(signal.SIGINT)
    process.expect_exit(0)
    assert not any("Traceback" in line for line in process.complaints)
