"""Keys, key files and datagrams for the tests of the sealed bus."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

SECRET = bytes(range(32))
OTHER_SECRET = bytes(range(100, 132))

START = "2026-11-18T00:00:00Z"
START_WALL = 1_794_960_000.0


def key(
    name: str = "k1", secret: bytes = SECRET, usable_from: str = START, **more: Any
) -> dict[str, Any]:
    return {
        "id": name,
        "secret": base64.b64encode(secret).decode(),
        "from": usable_from,
        **more,
    }


def ring(*keys: dict[str, Any], bus: str = "plant") -> dict[str, Any]:
    return {"jsonbus-key": 1, "bus": bus, "keys": list(keys or (key(),))}


def write_ring(path: Path, parsed: object) -> Path:
    """Write a key file as keygen does: whole, and for its owner alone."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(parsed))
    new.replace(path)
    return path


def shows_secret(text: object, *secrets: bytes) -> bool:
    """Whether the text has a secret, in any form in which one might get there."""
    shown = str(text)
    return any(
        form in shown
        for secret in (secrets or (SECRET, OTHER_SECRET))
        for form in (
            base64.b64encode(secret).decode()[:16],
            secret.hex()[:16],
            repr(secret)[2:20],
            repr(list(secret))[1:20],
        )
    )
