"""What stands in the file of --log-file, and what on standard error."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from jsonbus.cli.lib.log_file import log_to


def test_what_nobody_expected_is_in_the_log_file_and_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    log = logging.getLogger("asyncio")
    with log_to(tmp_path / "log"):
        log.error("a task failed")
        logging.getLogger("uvicorn.error").error("a request failed")
    log.error("after the end")
    told = (tmp_path / "log").read_text()
    assert "ERROR asyncio: a task failed" in told and "uvicorn.error: a request failed" in told
    assert "after the end" not in told
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["a task failed", "a request failed", "after the end"]


def test_what_the_command_tells_is_in_the_file_and_once_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_to(tmp_path / "log") as tell:
        tell("it has begun")
    assert (tmp_path / "log").read_text().endswith(" INFO jsonbus: it has begun\n")
    assert capsys.readouterr().err == "it has begun\n"


def test_with_quiet_only_the_file_has_what_the_command_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("jsonbus")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with log_to(tmp_path / "log") as tell:
            tell("it has begun")
    finally:
        log.setLevel(before)
    assert "it has begun" in (tmp_path / "log").read_text()
    assert capsys.readouterr().err == ""
