from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jsonbus.errors import StoreError
from jsonbus.gateway.webhooks import schema as webhook_file
from jsonbus.gateway.webhooks.commands import Accept, Settle, Subscribe
from jsonbus.gateway.webhooks.schema import FILE_NAME, STEPS, FolderLock, connect
from jsonbus.gateway.webhooks.store import WebhookStore
from tests.small_disk import small_disk

ONE_MORE = (*STEPS, ("ALTER TABLE messages ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",))


def version_of(folder: Path) -> int:
    database = sqlite3.connect(folder / FILE_NAME)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        return int(version)
    finally:
        database.close()


def store_something(folder: Path) -> bytes:
    store = WebhookStore(folder)
    store.open()
    try:
        store.commit([Subscribe("anna", "a", "http://h/")])
        (batch,) = store.commit([Accept([("a", b"1", (1,))])]).batches
        return batch.body
    finally:
        store.close()


def test_a_fresh_file_has_the_newest_version_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    store = WebhookStore(folder)
    store.open()
    try:
        rights = stat.S_IMODE((folder / FILE_NAME).stat().st_mode)
        store.commit([Subscribe("anna", "a", "http://h/?token=secret")])
        rights_of_wal = stat.S_IMODE((folder / (FILE_NAME + "-wal")).stat().st_mode)
    finally:
        store.close()
    assert version_of(folder) == len(STEPS)
    assert rights == rights_of_wal == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    database = connect(tmp_path)
    try:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    finally:
        database.close()


def test_an_older_file_is_brought_to_the_newest_version_with_what_it_holds(tmp_path: Path) -> None:
    body = store_something(tmp_path)
    store = WebhookStore(tmp_path, steps=ONE_MORE)
    contents = store.open()
    store.close()
    assert version_of(tmp_path) == len(ONE_MORE)
    assert [batch.body for batch in contents.batches] == [body]


def test_a_step_that_fails_leaves_the_old_version_intact(tmp_path: Path) -> None:
    body = store_something(tmp_path)
    steps = (*STEPS, ("ALTER TABLE messages ADD COLUMN priority", "ALTER TABLE nowhere ADD x"))
    with pytest.raises(StoreError, match=r"stays at version 1 .* the step to 2 failed: .*nowhere"):
        WebhookStore(tmp_path, steps=steps).open()
    assert version_of(tmp_path) == len(STEPS)
    store = WebhookStore(tmp_path)
    assert [batch.body for batch in store.open().batches] == [body]
    store.close()
    database = sqlite3.connect(tmp_path / FILE_NAME)
    columns = [row[1] for row in database.execute("PRAGMA table_info(messages)")]
    database.close()
    assert "priority" not in columns


def test_a_file_of_a_newer_gateway_is_refused_and_left_alone(tmp_path: Path) -> None:
    newer = WebhookStore(tmp_path, steps=ONE_MORE)
    newer.open()
    newer.close()
    with pytest.raises(StoreError, match=r"newer gateway \(version 2 .* this one knows 1\)"):
        WebhookStore(tmp_path).open()
    assert version_of(tmp_path) == len(ONE_MORE)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = b"Dear diary, this is not a database at all. " * 100
    (tmp_path / FILE_NAME).write_bytes(text)
    with pytest.raises(StoreError, match="is not a SQLite database: move it away"):
        WebhookStore(tmp_path).open()
    assert (tmp_path / FILE_NAME).read_bytes() == text


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("CREATE TABLE bookmarks (url)")
    database.close()
    with pytest.raises(StoreError, match="a database of another program"):
        WebhookStore(tmp_path).open()
    database = sqlite3.connect(tmp_path / FILE_NAME)
    tables = database.execute("SELECT name FROM sqlite_master").fetchall()
    database.close()
    assert tables == [("bookmarks",)]


def test_a_damaged_file_is_named_as_such(tmp_path: Path) -> None:
    store_something(tmp_path)
    with open(tmp_path / FILE_NAME, "r+b") as file:
        file.seek(4096)  # all pages but the first, with the header and the list of tables
        file.write(b"\xff" * (os.path.getsize(tmp_path / FILE_NAME) - 4096))
    with pytest.raises(StoreError, match="is damaged"):
        WebhookStore(tmp_path).open()
    FolderLock(tmp_path).release()  # the failed attempt has given it free


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid():
        tmp_path.chmod(0o500)
        yield tmp_path
        tmp_path.chmod(0o700)
    else:  # root may write wherever the file system can be written
        with small_disk(tmp_path) as folder:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            yield folder


def test_a_read_only_folder_is_refused_with_a_sentence(read_only_folder: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be opened for writing .*: let the gateway"):
        WebhookStore(read_only_folder).open()


def test_a_folder_that_is_a_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        WebhookStore(tmp_path / "file").open()


def test_a_folder_has_one_owner_whose_number_the_second_is_told(tmp_path: Path) -> None:
    first = WebhookStore(tmp_path)
    first.open()
    with pytest.raises(StoreError, match=rf"process {os.getpid()}\) keeps its webhooks in"):
        WebhookStore(tmp_path).open()
    first.close()
    first.close()  # again is nothing
    second = WebhookStore(tmp_path)
    second.open()
    second.close()


def test_every_file_counts_its_deliveries_under_a_name_of_its_own(tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        store = WebhookStore(tmp_path / name)
        store.open()
        store.commit([Subscribe("anna", "a", "http://h/")])
        (batch,) = store.commit([Accept([("a", b"1", (1,))])]).batches
        ids.add(batch.delivery_id)
        store.close()
    assert len(ids) == 2


@pytest.mark.parametrize("lost", [FILE_NAME, FILE_NAME + "-wal"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_lost_its_name_takes_nothing_new_until_it_is_back(
    tmp_path: Path, lost: str, is_replaced: bool
) -> None:
    store_something(tmp_path)
    store = WebhookStore(tmp_path)
    (batch,) = store.open().batches
    message = Accept([("a", b"2", (batch.subscriber,))])
    store.commit([message])
    (tmp_path / lost).rename(tmp_path / "elsewhere")
    if is_replaced:
        (tmp_path / lost).touch()
    with pytest.raises(StoreError, match=f"{lost} was deleted or replaced .* restart"):
        store.commit([message])
    store.commit([Settle(batch.subscriber, batch.last)])  # what is delivered can be forgotten
    (tmp_path / "elsewhere").rename(tmp_path / lost)
    store.commit([message])
    store.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc")
def test_nothing_is_written_but_in_the_folder(tmp_path: Path) -> None:
    store = WebhookStore(tmp_path)
    store.open()
    # One statement adds to the pages of many subscribers, each with pages of its own: SQLite
    # remembers what they were, and puts more than 64 KiB of that into a temporary file.
    subscribers = range(1, 61)
    store.commit([Subscribe(f"anna {each}", "a", "http://h/") for each in subscribers])
    for _ in range(5):
        store.commit([Accept([("a", b"1", subscribers)] * 200)])
    descriptors = Path("/proc/self/fd").iterdir()
    files = [os.readlink(each) for each in descriptors if os.path.lexists(each)]
    store.close()
    assert not [each for each in files if "etilqs" in each]  # SQLite's name for temporary files


def test_a_folder_that_is_unmounted_takes_nothing_new(tmp_path: Path) -> None:
    with small_disk(tmp_path, 64 << 20):
        store = WebhookStore(tmp_path)
        store.open()
        store.commit([Subscribe("anna", "a", "http://h/")])
    with pytest.raises(StoreError, match="was deleted or replaced"):
        store.commit([Subscribe("anna", "b", "http://h/")])
    store.close()


def test_errors_without_a_known_cause_name_the_file_and_the_error() -> None:
    error = webhook_file.explain(OSError(5, "Input/output error"), Path("/data/x.db"))
    assert str(error) == (
        "/data/x.db cannot be used ([Errno 5] Input/output error): "
        "check its disk, and try again later"
    )
