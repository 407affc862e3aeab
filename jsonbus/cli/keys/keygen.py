from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..command import note
from ..lib.output import Output
from ..lib.parameters import flag, option

if TYPE_CHECKING:
    from jsonbus.sealed.keys import KeyRing


@click.command(
    "keygen",
    epilog="""\b
Examples:
  jsonbus keygen plant.key                     make keys; copy the file to each machine
  jsonbus keygen --show plant.key
  jsonbus keygen --add plant.key --from 2026-12-01T00:00:00Z
                                               a key that takes over then
  jsonbus keygen --drop bus plant.key          end the old one
  jsonbus keygen --export plant.key --ids bus > kitchen.key
""",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@flag("--show", "Show ids and dates of the keys in FILE, never secrets.")
@flag("--add", "Add a key to FILE.")
@option("--drop ID", "Drop this key from FILE.")
@flag("--export", "Print FILE with some of its keys, for a machine that may have no others.")
@option("--bus NAME", "Name of a new bus; a name is drawn otherwise.")
@option("--id ID key_id", "Id of the new key; bus, or bus-2 and so on, otherwise.")
@option("--from TIME from_time", "Seal with the new key from this time on; now otherwise.")
@option("--ids IDS", "The keys to export, separated by commas.")
def command(
    file: Path,
    show: bool,
    add: bool,
    drop: str | None,
    export: bool,
    bus: str | None,
    key_id: str | None,
    from_time: str | None,
    ids: str | None,
) -> None:
    """Make the keys of a sealed bus, and change them.

    Who has no key of FILE hears nothing on the bus and says nothing: copy FILE to each machine, by
    a safe way, and name it in JSONBUS_KEY_FILE or --key-file. FILE is new, unless --show, --add,
    --drop or --export says otherwise. Running nodes read it again when it has changed.
    """
    if show + add + export + (drop is not None) > 1:
        raise click.UsageError("--show, --add, --drop and --export are for one at a time")
    is_new = not (show or add or export or drop is not None)
    _check_use("--bus", bus, is_new, "only for a new file")
    _check_use("--id", key_id, is_new or add, "only for a new key")
    _check_use("--from", from_time, is_new or add, "only for a new key")
    _check_use("--ids", ids, export, "for --export")
    from jsonbus.sealed import key_file, keys  # with cryptography, which other commands do without

    if is_new:
        ring = key_file.make_ring(bus, key_id, from_time)
        key_file.create(file, ring)
        note(
            f"{file} has the key {ring.keys[0].id!r} of the bus {ring.bus!r}: copy it to each "
            "machine, and name it in JSONBUS_KEY_FILE"
        )
        return
    ring = keys.read_ring(file)
    if show:
        _show(ring)
    elif export:
        _export(ring, ids)
    elif add:
        ring = key_file.add_key(ring, key_id, from_time)
        key_file.replace(file, ring)
        _tell_new_key(ring)
    else:
        assert drop is not None
        key_file.replace(file, key_file.drop_key(ring, drop))
        note(f"{drop!r} is dropped: copy the file to each machine")


def _check_use(name: str, value: str | None, is_used: bool, purpose: str) -> None:
    if value is not None and not is_used:
        raise click.UsageError(f"{name} is {purpose}")


def _show(ring: KeyRing) -> None:
    from jsonbus.sealed.keys import format_time

    output = Output()
    now = time.time()
    sealing = ring.sealing_key(now)
    if not output.is_terminal:
        listed = [
            {"id": key.id, "from": format_time(key.usable_from), "seals": key is sealing}
            for key in ring.keys
        ]
        output.write_results([{"bus": ring.bus, "keys": listed}])
        return
    output.write_line(f"keys of the bus {ring.bus}")
    output.flush()

    def use(usable_from: float) -> str:
        return "opens; seals later" if usable_from > now else "opens"

    rows = (
        (
            key.id,
            format_time(key.usable_from),
            "seals and opens" if key is sealing else use(key.usable_from),
        )
        for key in ring.keys
    )
    output.write_table(["ID", "FROM", "USE"], rows)


def _export(ring: KeyRing, ids: str | None) -> None:
    from jsonbus.sealed import key_file

    if ids is None:
        raise click.UsageError("--export needs --ids: which keys the other machine may have")
    chosen = key_file.choose_keys(ring, [each.strip() for each in ids.split(",")])
    if sys.stdout.isatty():
        raise click.UsageError("the secrets would be on your screen: add > FILE")
    try:
        key_file.protect(sys.stdout.fileno())
    except OSError:
        pass  # it is no file
    output = Output()
    output.write_bytes(key_file.as_text(chosen).encode())
    output.flush()


def _tell_new_key(ring: KeyRing) -> None:
    from jsonbus.sealed.keys import format_time

    key = ring.keys[-1]
    if key.usable_from > time.time():
        note(
            f"{key.id!r} seals from {format_time(key.usable_from)} on: copy the file to each "
            "machine before"
        )
    else:
        note(
            f"{key.id!r} seals from now on: nodes whose file does not have it yet hear nothing of "
            "this machine's; with --from there is time to copy"
        )
