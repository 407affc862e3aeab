"""The doctor and its listener as processes."""

from __future__ import annotations

import signal

import pytest

from tests.end_to_end.processes import Desk, Process
from tests.end_to_end.test_ending import assert_no_traceback


def start_listener(desk: Desk) -> Process:
    listener = desk.start("doctor", "--listen", "--name", "attic")
    desk.wait_until(lambda: any("attic answers echoes on" in line for line in listener.complaints))
    return listener


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_listener_and_it_tells_who_asked(desk: Desk, number: int) -> None:
    listener = start_listener(desk)
    reports: list[dict[str, object]] = []

    def is_measured() -> bool:
        reports.extend(desk.run("doctor").results)
        checks = {each["check"]: each["level"] for each in reports[-1]["findings"]}  # type: ignore
        return checks.get("size") == "ok"

    desk.wait_until(is_measured)
    listener.send_signal(number)
    listener.expect_exit(0)
    assert_no_traceback(listener)
    assert len(listener.results) == len(reports)
    assert listener.results[-1]["address"] == "127.0.0.1"
    assert listener.results[-1]["largest_bytes"] == 65_507


def test_a_listener_whose_reader_has_gone_ends(desk: Desk) -> None:
    process = desk.start_shell("jsonbus doctor --listen | true; echo ${PIPESTATUS[0]}")
    process.expect_exit(0)
    assert process.lines == ["0"]
    assert_no_traceback(process)


def test_ctrl_c_ends_an_examination(desk: Desk) -> None:
    process = desk.start("doctor", "--timeout", "600", "--name", "patient")
    desk.wait_until(lambda: "patient" in desk.names())
    process.send_signal(signal.SIGINT)
    process.expect_exit(130)
    assert process.lines == []
    assert_no_traceback(process)


def test_a_doctor_whose_interface_is_missing_fails_with_a_report(desk: Desk) -> None:
    process = desk.start("doctor", "--interface", "nosuch0")
    process.expect_exit(1)
    (report,) = process.results
    assert report["level"] == "problem"
    assert process.complaints == []
