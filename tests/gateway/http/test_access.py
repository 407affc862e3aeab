"""Tokens and their rights."""

from __future__ import annotations

import hmac

import pytest

from jsonbus.gateway.http import access
from jsonbus.gateway.http.access import RIGHTS, Access, read_token

PUBLISH = frozenset({"publish"})
SUBSCRIBE = frozenset({"subscribe"})


def test_without_tokens_everybody_may_do_everything() -> None:
    assert Access().is_open
    assert Access().rights_of(None) == RIGHTS
    assert Access().rights_of("whatever") == RIGHTS


def test_a_secret_has_the_rights_of_its_token_and_no_other() -> None:
    tokens = Access([("one", PUBLISH), ("two", SUBSCRIBE), ("three", frozenset({"admin"}))])
    assert not tokens.is_open
    assert tokens.rights_of("one") == PUBLISH
    assert tokens.rights_of("two") == SUBSCRIBE
    assert tokens.rights_of("three") == RIGHTS


@pytest.mark.parametrize("secret", [None, "", "on", "onee", "ONE", " one", "ö", "\udc80", "\x00"])
def test_a_wrong_secret_has_no_rights(secret: str | None) -> None:
    assert Access([("one", RIGHTS)]).rights_of(secret) == frozenset()


def test_the_same_secret_twice_has_the_rights_of_both() -> None:
    assert Access([("one", PUBLISH), ("one", SUBSCRIBE)]).rights_of("one") == PUBLISH | SUBSCRIBE


def test_every_token_is_compared_in_constant_time_whichever_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = []

    def compare_and_note(left: bytes, right: bytes) -> bool:
        lengths.append((len(left), len(right)))
        return hmac.compare_digest(left, right)

    class Noting:
        compare_digest = staticmethod(compare_and_note)

    tokens = Access([(secret, PUBLISH) for secret in ("a", "b" * 50, "c")])
    monkeypatch.setattr(access, "hmac", Noting)
    for secret in ("a", "b" * 50, "c", "wrong", None):
        lengths.clear()
        tokens.rights_of(secret)
        assert lengths == [(32, 32)] * 3


def test_no_secret_can_be_read_off_the_object() -> None:
    tokens = Access([("hidden-secret", PUBLISH)])
    assert "hidden-secret" not in repr(tokens)
    assert "hidden-secret" not in repr(tokens._tokens)


@pytest.mark.parametrize(
    ("rights", "reason"),
    [
        (frozenset(), "no rights"),
        (frozenset({"write"}), "unknown rights write"),
    ],
)
def test_a_token_with_wrong_rights_is_refused(rights: frozenset[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Access([("secret", rights)])


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Access([("", PUBLISH)])


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("secret", ("secret", RIGHTS)),
        ("publish=secret", ("secret", PUBLISH)),
        ("subscribe+publish=secret", ("secret", PUBLISH | SUBSCRIBE)),
        ("admin=secret", ("secret", RIGHTS)),
        ("publish=YWJj==", ("YWJj==", PUBLISH)),
        ("YWJj==", ("YWJj==", RIGHTS)),
        ("publish", ("publish", RIGHTS)),
        ("publish=" + "x" * 1024, ("x" * 1024, PUBLISH)),
    ],
)
def test_a_token_is_read_as_an_option_gives_it(
    text: str, token: tuple[str, frozenset[str]]
) -> None:
    assert read_token(text) == token


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no secret"),
        ("publish=", "no secret"),
        ("publish+write=geheim", "a right that does not exist"),
        ("publsh=geheim", "a right that does not exist"),
        ("geheim geheim", "printable ASCII"),
        ("publish=geheim\n", "printable ASCII"),
        ("gehéim", "printable ASCII"),
        ("geheim" * 200, "1,200 characters, at most 1,024"),
    ],
)
def test_a_token_that_is_none_is_refused_in_one_sentence_without_the_secret(
    text: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        read_token(text)
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)
