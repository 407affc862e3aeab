"""The gateway's own pages: Swagger UI at /docs, and the page at / without a dashboard.

A gateway often runs in a network without the internet. So the files of Swagger UI come from the
package fastapi-swagger, and the gateway serves them; nothing is loaded from other hosts.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from importlib.resources import files
from pathlib import Path

from fastapi.openapi.docs import get_swagger_ui_html

from .answers import NO_STORE

NOT_INSTALLED = (
    "The dashboard needs the extra web: run python3 -m pip install 'jsonbus[web]', and restart the "
    "gateway."
)
SWITCHED_OFF = "The dashboard is switched off: start the gateway without --no-dashboard."

_LOCKED = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

#: For a page that loads and runs nothing; its styles stand in the page.
PAGE_HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'unsafe-inline'; {_LOCKED}",
    "referrer-policy": "no-referrer",
    **NO_STORE,
}

_ASSETS = frozenset({"swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"})

_find_script = re.compile(r"<script>(.*?)</script>", re.DOTALL).search


def render_docs(title: str) -> tuple[str, dict[str, str]]:
    """Return Swagger UI's page with its headers: it may load files from the gateway only."""
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title=title,
        swagger_js_url="/docs/swagger-ui-bundle.js",
        swagger_css_url="/docs/swagger-ui.css",
        swagger_favicon_url="/docs/favicon-32x32.png",
        # A validator on the internet would be asked, outside of localhost.
        swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True},
    )
    text = bytes(page.body).decode()
    script = _find_script(text)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; connect-src 'self'; "
        # Swagger UI sets styles of elements, and its icons are data.
        f"style-src 'self' 'unsafe-inline'; img-src 'self' data:; {_LOCKED}"
    )
    return text, {**PAGE_HEADERS, "content-security-policy": policy}


def asset_path(name: str) -> Path | None:
    """Return the path of a file that the page loads; None if it loads no such file."""
    if name not in _ASSETS:
        return None
    return Path(str(files("fastapi_swagger.resources") / name))


def render_home(reason: str) -> str:
    """Return a page that says why there is no dashboard, and where to go instead."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>jsonbus gateway</title>
<style>:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto;
        padding: 0 1rem; }}
</style></head><body><h1>jsonbus gateway</h1><p>{escape(reason)}</p>
<p><a href="/docs">/docs</a> shows what else it offers.</p></body></html>
"""
