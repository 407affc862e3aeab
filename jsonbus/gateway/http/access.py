"""Tokens of the gateway, and the rights that each of them carries.

Without tokens the gateway is open: everybody who reaches it may do everything. With tokens, a
client shows its secret (`Authorization: Bearer SECRET` over HTTP, `auth SECRET` as text) and may
do what the token names. Only SHA-256 digests of secrets are kept: a log line, a traceback or a
memory dump of this object shows no secret, and all digests have the same length, so the time of a
comparison reveals nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

RIGHTS = frozenset({"publish", "subscribe", "admin"})

#: A secret must fit into a line of the text protocol and into a header.
SECRET_CHARACTERS_MAX = 1024


class Access:
    """The tokens of one gateway. Immutable, so any thread may call it."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Iterable[tuple[str, frozenset[str]]] = ()) -> None:
        """Take tokens as pairs of a secret and its rights; "admin" means all rights.

        A secret that is given twice has the rights of both. Raises ValueError for an unknown
        right or none, and for an empty secret.
        """
        self._tokens = tuple((_digest(secret), _check_rights(rights)) for secret, rights in tokens)
        if any(digest == _digest("") for digest, _ in self._tokens):
            raise ValueError("a token is empty: give it a secret")

    @property
    def is_open(self) -> bool:
        """True without tokens: everybody may do everything."""
        return not self._tokens

    def rights_of(self, secret: str | None) -> frozenset[str]:
        """Return the rights of a secret; none if it is wrong or missing.

        Compares with every token, in constant time.
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
    """Parse a token as an option gives it: `SECRET` (all rights), `publish=SECRET`, or
    `publish+subscribe=SECRET`.

    A plain secret may have `=` only at its end, as base64 does: so a mistyped right is an error,
    not a secret that nobody knows. Raises ValueError with one sentence, without the secret.
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
    # A client may send anything, even lone surrogates: such a secret is wrong, not an error.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _check_rights(rights: frozenset[str]) -> frozenset[str]:
    unknown = sorted(rights - RIGHTS)
    if unknown or not rights:
        raise ValueError(
            f"a token has {'the unknown rights ' + ', '.join(unknown) if unknown else 'no rights'}"
            ": use publish, subscribe or admin"
        )
    return RIGHTS if "admin" in rights else frozenset(rights)
