"""The OpenAPI document: it is complete, and all true as far as generated requests can tell."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jsonbus.gateway.http.openapi import make_document
from tests.aio.running import asynctest
from tests.gateway.site import site

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
        documented = {
            (path, method.upper())
            for path, operations in document["paths"].items()
            for method in operations
        }
        offered = {
            (route.path.replace(":path", ""), method)
            for route in here.app.routes
            for method in route.endpoint.methods
            if method != "HEAD" and route.path != "/"  # a page for people
        }
        assert documented == offered


@pytest.mark.parametrize("is_open", [True, False])
def test_what_it_refers_to_is_there_and_nothing_else(is_open: bool) -> None:
    document = make_document("1", is_open=is_open, body_bytes_max=1)
    used = set(find_references(document))
    kept = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "responses")
        for name in document["components"][kind]
    }
    assert used <= kept
    assert kept - used == ({"#/components/responses/401"} if is_open else set())


def test_tokens_are_in_the_document_only_if_they_are_asked_for() -> None:
    is_open = make_document("1", is_open=True, body_bytes_max=1)
    guarded = make_document("1", is_open=False, body_bytes_max=1)
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
