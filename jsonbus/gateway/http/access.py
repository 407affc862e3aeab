"""Who may do what: tokens of the gateway, and the rights that each of them carries.

Without tokens the gateway is open: everybody who reaches it may do everything. With tokens, a
client shows its secret (`Authorization: Bearer SECRET` over HTTP, `auth SECRET` as text) and may
do what the token names. Secrets are kept as SHA-256 digests only: a log line, a traceback or a
memory dump of this object shows no secret, and all digests are equally long, so the time that a
comparison takes says nothing about any of them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

RIGHTS = frozenset({"publish", "subscribe", "admin"})

# A line of the text protocol and a header must carry it; nobody types a longer one.
SECRET_CHARACTERS_MAX = 1024


class Access:
    """The tokens of one gateway. Any thread may ask; nothing changes after construction."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Iterable[tuple[str, frozenset[str]]] = ()) -> None:
        """Each token is a secret with its rights; "admin" means all rights.

        The same secret twice has the rights of both. Raises ValueError for an unknown right or
        none, and for an empty secret.
        """
        self._tokens = tuple((_digest(secret), _check_rights(rights)) for secret, rights in tokens)
        if any(digest == _digest("") for digest, _ in self._tokens):
            raise ValueError("a token is empty: give it a secret")

    @property
    def is_open(self) -> bool:
        """No token is configured: everybody may do everything."""
        return not self._tokens

    def rights_of(self, secret: str | None) -> frozenset[str]:
        """What the owner of the secret may do: nothing, if it is wrong or missing.

        Looks at every token, whichever fits, and compares digests in constant time.
        """
        if not self._tokens:
            return RIGHTS
        shown = _digest(secret or "")
        rights: frozenset[str] = frozenset()
        for digest, granted in self._tokens:
            if hmac.compare_digest(digest, shown):
                rights |= granted
        return rights


def read_token(text: str) -> tuple[str, frozenset[str]]:
    """A token as an option gives it: `SECRET` (all rights), or `publish=SECRET`,
    `publish+subscribe=SECRET`.

    A secret of its own may end in `=`, as base64 does, and has none elsewhere: so a right that is
    mistyped is an error, and not a secret that nobody knows. Raises ValueError with one sentence,
    in which no secret occurs.
    """
    words, equals, secret = text.partition("=")
    rights = frozenset(words.split("+"))
    if not equals or (not rights & RIGHTS and not secret.strip("=")):
        secret, rights = text, RIGHTS
    elif not rights <= RIGHTS:
        raise ValueError(
            "a token names a right that does not exist: use publish, subscribe or admin, "
            "joined by +, as in publish+subscribe=SECRET; a plain secret has = only at its end"
        )
    if not secret:
        raise ValueError("a token has no secret: write SECRET, or publish=SECRET")
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        # It must fit into a header and into a line of text, the same in both.
        raise ValueError(
            "a token's secret must be printable ASCII without spaces: choose another one"
        )
    if len(secret) > SECRET_CHARACTERS_MAX:
        raise ValueError(
            f"a token's secret has {len(secret):,} characters, at most "
            f"{SECRET_CHARACTERS_MAX:,} are allowed: choose a shorter one"
        )
    return secret, RIGHTS if "admin" in rights else rights


def _digest(secret: str) -> bytes:
    # A client may send anything, lone surrogates too: such a secret is wrong, not an error.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _check_rights(rights: frozenset[str]) -> frozenset[str]:
    unknown = sorted(rights - RIGHTS)
    if unknown or not rights:
        raise ValueError(
            f"a token has {'the unknown rights ' + ', '.join(unknown) if unknown else 'no rights'}"
            ": use publish, subscribe or admin"
        )
    return RIGHTS if "admin" in rights else frozenset(rights)
