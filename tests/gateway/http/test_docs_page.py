"""/docs: plain HTML, complete, and nothing in it that was not escaped."""

from __future__ import annotations

import shlex
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import pytest

from jsonbus.gateway.http.docs_page import DocsPage
from jsonbus.gateway.http.openapi import make_document
from tests.aio.running import asynctest
from tests.gateway.site import site

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that every element is closed, and keeps what the page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            assert not name.startswith("on")
            if name in ("href", "src"):
                self.links.append(value)
            if name == "id":
                self.ids.add(value)
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data


def make_page(host: str = "localhost:8080", *, is_open: bool = True) -> str:
    document = make_document("1.2.3", is_open=is_open, body_bytes_max=1_000)
    return DocsPage(document).render(host).decode()


@asynctest
async def test_the_page_names_every_route_and_needs_nothing_from_elsewhere() -> None:
    async with site() as here:
        answer = await here.http.get("/docs")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        page = Page(answer.text)
        for route in here.app.routes:
            shown = getattr(route, "path", "").replace(":path", "")
            assert any(shown in text for text in page.texts["code"]), shown
        assert "script" not in page.tags
        assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
        assert f"http://{here.server.address[0]}:{here.server.address[1]}/publish" in answer.text


@pytest.mark.parametrize("is_open", [True, False])
def test_its_examples_are_commands_for_a_shell(is_open: bool) -> None:
    page = Page(make_page(is_open=is_open))
    commands = [line for text in page.texts["pre"] for line in text.splitlines()]
    assert len(commands) == 13
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "curl"
        url = urlsplit(words[-1])
        assert (url.scheme, url.netloc) == ("http", "localhost:8080")
    with_token = [each for each in commands if "Authorization: Bearer TOKEN" in each]
    assert len(with_token) == (0 if is_open else 10)


def test_everything_in_it_is_escaped() -> None:
    nasty = "<script>alert('x')</script>&amp;\""
    document = make_document(nasty, is_open=False, body_bytes_max=1)
    document["info"]["title"] = document["info"]["summary"] = nasty
    operation = document["paths"]["/publish"]["post"]
    operation["summary"] = operation["description"] = operation["x-right"] = nasty
    operation["responses"][nasty] = {"description": nasty, "content": {nasty: {"schema": {}}}}
    operation["requestBody"]["description"] = nasty
    operation["requestBody"]["content"][nasty] = {}
    operation["requestBody"]["x-example"] = {nasty: nasty}
    parameter = document["paths"]["/publish"]["get"]["parameters"][0]
    parameter["name"] = parameter["description"] = parameter["example"] = nasty
    parameter["schema"] = {"enum": [nasty]}
    document["paths"]["/" + nasty] = {"get": operation}
    page = Page(DocsPage(document).render("localhost").decode())
    assert "script" not in page.tags
    assert nasty in page.texts["title"]


@pytest.mark.parametrize("host", ["<script>", "a b", "a';id;'", "", "a/b", "$(id)", "ä"])
def test_a_host_that_is_none_does_not_get_into_the_page(host: str) -> None:
    text = make_page(host)
    assert "http://localhost/publish" in text
    if host:
        assert f"http://{host}" not in text
