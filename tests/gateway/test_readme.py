"""jsonbus/gateway/README.md tells the truth: its examples work, its tables are complete."""

from __future__ import annotations

import http.client
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("fastapi")

from jsonbus.cli.command import SharedOption
from jsonbus.cli.commands.gateway import HTTP_PORT, TEXT_PORT, command
from jsonbus.cli.lib.log_file import LOG_BYTES_MAX, LOG_FILES_MAX
from jsonbus.gateway import (
    services,
    values,
)
from jsonbus.gateway.gateway import Gateway
from jsonbus.gateway.http import (
    connection as http_connection,
)
from jsonbus.gateway.http import (
    events,
    models,
    parameters,
)
from jsonbus.gateway.http import (
    request as http_request,
)
from jsonbus.gateway.http.access import RIGHTS, Access
from jsonbus.gateway.http.app import make_app
from jsonbus.gateway.http.events import EventStreams
from jsonbus.gateway.http.origins import Origins
from jsonbus.gateway.metrics import (
    families,
)
from jsonbus.gateway.metrics import (
    observer as observation,
)
from jsonbus.gateway.metrics.series import REST
from jsonbus.gateway.text import (
    commands as text_commands,
)
from jsonbus.gateway.text import (
    server as text_server,
)
from jsonbus.gateway.text import (
    wire as text_wire,
)
from jsonbus.gateway.text.server import TextLimits
from jsonbus.gateway.webhooks import backoff, bodies, database, delivery, schema, store
from jsonbus.gateway.webhooks.ledger import WebhookLedger
from jsonbus.survey import TOPICS_MAX
from jsonbus.tls.certificate import LOOK_S
from jsonbus.tls.port import HANDSHAKE_S, HANDSHAKES_MAX
from tests.aio.running import asynctest
from tests.helpers import find_free_port, need_program, wait_until
from tests.readme import Block, Section, read_sections
from tests.test_readme import run_section
from tests.transport.namespace import in_private_namespace, ip

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "jsonbus" / "gateway" / "README.md").read_text(encoding="utf-8")
SECTIONS = {section.title: section for section in read_sections(TEXT)}
RUNNABLE = [section for section in SECTIONS.values() if section.is_runnable]

NOBODY: Any = None  # no part of the gateway is called to describe it
DOCUMENT = make_app(
    services.Services(
        hub=NOBODY,
        webhooks=NOBODY,
        event_streams=EventStreams(NOBODY),
        subscribers=list,
        origins=Origins(is_loopback=True),
        stats=dict,
        access=Access([("secret", RIGHTS)]),
    )
).openapi()


def rows_of(title: str) -> list[list[str]]:
    lines = [line for line in SECTIONS[title].text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def default_of(kind: type, name: str) -> int:
    return int(inspect.signature(kind).parameters[name].default)


@pytest.mark.slow
@pytest.mark.parametrize("section", RUNNABLE, ids=lambda section: section.title)
@in_private_namespace
def test_examples_show_what_the_readme_says(section: Section, tmp_path: Path) -> None:
    for program in ("curl", "nc"):
        need_program(program)
    ip("route add 224.0.0.0/4 dev lo src 127.0.0.1")
    run_section(section, tmp_path, None)


def test_every_block_is_of_a_kind_that_is_looked_at() -> None:
    blocks = [block for section in SECTIONS.values() for block in section.blocks]
    assert {block.kind for block in blocks} == {"console", "python", "text", "http", "js", "ini"}
    assert TEXT.count("```") == 2 * len(blocks)


def hook() -> Block:
    (block,) = [each for each in SECTIONS["Try it"].blocks if each.kind == "python"]
    return block


def test_the_webhook_shown_does_nothing_twice(tmp_path: Path) -> None:
    port = find_free_port()
    program = tmp_path / "hook.py"
    program.write_text(hook().text.replace("8300", str(port)), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"

            def answers() -> bool:
                try:
                    post(port, "x", "0", "begin")
                except ConnectionRefusedError:
                    return False
                return True

            assert wait_until(answers, 60)
            for delivery in ("1", "1", "2", "2", "3"):
                for subscriber in ("x", "y"):
                    assert post(port, subscriber, delivery, f"{subscriber}{delivery}") == 200
        finally:
            process.terminate()
        lines = process.stdout.read().splitlines()
    assert lines == ["a begin", "a x1", "a y1", "a x2", "a y2", "a x3", "a y3"]


def post(port: int, subscriber: str, delivery: str, message: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(
            "POST",
            "/",
            json.dumps({"message": [message], "topic": ["a"]}),
            {"Jsonbus-Subscriber": subscriber, "Jsonbus-Delivery": delivery},
        )
        return connection.getresponse().status
    finally:
        connection.close()


def test_every_route_is_told() -> None:
    told = set(re.findall(r"`(?:GET |POST )?(/v1/topics/|/[a-z]+(?:\.json)?\b)", TEXT))
    assert told == {path.removesuffix("{topic}") for path in DOCUMENT["paths"]}


def test_every_status_is_told() -> None:
    told = {int(each) for row in rows_of("Publishing") for each in re.findall(r"\b\d{3}\b", row[0])}
    answers = [each for path in DOCUMENT["paths"].values() for each in path.values()]
    known = {int(status) for each in answers for status in each["responses"]}
    assert told == known | {405}


def test_every_right_is_told_with_its_routes() -> None:
    told = {row[0].strip("`"): row[1] for row in rows_of("Who may do what")[1:]}
    assert told.keys() == RIGHTS | {"(none)"}
    for path, operations in DOCUMENT["paths"].items():
        rights = {
            right
            for operation in operations.values()
            for places in operation.get("security", [{"token": ["(none)"]}])
            for right in places.get("token", ())
        }
        assert rights
        for right in rights:
            assert f"`{path.replace('{topic}', '…')}`" in told[right], path


def test_every_option_is_told_and_every_one_told_exists() -> None:
    options = {
        name
        for param in command.params
        if isinstance(param, click.Option) and not isinstance(param, SharedOption)
        for name in param.opts
    } - {"--help", "-h"}
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT))
    assert options <= told
    shared = {name for param in command.params for name in param.opts}
    assert told - shared <= {"--json"}  # curl's


def test_every_default_told_is_one() -> None:
    defaults = {name: param.default for param in command.params for name in param.opts}
    for name, told in re.findall(r"`(--[a-z-]+)` \(([\d,]+)\)", TEXT):
        assert int(told.replace(",", "")) == defaults[name], name
    assert f"127.0.0.1:{HTTP_PORT}" in TEXT and f"127.0.0.1 {TEXT_PORT}" in TEXT


def test_every_text_command_and_reply_is_told() -> None:
    rows = rows_of("Lines of text")[1:]
    said = {row[0].strip("`").partition(" ")[0] for row in rows}
    commands = {text_wire.SUBSCRIBE, text_wire.UNSUBSCRIBE, text_wire.PUBLISH}
    assert said == commands | {text_wire.AUTH, text_wire.QUIT, "(connects)", "anything"}
    replies = {reply for row in rows for reply in re.findall(r"`(\w+)(?: [A-Z]+)?`", row[1])}
    assert replies - {"TOPIC"} == text_wire._REPLY_WORDS


def as_size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes:,} bytes"


def test_every_limit_is_told_as_it_is() -> None:
    pytest.importorskip("nicegui")
    from jsonbus.gateway.dashboard.dashboard import PAGES_MAX
    from jsonbus.gateway.dashboard.sessions import SESSIONS_MAX

    def number(value: int) -> str:
        return f"{value:,}"

    characters = (
        values.MESSAGE_CHARACTERS_MAX,
        models.URL_CHARACTERS_MAX,
        models.NAME_CHARACTERS_MAX,
    )
    unread = as_size(events.BACKLOG_BYTES_MAX)
    expected = [
        [*map(number, characters)],
        [as_size(services.BODY_BYTES_MAX), as_size(parameters.FORM_BYTES_MAX)],
        [f"{store.BATCH_COUNT_MAX} messages", as_size(store.BATCH_BYTES_MAX)],
        [
            number(default_of(WebhookLedger, name))
            for name in ("backlog_max", "total_backlog_max", "subscriptions_max")
        ],
        [
            f"{events.PATTERNS_MAX} patterns",
            f"{events.BACKLOG_EVENTS_MAX:,} events or {unread}",
        ],
        [
            f"{text_commands.PATTERNS_PER_CLIENT_MAX:,} patterns",
            f"{default_of(TextLimits, 'backlog_lines'):,} lines or "
            f"{as_size(default_of(TextLimits, 'backlog_bytes'))}",
            as_size(text_wire.LINE_BYTES_MAX),
            f"{text_commands.WRONG_TOKENS_MAX} wrong tokens",
        ],
        [
            number(http_connection.CONNECTIONS_MAX),
            number(default_of(TextLimits, "clients")),
            number(events.STREAMS_MAX),
        ],
        [number(PAGES_MAX), number(SESSIONS_MAX), number(TOPICS_MAX)],
        [
            f"{as_size(text_server.TOTAL_BACKLOG_BYTES_MAX)} each",
            as_size(http_request.BODIES_BYTES_MAX),
            as_size(bodies.BYTES_MAX),
        ],
    ]
    assert text_server.TOTAL_BACKLOG_BYTES_MAX == events.TOTAL_BACKLOG_BYTES_MAX
    rows = rows_of("Limits")[1:]
    for row, words in zip(rows, expected, strict=True):
        assert re.search(".*".join(map(re.escape, words)), row[1]), (row, words)


def test_other_numbers_are_told_as_they_are() -> None:
    assert backoff.FIRST_S == 0.5 and "half a second" in TEXT
    assert f"again after {delivery.ADDRESS_FRESH_S:g} seconds" in " ".join(TEXT.split())
    assert f"a reserve of {as_size(database.RESERVE_BYTES)}" in TEXT
    assert f"every {LOG_BYTES_MAX // 1_000_000} MB and keeps five" in TEXT and LOG_FILES_MAX == 5
    assert f"`{schema.FILE_NAME}`" in TEXT
    assert f"at most every {LOOK_S:g} seconds" in " ".join(TEXT.split())
    limits = f"A handshake has {HANDSHAKE_S:g} seconds; when {HANDSHAKES_MAX:,} are under way"
    assert limits in " ".join(TEXT.split())


@pytest.mark.slow
@asynctest
async def test_every_metric_told_exists_and_every_one_that_exists_is_told() -> None:
    async with Gateway(interface="lo", port=find_free_port()) as gateway:
        parts = gateway.stats()
    for part in parts:
        assert f"_{part}_…`" in TEXT, part
    names = set(Path(__file__).with_name("metric_names.txt").read_text(encoding="utf-8").split())
    told = set(re.findall(r"`(jsonbus_[a-z_]+)`", TEXT))
    assert told <= names
    assert {
        name for name in names if not name.startswith(("jsonbus_gateway_", "jsonbus_bus_"))
    } <= told
    assert families.NODES_MAX == families.TOPICS_MAX == families.WEBHOOKS_MAX == 250
    assert "The first 250 nodes, topics and webhooks" in TEXT and f"label `{REST}`" in TEXT
    assert observation.LINGER_S == 300 and "five minutes after the last" in TEXT


def test_the_headers_and_fields_shown_are_those_sent() -> None:
    shown = set(re.findall(r"^(Jsonbus-\w+):", TEXT, re.MULTILINE))
    sent = set(re.findall(r'b"(Jsonbus-\w+)"', Path(delivery.__file__).read_text()))
    assert shown == sent
    console = "".join(block.text for block in SECTIONS["Try it"].blocks)
    view = json.loads(next(line for line in console.splitlines() if '"subscribers"' in line))
    fields = DOCUMENT["components"]["schemas"]["Subscriber"]
    assert list(view["subscribers"][0]) == fields["required"]


def test_the_unit_shown_starts_a_gateway_as_it_is() -> None:
    (unit,) = SECTIONS["As a service"].blocks
    (line,) = re.findall(r"^ExecStart=\S+/jsonbus gateway (.*)$", unit.text, re.MULTILINE)
    with command.make_context("gateway", line.replace("%d/tokens", __file__).split()) as context:
        assert str(context.params["data_dir"]) == "%S/jsonbus"


def test_it_can_be_read_in_one_go() -> None:
    assert len(TEXT.splitlines()) < 340
