from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import Result

import jsonbus
from jsonbus.cli.commands import doctor
from jsonbus.doctor import Finding, judge
from tests.cli.running import Run, json_lines
from tests.doctor.facts import ETHERNET, make_facts
from tests.doctor.running import listening, sending
from tests.helpers import wait_until


def test_a_machine_without_a_problem_is_a_success(run: Run) -> None:
    result = run("doctor", "--timeout", "0.3", "--interface", "lo")
    assert result.exit_code == 0, result.output
    (report,) = json_lines(result.stdout)
    assert report["level"] in ("ok", "note", "warning")
    assert {each["check"] for each in report["findings"]} >= {"interface", "buffer", "loopback"}
    assert all(set(each) == {"level", "check", "text", "remedy"} for each in report["findings"])
    assert report["facts"]["joined"]["interfaces"] == ["lo"]
    assert result.stderr == ""


def test_a_problem_is_a_failure_with_its_remedy(run: Run) -> None:
    result = run("doctor", "--interface", "nosuch0", "--json")
    assert result.exit_code == 1
    (report,) = json_lines(result.stdout)
    assert report["level"] == "problem"
    problem = report["findings"][0]
    assert (problem["level"], problem["check"]) == ("problem", "joining")
    assert "nosuch0" in problem["text"] and "lo (127.0.0.1)" in problem["remedy"]


@pytest.mark.slow
def test_what_a_bus_would_warn_of_is_a_finding_instead(run: Run, port: int) -> None:
    results: list[Result] = []

    def is_found() -> bool:
        results.append(run("doctor", "--timeout", "0.5"))
        return "foreign" in [
            each["check"]
            for each in json.loads(results[-1].stdout)["findings"]
            if each["level"] == "warning"
        ]

    with sending(b"nonsense", "239.255.24.16", port):
        assert wait_until(is_found)
        told = run("doctor", "--timeout", "0.5", "-v")
    assert results[-1].exit_code == 0
    assert results[-1].stderr == ""
    assert "are dropped (not_json" in told.stderr


@pytest.mark.slow
def test_nodes_and_the_echo_are_in_the_report(run: Run, bus: jsonbus.Bus, port: int) -> None:
    def is_complete() -> bool:
        report = json.loads(run("doctor", "--timeout", "2").stdout)
        nodes = [each["name"] for each in report["facts"]["nodes"]]
        listeners = [each["name"] for each in report["facts"]["listeners"]]
        checks = {each["check"] for each in report["findings"]}
        return nodes == ["other"] and listeners == ["attic"] and {"echo", "size"} <= checks

    with listening(port):
        assert wait_until(is_complete, timeout_s=60)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--timeout", "0"),
        ("--timeout", "4000"),
        ("somewhere",),
        ("--port", "0"),
        ("--listen", "--timeout", "1"),
    ],
)
def test_what_cannot_be_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("doctor", *arguments).exit_code == 2


def test_a_listener_that_cannot_join_fails_in_one_line(run: Run) -> None:
    result = run("doctor", "--listen", "--interface", "nosuch0")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: there is no interface 'nosuch0'")


def test_findings_fit_eighty_columns_with_the_remedy_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    facts = make_facts(
        replace(ETHERNET, is_up=False),
        obtained_bytes=212_992,
        traffic={"elsewhere": {"224.1.2.3": 5}},
    )
    doctor._show(judge(facts))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert lines[0].rstrip() == "problem eth0 (192.0.2.5) is down"
    assert lines[1].startswith("        → sudo ip link set eth0 up")
    assert lines[-1] == "1 problem and 2 warnings found"


def test_text_from_the_network_does_not_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    doctor._show([Finding("note", "nodes", "a\x1b[2Jb [red]c", "d\u202ee")])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "[red]c" in shown


@pytest.mark.parametrize(
    ("levels", "summary"),
    [
        (["ok", "note"], "nothing wrong found"),
        (["warning", "ok"], "1 warning found"),
        (["problem", "warning", "problem"], "2 problems and 1 warning found"),
    ],
)
def test_the_last_line_counts_what_is_wrong(levels: list[str], summary: str) -> None:
    assert doctor._summary([Finding(level, "x", "text", "remedy") for level in levels]) == summary
