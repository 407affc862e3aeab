"""What a bridge tells of itself over the bus."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import jsonbus
from spark_bridge.bridge import Bridge
from spark_bridge.state import (
    ERROR_CHARACTERS_MAX,
    GROUPS_BYTES_MAX,
    GROUPS_MAX,
    PARTITIONS_MAX,
    Terms,
    Trouble,
    describe_state,
    state_topic,
)
from tests.helpers import find_free_port, wait_until
from tests.spark_bridge.raw_client import open_client

README = (Path(__file__).parents[2] / "spark_bridge" / "README.md").read_text(encoding="utf-8")

TERMS = Terms("b", "id", "1.0", ("127.0.0.1", 7710), False, "log", None, None)


def describe(
    groups: dict[str, dict[str, Any]] | None = None,
    partitions: int = 1,
    trouble: Trouble | None = None,
) -> dict[str, Any]:
    recorder = {"rows_recorded": 1, "rows_unrecorded": 2, "rows_waiting": 3}
    stats: dict[str, dict[str, Any]] = {
        "log": {"rows": 4, "bytes": 5, "rows_expired": 6},
        "recorder": recorder,
        "server": {"connections": 7},
        "groups": groups or {},
    }
    offsets = [(0, 2**62)] * partitions
    return describe_state(TERMS, stats, offsets, trouble, is_failing=False, now=10.0)


def group(lag: int) -> dict[str, Any]:
    return {"misfits": 0, "offsets": [0], "lag": lag, "committed_s_ago": 1.5}


def test_who_asks_over_the_bus_is_told(tmp_path: Path) -> None:
    port = find_free_port()
    with (
        jsonbus.Bus(port=port) as bus,
        Bridge(data_dir=tmp_path, listen=("127.0.0.1", 0), port=port, token="secret") as bridge,
    ):
        topic = state_topic(bridge.bus.id)
        served = f"jsonbus.request/{topic}"
        assert wait_until(lambda: any(served in info.patterns for info in bus.nodes()))
        assert bus.wait_for_subscribers("a", timeout=30) and bus.publish("a", 1)
        assert wait_until(lambda: sum(bridge.log.end()) == 1)
        with open_client(bridge.address, token="secret") as client:
            client.ask({"op": "commit", "group": "g", "offsets": [0, 0, 0, 0]})
            state = bus.request(topic, timeout=30)
        assert state["rows_recorded"] == state["rows"] == state["lag_max"] == 1
        assert state["readers"] == 1 and state["token"] is True
        assert (state["host"], state["port"]) == bridge.address
        assert state["node"] == bridge.bus.id and state["log"] == bridge.log.id
        assert [each[1] for each in state["offsets"]] == bridge.log.end()
        (told,) = state["groups"]
        assert (told["group"], told["lag"], told["misfits"]) == ("g", 1, 0)
        assert "secret" not in json.dumps(state)
        # What it does with its state is not recorded by itself.
        assert sum(bridge.log.end()) == 1


def test_the_groups_furthest_behind_come_first_and_there_are_not_too_many() -> None:
    state = describe({f"g{lag}": group(lag) for lag in range(100)})
    assert [each["lag"] for each in state["groups"]] == list(range(99, 99 - GROUPS_MAX, -1))
    assert state["groups_known"] == 100 and state["lag_max"] == 99


def test_a_group_that_has_not_committed_comes_last() -> None:
    state = describe({"a": {"misfits": 3}, "b": group(0)})
    assert [each["group"] for each in state["groups"]] == ["b", "a"]
    assert state["groups"][1] == {"group": "a", "lag": None, "committed_s_ago": None, "misfits": 3}


@pytest.mark.parametrize("name", ["\x01" * 200, "\U0001f600" * 200, "g" * 200])
def test_the_worst_that_can_be_told_fits_a_datagram(name: str) -> None:
    groups = {name[:-3] + f"{number:03}": group(2**62) for number in range(1_000)}
    state = describe(groups, 1_024, Trouble(3.0, "\x01" * 10_000))
    assert len(json.dumps(state["groups"], ensure_ascii=False).encode()) <= GROUPS_BYTES_MAX + 100
    assert len(state["groups"]) >= 3
    assert len(state["offsets"]) == PARTITIONS_MAX and state["partitions"] == 1_024
    assert len(state["last_error"]) == ERROR_CHARACTERS_MAX and state["last_error_s_ago"] == 7
    assert len(json.dumps(state).encode()) < 20_000


def test_every_key_is_told_in_the_readme_and_every_one_told_is_there() -> None:
    table = README.split("## Its state, over the bus")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert told == describe().keys()
