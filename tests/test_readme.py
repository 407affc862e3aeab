"""The READMEs tell the truth: their examples work, their tables are complete, their links lead on.

The pages of the gateway and of the bridge have tests of their own.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import jsonbus
from jsonbus import errors
from jsonbus.cli import exit_codes
from jsonbus.cli.command import SharedOption
from jsonbus.cli.group import COMMANDS, load_command
from jsonbus.config import BusSettings, environment_variable
from jsonbus.core.limits import VALUE_BYTES_MAX
from jsonbus.core.wire.decode import decode
from jsonbus.sim.experiments import TABLE_HEADER
from tests.helpers import find_free_port, need_program
from tests.readme import PAGES, ROOT, Run, Section, read_sections
from tests.transport.namespace import in_private_namespace, ip

FRONT, LIBRARY, COMMANDS_PAGE, PROTOCOL, SEALED, TOOLS = (
    "README.md",
    "jsonbus/README.md",
    "jsonbus/cli/README.md",
    "jsonbus/core/README.md",
    "jsonbus/sealed/README.md",
    "tools/README.md",
)
#: The pages that are checked here: their sections by title.
SECTIONS = {
    page: {section.title: section for section in read_sections(PAGES[page])}
    for page in (FRONT, LIBRARY, COMMANDS_PAGE, PROTOCOL, SEALED, TOOLS)
}
RUNNABLE = {
    f"{page}: {section.title}": section
    for page, sections in SECTIONS.items()
    for section in sections.values()
    if section.is_runnable
}

#: The examples have times in them that hold on any network and any desk, but not on a machine that
#: is so busy that a process gets no time for most of a second. Then a section is run again.
ATTEMPTS = 3


def run_section(section: Section, folder: Path, port: int | None) -> None:
    for program in sorted(section.programs):
        need_program(program)
    for attempt in range(ATTEMPTS):
        try:
            folder_of_its_own = folder / str(attempt)
            folder_of_its_own.mkdir()
            Run(folder_of_its_own, port).run(section)
            return
        except AssertionError:
            if attempt + 1 == ATTEMPTS:
                raise
        if port is not None:
            port = find_free_port()


@pytest.mark.slow
@pytest.mark.parametrize(
    "title", [title for title, each in RUNNABLE.items() if not each.names_the_default_bus]
)
def test_examples_show_what_the_readme_says(title: str, tmp_path: Path) -> None:
    run_section(RUNNABLE[title], tmp_path, find_free_port())


@pytest.mark.slow
@pytest.mark.parametrize(
    "title", [title for title, each in RUNNABLE.items() if each.names_the_default_bus]
)
@in_private_namespace
def test_examples_without_jsonbus_show_what_the_readme_says(title: str, tmp_path: Path) -> None:
    # Programs that do not choose an interface leave that to the routes.
    ip("route add 224.0.0.0/4 dev lo src 127.0.0.1")
    run_section(RUNNABLE[title], tmp_path, None)


def test_every_block_is_of_a_kind_that_is_looked_at() -> None:
    for page, sections in SECTIONS.items():
        blocks = [block for section in sections.values() for block in section.blocks]
        assert {block.kind for block in blocks} <= {"console", "python", "text", "json", "sh"}
        assert PAGES[page].count("```") == 2 * len(blocks), page


def test_the_first_screen_has_short_programs() -> None:
    programs = [block for block in SECTIONS[FRONT]["In Python"].blocks if block.kind == "python"]
    assert len(programs) == 2
    for program in programs:
        assert len([line for line in program.text.splitlines() if line]) <= 5


def test_every_datagram_shown_is_one() -> None:
    sections = SECTIONS[PROTOCOL].values()
    blocks = [block for each in sections for block in each.blocks if block.kind == "json"]
    assert blocks
    for line in "".join(block.text for block in blocks).splitlines():
        decode(line.encode())


def scripts_shown() -> Iterator[list[str]]:
    for section in (each for page in SECTIONS.values() for each in page.values()):
        for block in section.blocks:
            if block.kind == "sh":
                yield from (shlex.split(line, comments=True) for line in block.text.splitlines())
    for line in re.findall(
        r"`(?:sudo )?(python3 (?:tools/|-m tools\.)[^`]+)`", "\n".join(PAGES.values())
    ):
        yield shlex.split(line)


@pytest.mark.slow
@pytest.mark.parametrize("words", list(scripts_shown()), ids=" ".join)
def test_every_script_shown_is_there_and_has_the_options_shown(words: list[str]) -> None:
    assert words[0] == "python3"
    if words[1:4] == ["-m", "pip", "install"]:
        assert (ROOT / words[4] / "pyproject.toml").is_file()
        return
    command = words[1:2]
    if words[1] == "-m":
        command = words[1 : 4 if words[2] == "tools.bench" else 3]
        assert (ROOT / words[2].replace(".", "/")).is_dir()
    else:
        assert (ROOT / words[1]).is_file()
    options = [word for word in words if word.startswith("--")]
    if options:
        told = subprocess.run(
            [sys.executable, *command, "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert told.returncode == 0, told.stderr
        assert [each for each in options if each not in told.stdout] == []


def rows_of(page: str, section: str) -> list[list[str]]:
    """Return the cells of all tables of a section."""
    lines = [line for line in SECTIONS[page][section].text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def options_of(command: click.Command, *, shared: bool) -> set[str]:
    return {
        name
        for param in command.params
        if isinstance(param, click.Option) and isinstance(param, SharedOption) is shared
        for name in param.opts
    }


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Those of groups, too, each with all that it is called by."""
    for name in COMMANDS:
        command = load_command(name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {each}", inner) for each, inner in command.commands.items())
        else:
            yield name, command


@pytest.mark.parametrize(("name", "command"), list(all_commands()))
def test_every_command_is_told_with_all_its_options(name: str, command: click.Command) -> None:
    text = SECTIONS[COMMANDS_PAGE][name].text
    listed = "\n".join(re.findall(r"^- .*(?:\n  .*)*", text, re.M))
    assert set(re.findall(r"`(--?[a-z-]+)", listed)) >= options_of(command, shared=False)
    (synopsis,) = re.findall(rf"^`jsonbus {name}( [^`]+)?`", text, re.M)
    for param in command.params:
        if isinstance(param, SharedOption):
            continue
        if isinstance(param, click.Argument):
            assert param.make_metavar(click.Context(command)) in synopsis
        elif isinstance(param.default, float | int) and not param.is_flag:
            assert f"({param.default:g})" in listed


def test_every_setting_is_told_with_its_variable_and_default() -> None:
    rows = {row[1].strip("`"): row for row in rows_of(LIBRARY, "Settings") if "JSONBUS_" in row[1]}
    defaults = {
        key: getattr(jsonbus.BusConfig(), key, False) for key in BusSettings.__annotations__
    }
    defaults |= {"datagram_bytes_max": "by the network", "subs_share_delay": "random"}
    defaults |= {"key_file": "none", "rate_limit": "unlimited", "workers": "1; AsyncBus: 100"}
    defaults |= {"name": "host and process", "interface": "auto", "verbose": 0, "quiet": 0}
    for key, default in defaults.items():
        shown = rows[environment_variable(key)][2].strip("`")
        named = {True: "on", False: "off"}
        assert shown == (named[default] if isinstance(default, bool) else str(default)), key
    assert len(rows) == len(defaults)


def test_every_option_that_commands_share_is_told() -> None:
    command = importlib.import_module("jsonbus.cli.commands.sub").command
    told = {
        name
        for row in rows_of(LIBRARY, "Settings")
        for name in re.findall(r"`(--?[a-z-]+)`", row[0])
    }
    assert told == options_of(command, shared=True)


def test_every_exit_code_is_told() -> None:
    told = {int(row[0]) for row in rows_of(COMMANDS_PAGE, "Exit codes") if row[0].isdigit()}
    known = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert told == known | {0}


@pytest.mark.parametrize(
    ("kind", "section"),
    [
        (jsonbus.Bus, "Bus and AsyncBus"),
        (jsonbus.AsyncBus, "Bus and AsyncBus"),
        (jsonbus.TopicQueue, "TopicQueue"),
        (jsonbus.AsyncTopicQueue, "TopicQueue"),
        (jsonbus.SubscriptionStore, "TopicQueue"),
        (jsonbus.Message, "Bus and AsyncBus"),
        (jsonbus.NodeEvent, "Who is there"),
        (jsonbus.GapEvent, "Reliable topics"),
    ],
)
def test_every_public_name_is_told(kind: type, section: str) -> None:
    text = SECTIONS[LIBRARY][section].text
    # What a bus is and was opened with explains itself; `over` is for tests with other transports.
    left_out = (
        {"config", "id", "is_closed", "name", "over", "state"} if "Bus" in str(kind) else set()
    )
    names = {name for name in dir(kind) if not name.startswith("_")} - left_out
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", text)) == []


@pytest.mark.parametrize("kind", [jsonbus.Channel, jsonbus.AsyncChannel])
def test_what_a_channel_has_for_programs_is_told(kind: type) -> None:
    # The rest of its names is for its bus.
    names = (
        "abort close is_closed name node on_accept on_closed on_message on_refused pending port"
        " receive received send sent state try_send"
    ).split()
    text = SECTIONS[LIBRARY]["Channels"].text
    assert [name for name in names if not hasattr(kind, name) or name not in text] == []


def test_every_reason_of_a_refusal_is_told() -> None:
    told = {row[0].strip("`") for row in rows_of(LIBRARY, "Channels")}
    assert set(errors._REFUSALS) <= told


def test_every_method_told_exists() -> None:
    table = "\n".join(row[1] for row in rows_of(LIBRARY, "Bus and AsyncBus"))
    for name in re.findall(r"(?<!\.)\b([a-z_]+)\(", table):
        assert hasattr(jsonbus.Bus, name) and hasattr(jsonbus.AsyncBus, name), name


def test_every_counter_told_exists() -> None:
    text = SECTIONS[LIBRARY]["Guarantees"].text
    text += SECTIONS[COMMANDS_PAGE]["When multicast gives trouble"].text
    text += SECTIONS[SEALED]["What is protected"].text
    with jsonbus.Bus(port=find_free_port()) as bus:
        figures = bus.stats()
    told = set(re.findall(r"`([a-z]+_[a-z_]+)`", text))
    assert told and told <= figures.keys()


def test_the_measured_tables_have_the_columns_of_the_simulator() -> None:
    text = PAGES[PROTOCOL] + PAGES[TOOLS]
    tables = dict(re.findall(r"<!-- table: (.+?) -->\n(.+?)<!-- end of table -->", text, re.S))
    assert tables.keys() == {"late joins", "mass start", "delivery under loss"}
    assert tables["late joins"].splitlines()[0] == f"| {' | '.join(TABLE_HEADER)} |"


def test_the_largest_message_is_as_told() -> None:
    assert f"{VALUE_BYTES_MAX >> 20} MiB" in SECTIONS[LIBRARY]["Limits"].text


def test_the_newest_release_is_this_version() -> None:
    titles = list(SECTIONS[LIBRARY])
    changes = titles[titles.index("Changes") + 1 :]
    newest = changes[1] if changes[0].endswith("(unreleased)") else changes[0]
    assert re.fullmatch(rf"{re.escape(jsonbus.__version__)} \(\d{{4}}-\d\d-\d\d\)", newest)


def test_the_readme_can_be_read_in_one_go() -> None:
    assert len(PAGES[FRONT].splitlines()) <= 260


def anchors(text: str) -> set[str]:
    """Return the anchors that a page has on the usual hosts, one per heading."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), target
