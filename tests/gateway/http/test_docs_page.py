"""/docs and /: pages of the gateway that load nothing from other hosts."""

from __future__ import annotations

import base64
import hashlib
import re

from jsonbus.gateway.http.docs_page import render_home
from tests.aio.running import asynctest
from tests.gateway.site import site


def policy_of(header: str) -> dict[str, list[str]]:
    parts = (part.split() for part in header.split(";"))
    return {name: values for name, *values in parts}


@asynctest
async def test_docs_loads_its_files_and_the_document_from_the_gateway_alone() -> None:
    async with site() as here:
        answer = await here.http.get("/docs")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert "http" not in answer.text.replace("html", "")
        loaded = re.findall(r"(?:href|src)=\"(.*?)\"", answer.text)
        assert len(loaded) == 3
        for path in loaded:
            file = await here.http.get(path)
            assert file.status_code == 200
            assert file.headers["x-content-type-options"] == "nosniff"
            assert (await here.http.head(path)).headers["content-length"] == str(len(file.content))
        assert '"url": "/openapi.json"' in answer.text or "url: '/openapi.json'" in answer.text


@asynctest
async def test_the_policy_of_docs_allows_its_own_script_and_no_other() -> None:
    async with site() as here:
        answer = await here.http.get("/docs")
        policy = policy_of(answer.headers["content-security-policy"])
        [script] = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert policy["script-src"] == ["'self'", f"'sha256-{digest}'"]
        assert policy["connect-src"] == ["'self'"]
        for name in ("default-src", "frame-ancestors", "base-uri", "form-action"):
            assert policy[name] == ["'none'"]


@asynctest
async def test_docs_serves_no_other_file() -> None:
    async with site() as here:
        for name in ("__init__.py", "..%2Fmain.py", "%2E%2E", "x", "swagger-ui.css%00"):
            answer = await here.http.get(f"/docs/{name}")
            assert answer.status_code == 404
            assert "see /docs" in answer.json()["error"]


@asynctest
async def test_home_says_why_there_is_no_dashboard() -> None:
    async with site() as here:
        answer = await here.http.get("/")
        assert "The dashboard is switched off" in answer.text
        assert policy_of(answer.headers["content-security-policy"])["default-src"] == ["'none'"]
    assert "&lt;b&gt;" in render_home("<b>")
