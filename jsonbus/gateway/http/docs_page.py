"""/docs: the OpenAPI document as a page, written here: no script, and nothing from other hosts.

A gateway often stands in a network without the internet, where the usual page, which loads its
script from elsewhere, stays empty.
"""

from __future__ import annotations

import json
import re
import shlex
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

Json = dict[str, Any]

HEADERS = (
    # Styles stand in the page; nothing is loaded, nothing runs, nobody may frame it.
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; "
        b"base-uri 'none'; form-action 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
)

_BASE = "http://gateway.invalid"
_is_plain_host = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?|\[[0-9A-Fa-f:]+\](:[0-9]+)?").fullmatch

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-top: 1px solid #8884; padding-top: 1rem; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: #8882; padding: .7rem; overflow-x: auto; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0;
         border-bottom: 1px solid #8883; }
.method { font-weight: 700; margin-right: .4rem; }
"""


class DocsPage:
    """The page, made once; only the host in its examples differs from request to request."""

    def __init__(self, document: Json) -> None:
        self._page = _render(document)

    def render(self, host: str) -> bytes:
        """The page with examples for the host by which the reader came."""
        base = f"http://{host}" if _is_plain_host(host) else "http://localhost"
        return self._page.replace(_BASE, base).encode()


def _render(document: Json) -> str:
    info = document["info"]
    title = escape(info["title"])
    sections = [
        _render_path(document, path, operations) for path, operations in document["paths"].items()
    ]
    links = " · ".join(
        f'<a href="#{_anchor(path)}"><code>{escape(path)}</code></a>' for path in document["paths"]
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title} <small>{escape(info['version'])}</small></h1>",
            f"<p>{escape(info['summary'])} {escape(info['description'])}</p>",
            f"<nav>{links}</nav>",
            *sections,
            "</body></html>",
            "",
        ]
    )


def _render_path(document: Json, path: str, operations: Json) -> str:
    # GET and POST of one path say the same: the one with a body has all of it.
    operation = operations["post" if "post" in operations else "get"]
    with_query = operations["get"] if "get" in operations else operation
    parameters = with_query.get("parameters", ())
    methods = "".join(f'<span class="method">{escape(each.upper())}</span>' for each in operations)
    parts = [
        f'<section id="{_anchor(path)}">',
        f"<h2>{methods}<code>{escape(path)}</code></h2>",
        f"<p><strong>{escape(operation['summary'])}.</strong> "
        f"{escape(operation.get('description', ''))}</p>",
    ]
    if "security" in operation:
        parts.append(f"<p>Needs a token with the right to {escape(operation['x-right'])}.</p>")
    if parameters:
        parts.append(_render_parameters(parameters))
    if "requestBody" in operation:
        kinds = ", ".join(
            f"<code>{escape(each)}</code>" for each in operation["requestBody"]["content"]
        )
        text = escape(operation["requestBody"]["description"])
        parts.append(f"<p>Body: {kinds}. {text}</p>")
    examples = [_example(path, method, each) for method, each in operations.items()]
    parts.append(f"<pre>{escape(chr(10).join(examples))}</pre>")
    parts.append(_render_responses(document, operation["responses"]))
    parts.append("</section>")
    return "\n".join(parts)


def _render_parameters(parameters: list[Json]) -> str:
    rows = [
        f"<tr><td><code>{escape(each['name'])}</code></td>"
        f"<td>{'required' if each.get('required') else 'optional'}</td>"
        f"<td>{escape(each.get('description', ''))}{_limit(each['schema'])}</td></tr>"
        for each in parameters
    ]
    return f"<table><tr><th>Parameter</th><th></th><th></th></tr>{''.join(rows)}</table>"


def _limit(schema: Json) -> str:
    if "maxLength" in schema:
        return f" At most {schema['maxLength']:,} characters."
    if "enum" in schema:
        return f" {escape(' or '.join(schema['enum']))}."
    return ""


def _render_responses(document: Json, responses: Json) -> str:
    rows = []
    for status, response in responses.items():
        if "$ref" in response:
            response = _find(document, response["$ref"])
        text = escape(response["description"])
        for media, content in response.get("content", {}).items():
            if status == "200":
                shown = _shape(document, content["schema"])
                text += f" <code>{escape(media)}</code> <code>{escape(shown)}</code>"
        rows.append(f"<tr><td><code>{escape(status)}</code></td><td>{text}</td></tr>")
    return f"<table><tr><th>Status</th><th></th></tr>{''.join(rows)}</table>"


def _shape(document: Json, schema: Json) -> str:
    """What an answer looks like, in one line."""
    if "$ref" in schema:
        schema = _find(document, schema["$ref"])
    if "const" in schema:
        return json.dumps(schema["const"])
    kind = schema.get("type", "any")
    if kind == "object" and "properties" in schema:
        members = (
            f'"{name}": {_shape(document, each)}' for name, each in schema["properties"].items()
        )
        return "{" + ", ".join(members) + "}"
    if kind == "array":
        return f"[{_shape(document, schema['items'])}, …]"
    return kind if isinstance(kind, str) else " or ".join(kind)


def _find(document: Json, reference: str) -> Json:
    found = document
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def _example(path: str, method: str, operation: Json) -> str:
    """A command that can be pasted into a shell."""
    words = ["curl"]
    if any("token" in each for each in operation.get("security", ())):
        words += ["-H", "Authorization: Bearer TOKEN"]
    query: list[tuple[str, str]] = []
    for parameter in operation.get("parameters", ()):
        example = parameter.get("example")
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", quote(str(example)))
        elif parameter.get("required"):
            values = example if isinstance(example, list) else [example]
            query += [(parameter["name"], str(value)) for value in values]
    if "text/event-stream" in operation["responses"]["200"]["content"]:
        words.append("-N")
    if method == "post":
        words += ["--json", json.dumps(_example_body(operation))]
    url = _BASE + path + (f"?{urlencode(query, safe='*/:')}" if query else "")
    return " ".join(shlex.quote(word) for word in [*words, url])


def _example_body(operation: Json) -> Any:
    examples: Json = operation["requestBody"].get("x-example", {"temperature": 21.5})
    return examples


def _anchor(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-") or "root"


NOT_INSTALLED = (
    "The dashboard needs the extra web: python3 -m pip install 'jsonbus[web]', and start the "
    "gateway anew."
)
SWITCHED_OFF = "The dashboard is switched off: start the gateway without --no-dashboard."


def render_home(reason: str) -> bytes:
    """A page with the reason, and where to go instead."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>jsonbus gateway</title>
<style>:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto;
        padding: 0 1rem; }}
</style></head><body><h1>jsonbus gateway</h1><p>{escape(reason)}</p>
<p><a href="/docs">/docs</a> tells what else it offers.</p></body></html>
""".encode()
