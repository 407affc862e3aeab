"""Key files: what is read, what is refused, and that no text ever has a secret."""

from __future__ import annotations

import json
import logging
import os
import traceback
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.errors import ConfigError
from jsonbus.sealed.keys import (
    FILE_BYTES_MAX,
    KeySource,
    format_ring,
    parse_ring,
    read_ring,
    read_time,
)
from tests.sealed.material import (
    OTHER_SECRET,
    SECRET,
    START,
    START_WALL,
    key,
    ring,
    shows_secret,
    write_ring,
)

SECRET_TEXT = key()["secret"]


def test_a_file_has_a_bus_and_its_keys(tmp_path: Path) -> None:
    read = read_ring(write_ring(tmp_path / "plant.key", ring(key(), key("k2", OTHER_SECRET))))
    assert read.bus == "plant"
    assert [(each.id, each.secret) for each in read.keys] == [("k1", SECRET), ("k2", OTHER_SECRET)]
    assert read.keys[0].usable_from == START_WALL


def test_a_ring_is_written_as_it_was_read() -> None:
    assert format_ring(parse_ring(ring(key(), key("k2")))) == ring(key(), key("k2"))


def test_the_wire_id_depends_on_secret_bus_and_id() -> None:
    rings = [ring(), ring(bus="shop"), ring(key("k2")), ring(key(secret=OTHER_SECRET))]
    ids = {parsed.wire_id(parsed.keys[0]) for parsed in map(parse_ring, rings)}
    assert len(ids) == 4


def test_the_wire_id_is_the_one_of_the_format() -> None:
    parsed = parse_ring(ring())
    assert parsed.wire_id(parsed.keys[0]).hex() == "a2c9565a"


def test_a_key_is_found_by_its_wire_id() -> None:
    parsed = parse_ring(ring(key(), key("k2", OTHER_SECRET)))
    assert parsed.find(parsed.wire_id(parsed.keys[1])) is parsed.keys[1]
    assert parsed.find(b"none") is None


@pytest.mark.parametrize(
    ("wall", "expected"),
    [(0, "now"), (START_WALL, "now"), (START_WALL + 1, "now"), (START_WALL + 3600, "later")],
)
def test_the_newest_key_whose_time_has_come_seals(wall: float, expected: str) -> None:
    later = key("later", OTHER_SECRET, "2026-11-18T01:00:00Z")
    for keys in ([key("now"), later], [later, key("now")]):
        assert parse_ring(ring(*keys)).sealing_key(wall).id == expected


def test_of_two_keys_from_the_same_time_the_last_one_seals() -> None:
    assert parse_ring(ring(key("a"), key("b"))).sealing_key(START_WALL).id == "b"


@pytest.mark.parametrize("text", [START, "2026-11-18T01:00:00+01:00", "2026-11-18"])
def test_a_time_may_be_written_as_iso_8601_allows(text: str) -> None:
    assert read_time(text) == START_WALL


def without(name: str) -> dict[str, Any]:
    return {field: value for field, value in key().items() if field != name}


@pytest.mark.parametrize(
    ("parsed", "reason"),
    [
        ([], "not a key file"),
        ({"bus": "plant"}, "not a key file"),
        (None, "not a key file"),
        ({**ring(), "jsonbus-key": 2}, "another version"),
        ({**ring(), "jsonbus-key": True}, "another version"),
        ({**ring(), "bus": SECRET_TEXT * 2}, '"bus" must be 1 to 64 bytes of text'),
        ({**ring(), "bus": 5}, '"bus" must be'),
        ({**ring(), "keys": []}, "1 to 100 keys"),
        ({**ring(), "keys": key()}, "1 to 100 keys"),
        ({**ring(), "keys": [key(str(number)) for number in range(101)]}, "1 to 100 keys"),
        (ring(key(), key()), "same id"),
        (ring(SECRET_TEXT), "key 1 must be an object"),  # type: ignore[arg-type]
        (ring(key(), key("k2", topics=["doors/**"])), "keys for topics need a later version"),
        (ring(key(topcis=["doors/**"])), "key 1 has a field that this version"),
        (ring({**key(), "id": START, "secret": SECRET_TEXT[:-4]}), '"secret" of key 1'),
        (ring({**key(), "id": SECRET_TEXT, "secret": "k1"}), '"secret" of key 1'),
        (ring({**key(), "from": SECRET_TEXT, "secret": START}), '"secret" of key 1'),
        (ring({**key(), "id": f"my {SECRET_TEXT}"}), '"id" of key 1'),
        (ring({**key(), "id": "a,b"}), '"id" of key 1'),
        (ring({**key(), "id": ""}), '"id" of key 1'),
        (ring({**key(), "id": "\ud800"}), '"id" of key 1'),
        (ring(without("id")), '"id" of key 1'),
        (ring(without("secret")), '"secret" of key 1'),
        (ring(without("from")), '"from" of key 1'),
        (ring({**key(), "from": SECRET_TEXT}), '"from" of key 1'),
        (ring({**key(), "from": 5}), '"from" of key 1'),
        (ring({**key(), "secret": SECRET_TEXT + "\n"}), '"secret" of key 1'),
    ],
)
def test_what_is_no_ring_is_refused_without_telling_a_secret(parsed: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ring(parsed)
    assert reason in str(caught.value)
    assert not shows_secret("".join(traceback.format_exception(caught.value)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.sampled_from(["jsonbus-key", "bus", "keys", "id", "secret", "from"]), json_values)
def test_whatever_a_field_has_the_file_is_read_or_refused(field: str, value: Any) -> None:
    parsed = ring({**key(), field: value}) if field in key() else {**ring(), field: value}
    try:
        read = parse_ring(parsed)
    except ConfigError as error:
        assert not shows_secret(error)
    else:
        assert parse_ring(format_ring(read)).bus == read.bus


def test_a_key_does_not_show_its_secret() -> None:
    parsed = parse_ring(ring())
    for shown in (parsed, parsed.keys[0], KeySource(ring())):
        assert not shows_secret(f"{shown} {shown!r}")
    with pytest.raises(FrozenInstanceError):
        parsed.bus = "shop"  # type: ignore[misc]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_may_read_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = write_ring(tmp_path / "the plant.key", ring())
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"run chmod 600 '{path}'$"):
        read_ring(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the key file .*/no\.key: No such file"):
        KeySource(tmp_path / "no.key")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ring())[:-1],
        json.dumps(ring()) + " " * FILE_BYTES_MAX,
        "[" * FILE_BYTES_MAX,
        "\udc80",
        "",
    ],
    ids=["cut", "too large", "too deep", "not text", "empty"],
)
def test_a_file_that_is_not_json_is_refused_without_telling_a_secret(
    tmp_path: Path, text: str
) -> None:
    path = write_ring(tmp_path / "plant.key", {})
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError, match="plant.key: this is not a key file") as caught:
        read_ring(path)
    error: BaseException | None = caught.value
    while error is not None:  # a debugger shows the errors before, with all that they hold
        assert not shows_secret(f"{error!r} {vars(error)}")
        error = error.__context__


def test_a_source_has_the_ring_of_its_object() -> None:
    source = KeySource(ring())
    assert source.ring.bus == "plant"
    assert not source.renew()


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    source = KeySource(path)
    assert not source.renew()
    write_ring(path, ring(key(), key("k2", OTHER_SECRET)))
    assert source.renew()
    assert [each.id for each in source.ring.keys] == ["k1", "k2"]
    assert not source.renew()


def test_a_file_that_was_written_again_with_the_same_keys_changes_nothing(tmp_path: Path) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    source = KeySource(path)
    write_ring(path, ring())
    assert not source.renew()


def damage(path: Path, how: str) -> None:
    match how:
        case "gone":
            path.unlink()
        case "cut":
            path.write_text(json.dumps(ring())[:-9])
        case "open to others":
            path.chmod(0o644)
        case "of another bus":
            write_ring(path, ring(bus="shop"))


@pytest.mark.parametrize("how", ["gone", "cut", "open to others", "of another bus"])
def test_a_file_that_goes_wrong_keeps_the_old_keys_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    source = KeySource(path)
    before = source.ring
    with caplog.at_level(logging.WARNING, "jsonbus.sealed"):
        damage(path, how)
        assert not source.renew()
        if path.exists():
            os.utime(path, (1, 1))  # as if it had been written again
        assert not source.renew()
    assert source.ring is before
    assert len(caplog.records) == 1
    assert "the keys from before stay in use" in caplog.text
    assert not shows_secret(caplog.text)


def test_a_file_that_was_mended_is_used_again(tmp_path: Path) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    source = KeySource(path)
    write_ring(path, ring(key("k2")))
    path.chmod(0o644)
    assert not source.renew()
    path.chmod(0o600)
    assert source.renew()
    assert source.ring.keys[0].id == "k2"
