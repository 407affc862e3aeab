"""The form that asks for a token: plain HTML without scripts or files."""

from __future__ import annotations

from html import escape

from ..http.answers import NO_STORE

_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": _CSP,
    # Not no-referrer: it would give the form the origin "null".
    "referrer-policy": "same-origin",
    # Tells a page that its session is over.
    "jsonbus-login": "needed",
    **NO_STORE,
}

_STYLE = """
:root { color-scheme: light dark; --line: #d9dee7; --paper: #f5f7fa; --card: #fff; --ink: #18212f;
        --soft: #5d6b82; --accent: #0b7285; }
@media (prefers-color-scheme: dark) { :root { --line: #263041; --paper: #0d1219; --card: #151c26;
        --ink: #e6ebf2; --soft: #93a1b8; --accent: #22b8cf; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 16px;
       font: 15px/1.5 system-ui, sans-serif; background: var(--paper); color: var(--ink); }
form { width: 100%; max-width: 360px; padding: 28px; background: var(--card);
       border: 1px solid var(--line); border-radius: 12px; }
h1 { font-size: 20px; margin: 0 0 4px; }
p { margin: 0 0 18px; color: var(--soft); }
label { display: block; font-size: 13px; color: var(--soft); margin-bottom: 6px; }
input { width: 100%; padding: 10px 12px; font: inherit; color: inherit; background: var(--paper);
        border: 1px solid var(--line); border-radius: 8px; }
input:focus-visible, button:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
button { width: 100%; margin-top: 16px; padding: 10px; font: inherit; font-weight: 600; border: 0;
         border-radius: 8px; color: #fff; background: #0b7285; cursor: pointer; }
.wrong { color: #e03131; margin: 12px 0 0; }
"""


def render_login(node: str, place: str = "", reason: str | None = None) -> str:
    """Return the page; `place` is the query to return to, `reason` why the last token was
    refused."""
    action = escape(f"/login?{place}" if place else "/login")
    wrong = "" if reason is None else f'<p class="wrong" role="alert">{escape(reason)}</p>'
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>jsonbus</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>
<form method="post" action="{action}">
<h1>jsonbus</h1><p>{escape(node)}</p>
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button>{wrong}
</form></body></html>
"""
