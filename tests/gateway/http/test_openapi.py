"""The OpenAPI document: it is complete, and all true as far as generated requests can tell."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aio.running import asynctest
from tests.gateway.site import Site, site

needs_schemathesis = pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not installed"
)

#: For each operation, besides some hundred that are not random; all of it takes some seconds.
EXAMPLES = 25

CONFIG = """
# Which addresses a webhook may have is no matter of its spelling: no schema can tell.
[[operations]]
include-path = "/subscribe"
checks.positive_data_acceptance.enabled = false
"""


@pytest.mark.slow
@needs_schemathesis
@asynctest
async def test_no_generated_request_gets_an_answer_that_is_not_documented(
    tmp_path: Path,
) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    # No name is looked up but this one, whatever is generated.
    allow = ["localhost"]
    async with site(data=tmp_path / "data", tokens=["secret"], allow_webhooks=allow) as here:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli"),
            *("--config-file", str(tmp_path / "schemathesis.toml"), "--no-color"),
            *("run", f"{here.http.base_url}/openapi.json"),
            *("--max-examples", str(EXAMPLES), "--generation-deterministic"),
            *("--exclude-path", "/events"),  # without an end; see test_events.py
            *("--header", "Authorization: Bearer secret"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        assert here.hub.published  # some of it was right, too


@asynctest
async def test_every_route_and_method_is_in_the_document() -> None:
    async with site() as here:
        document = (await here.http.get("/openapi.json")).json()
        assert document == here.app.openapi()
        counted = set(re.findall(r'http_seconds_count\{route="(.*?)"', await scrape(here)))
        pages = {"/", "/docs/{name}"}  # for people, and what one of them loads
        assert {path.replace(":path", "") for path in counted} - pages == set(document["paths"])
        for path, operations in document["paths"].items():
            answer = await here.http.put(path.replace("{topic}", "a"))
            offered = {each.strip().lower() for each in answer.headers["allow"].split(",")}
            assert offered - {"head"} == set(operations), path


async def scrape(here: Site) -> str:
    return (await here.http.get("/metrics")).text


@pytest.mark.parametrize("tokens", [(), ("secret",)])
@asynctest
async def test_what_it_refers_to_is_there_and_nothing_else(tokens: tuple[str, ...]) -> None:
    async with site(tokens=tokens) as here:
        document = here.app.openapi()
        kept = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(find_references(document)) == kept


@asynctest
async def test_every_error_has_the_same_form() -> None:
    async with site() as here:
        for operations in here.app.openapi()["paths"].values():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    if status != "200":
                        schema = {"$ref": "#/components/schemas/Error"}
                        assert response["content"] == {"application/json": {"schema": schema}}


@asynctest
async def test_tokens_are_in_the_document_only_if_they_are_asked_for() -> None:
    async with site() as open_site, site(tokens=["secret"]) as guarded_site:
        is_open, guarded = open_site.app.openapi(), guarded_site.app.openapi()
        assert "securitySchemes" not in is_open["components"]
        for path, operations in guarded["paths"].items():
            for method, operation in operations.items():
                has_right = path not in ("/health", "/docs", "/openapi.json")
                assert ("security" in operation) == ("401" in operation["responses"]) == has_right
                assert "security" not in is_open["paths"][path][method]
                assert "401" not in is_open["paths"][path][method]["responses"]


def find_references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for each in node.values():
            yield from find_references(each)
    elif isinstance(node, list):
        for each in node:
            yield from find_references(each)
