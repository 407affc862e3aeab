"""Key files: made once, changed as a whole, never readable for others."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from jsonbus.errors import ConfigError
from jsonbus.sealed import key_file
from jsonbus.sealed.keys import KeyRing, parse_ring, read_ring
from tests.sealed.material import START, START_WALL, key, ring, write_ring

RING = parse_ring(ring())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_ring_has_one_random_key_that_seals_now() -> None:
    first, second = (key_file.make_ring(None, None, None) for _ in range(2))
    assert [each.id for each in first.keys] == ["bus"]
    assert first.keys[0].secret != second.keys[0].secret
    assert first.keys[0].usable_from <= time.time() < first.keys[0].usable_from + 60
    assert first.bus.count("-") == 2


def test_name_id_and_time_can_be_chosen() -> None:
    made = key_file.make_ring("plant", "k1", START)
    assert (made.bus, made.keys[0].id, made.keys[0].usable_from) == ("plant", "k1", START_WALL)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (("my plant", None, None), "the name of a bus must be"),
        (("plant", "a,b", None), '"id" of key 1'),
        (("plant", None, "tomorrow"), "'tomorrow' is no time"),
        (("plant", None, "9999-99-99"), "is no time"),
    ],
)
def test_what_no_file_may_have_is_refused(
    chosen: tuple[str, str | None, str | None], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        key_file.make_ring(*chosen)


def test_keys_that_are_added_are_numbered() -> None:
    more: KeyRing = key_file.make_ring("plant", None, START)
    for _ in range(3):
        more = key_file.add_key(more, None, None)
    assert [each.id for each in more.keys] == ["bus", "bus-2", "bus-3", "bus-4"]
    fewer = key_file.drop_key(more, "bus-3")
    assert key_file.add_key(fewer, None, None).keys[-1].id == "bus-5"
    with pytest.raises(ConfigError, match="same id"):
        key_file.add_key(more, "bus-2", None)


def test_a_key_is_dropped_unless_it_is_the_only_one() -> None:
    two = parse_ring(ring(key("a"), key("b")))
    assert [each.id for each in key_file.drop_key(two, "a").keys] == ["b"]
    with pytest.raises(ConfigError, match="'k1' is the only key"):
        key_file.drop_key(RING, "k1")
    with pytest.raises(ConfigError, match="there is no key 'c': there are a, b"):
        key_file.drop_key(two, "c")


def test_some_keys_are_chosen_with_their_secrets() -> None:
    three = parse_ring(ring(key("a"), key("b"), key("c")))
    assert key_file.choose_keys(three, ["c", "a"]).keys == (three.keys[0], three.keys[2])
    with pytest.raises(ConfigError, match="there is no key 'd'"):
        key_file.choose_keys(three, ["a", "d"])


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "plant.key"
    before = os.umask(0)
    try:
        key_file.create(path, RING)
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600
    assert read_ring(path) == RING


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    with pytest.raises(ConfigError, match="exists already"):
        key_file.create(path, key_file.make_ring(None, None, None))
    assert read_ring(path) == RING


def test_a_file_that_is_changed_stays_for_its_owner_and_leaves_nothing_beside_it(
    tmp_path: Path,
) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    other = parse_ring(ring(key("k2")))
    key_file.replace(path, other)
    assert read_ring(path) == other
    assert mode_of(path) == 0o600
    assert os.listdir(tmp_path) == ["plant.key"]


def test_of_a_link_the_file_it_leads_to_is_changed(tmp_path: Path) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    link = tmp_path / "link.key"
    link.symlink_to(path)
    other = parse_ring(ring(key("k2")))
    key_file.replace(link, other)
    assert link.is_symlink()
    assert read_ring(path) == other


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_file_that_root_changes_still_belongs_to_its_owner(tmp_path: Path) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    os.chown(path, 1234, 1235)
    key_file.replace(path, RING)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)


def test_a_place_where_nothing_can_be_written_is_told(tmp_path: Path) -> None:
    for write in (key_file.create, key_file.replace):
        with pytest.raises(ConfigError, match=r"cannot write .*: No such file"):
            write(tmp_path / "none" / "plant.key", RING)
