from __future__ import annotations

import re

import pytest

from jsonbus.cli.manual.completion import SHELLS
from tests.cli.running import run_command


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_is_named_or_that_of_the_user(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    named = run_command("completion", shell)
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    detected = run_command("completion")
    assert named.exit_code == detected.exit_code == 0
    assert named.stdout == detected.stdout
    comment, line = named.stdout.splitlines()
    assert re.fullmatch(rf"# completion of jsonbus, for ~/\S*{shell}\S*.*:", comment)
    assert f"_JSONBUS_COMPLETE={shell}_source jsonbus" in line


@pytest.mark.parametrize("shell", ["/bin/dash", ""])
def test_a_shell_that_has_no_completion_is_told_which_have(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", shell)
    result = run_command("completion")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "bash, zsh, fish" in result.stderr
