"""What `/` says where there is no dashboard."""

from __future__ import annotations

from html import escape

from .docs_page import HEADERS

__all__ = ["HEADERS", "NOT_INSTALLED", "SWITCHED_OFF", "render_home"]

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
