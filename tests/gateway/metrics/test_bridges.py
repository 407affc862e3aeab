"""Bridges as the gateway sees them: real ones, and programs that only say that they are one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import jsonbus
from jsonbus.gateway.metrics import bridges as bridges_module
from jsonbus.gateway.metrics.bridges import Bridges, BridgeState
from spark_bridge.bridge import Bridge
from spark_bridge.state import state_topic
from tests.aio.running import asynctest, buses, until
from tests.spark_bridge.raw_client import open_client

#: What a bridge might say.
ANSWER: dict[str, Any] = {
    "bridge": "b",
    "version": "1.0",
    "host": "127.0.0.1",
    "port": 7710,
    "token": False,
    "log": "x",
    "rows_recorded": 1,
    "rows_unrecorded": 0,
    "rows_waiting": 0,
    "rows_expired": 0,
    "rows": 1,
    "bytes": 100,
    "partitions": 1,
    "offsets": [[0, 1]],
    "readers": 0,
    "groups": [{"group": "g", "lag": 1, "committed_s_ago": 0.5, "misfits": 0}],
    "groups_known": 1,
    "lag_max": 1,
    "is_failing": False,
    "last_error": None,
    "last_error_s_ago": None,
    "retention_s": 3600.0,
    "retention_bytes": None,
}


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests look more often than people do."""
    monkeypatch.setattr(bridges_module, "FRESH_S", 0.0)


async def look(bridges: Bridges) -> list[BridgeState]:
    await bridges.look(wait_s=30)
    return bridges.states()


async def one(bridges: Bridges) -> BridgeState:
    """The state of the only bridge, once it has told or failed to."""
    assert await until(
        lambda: (
            any(each.report or each.problem for each in bridges.states()) or bridges.look(wait_s=30)
        )
    )
    (state,) = bridges.states()
    return state


def serve(bus: jsonbus.AsyncBus, answer: Any) -> None:
    bus.serve(state_topic(bus.id), lambda _: answer() if callable(answer) else answer)


@asynctest
async def test_a_real_bridge_is_found_and_tells_how_it_is(tmp_path: Path) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        bridges = Bridges(bus)
        with await asyncio.to_thread(
            Bridge,
            ["sensors/**"],
            listen=("127.0.0.1", 0),
            data_dir=tmp_path,
            partitions=2,
            retention_s=3600.0,
            name="northern",
            port=bus.config.port,
            interface="lo",
        ) as bridge:
            assert await bus.wait_for_subscribers("sensors/a", 30)
            for number in range(10):
                await bus.publish("sensors/a", number)
            assert await until(lambda: sum(bridge.log.end()) == 10)

            def commit() -> None:
                with open_client(bridge.address) as client:
                    client.ask({"op": "commit", "group": "ü\n", "offsets": [0, 0]})

            await asyncio.to_thread(commit)

            async def told() -> bool:
                states = await look(bridges)
                report = states[0].report if states else None
                return bool(report and report.groups and not report.readers)

            assert await until(told)
            (state,) = bridges.states()
            assert (state.name, state.node, state.is_present) == ("northern", bridge.bus.id, True)
            assert (state.report.host, state.report.port) == bridge.address
            assert state.report.rows_recorded == state.report.rows == 10
            assert (
                sum(end for _, end in state.report.offsets) == 10 and state.report.partitions == 2
            )
            assert state.report.bytes > 0
            assert [(each.group, each.lag) for each in state.report.groups] == [("ü\n", 10)]
            assert (state.report.groups_known, state.report.lag_max) == (1, 10)
            assert (state.report.is_failing, state.report.last_error, state.problem) == (
                False,
                None,
                None,
            )
            assert (state.report.retention_s, state.report.retention_bytes) == (3600.0, None)
            await asyncio.to_thread(bridge.close)
        assert await until(lambda: all(info.is_self for info in bus.nodes()))
        (state,) = await look(bridges)
        assert not state.is_present and state.problem == "left the bus"
        assert state.report.rows_recorded == 10  # as it was told last
        await bridges.close()


@asynctest
async def test_one_that_left_is_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges_module, "GONE_S", 0.0)
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        serve(other, {**ANSWER, "node": other.id})
        bridges = Bridges(bus)
        assert (await one(bridges)).report.rows_recorded == 1
        await other.close()
        assert await until(lambda: all(info.is_self for info in bus.nodes()))
        assert await look(bridges) == []


@asynctest
async def test_nobody_is_asked_while_nobody_looks_nor_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridges_module, "FRESH_S", 3600.0)
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        asked = 0

        def answer() -> Any:
            nonlocal asked
            asked += 1
            return {**ANSWER, "node": other.id}

        serve(other, answer)
        assert await until(
            lambda: any("jsonbus.request/" in "".join(n.patterns) for n in bus.nodes())
        )
        bridges = Bridges(bus)
        assert bridges.states() == [] and asked == 0
        for _ in range(10):
            await bridges.look(wait_s=30)
        assert asked == 1 and len(bridges.states()) == 1


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "fine",
        [],
        {},
        {**ANSWER, "node": "somebody else's"},
        {"rows": -1},
        {"rows": 1.5},
        {"rows": True},
        {"rows": "1"},
        {"bytes": 2**64 - 1},
        {"port": 65_536},
        {"is_failing": 1},
        {"host": "x" * 10_000},
        {"host": None},
        {"last_error": 5},
        {"offsets": [[1]]},
        {"offsets": [[1, -1]]},
        {"offsets": {}},
        {"groups": [[]]},
        {"groups": [{"group": "g", "misfits": 0}] * 2},
        {"groups": [{"group": 3, "misfits": 0}]},
        {"groups": [{"group": "g", "lag": 0.5, "misfits": 0}]},
        {"groups": None},
        {"retention_s": -1},
        {"retention_bytes": 0.5},
    ],
    ids=repr,
)
@asynctest
async def test_garbage_is_refused_and_what_was_told_before_stays(answer: Any) -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        good = {**ANSWER, "node": other.id}
        answers: list[Any] = [good]
        serve(other, lambda: answers[-1])
        bridges = Bridges(bus)
        state = await one(bridges)
        assert state.report.rows_recorded == 1 and state.problem is None
        answers.append({**good, **answer} if isinstance(answer, dict) and answer else answer)
        (after,) = await look(bridges)
        assert after.problem is not None and after.problem.startswith("it gave a wrong answer")
        assert (after.told_at, after.report.rows_recorded) == (state.told_at, 1)
        assert bridges.refused == 1
        answers.append({**good, "rows_recorded": 2})
        (after,) = await look(bridges)
        assert (after.problem, after.report.rows_recorded) == (None, 2)


@pytest.mark.slow
@asynctest
async def test_one_that_fails_or_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges_module, "ANSWER_S", 0.3)
    async with buses() as open_bus:
        bus, failing, hanging, fine = (open_bus(name=each) for each in ("bus", "a", "b", "c"))
        forever = asyncio.Event()

        async def hang(_: jsonbus.Message) -> None:
            await forever.wait()

        def fail(_: jsonbus.Message) -> None:
            raise OSError("no disk\n")

        failing.serve(state_topic(failing.id), fail)
        hanging.serve(state_topic(hanging.id), hang)
        serve(fine, {**ANSWER, "node": fine.id})
        bridges = Bridges(bus)
        assert await until(lambda: len(bridges.states()) == 3 or bridges.look(wait_s=30))
        states = await look(bridges)
        assert [each.name for each in states] == ["a", "b", "c"]
        assert [each.problem is None for each in states] == [False, False, True]
        assert "no disk" in (states[0].problem or "")
        assert [each.report is None for each in states] == [True, True, False]
        assert bridges.unanswered >= 2
        forever.set()


@asynctest
async def test_there_is_a_bound_and_what_is_beyond_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridges_module, "BRIDGES_MAX", 2)
    async with buses() as open_bus:
        bus = open_bus()
        others = [open_bus() for _ in range(3)]
        for other in others:
            serve(other, {**ANSWER, "node": other.id})
        bridges = Bridges(bus)
        assert await until(lambda: bridges.left_out == 1 or bridges.look(wait_s=30))
        assert len(bridges.states()) == 2
        first = bridges.states()[0].node
        (gone,) = [each for each in others if each.id == first]
        await gone.close()
        assert await until(lambda: len(bus.nodes()) == 3)
        # The first look notes that it has gone, the second gives its place away.
        assert await until(lambda: not bridges.left_out or bridges.look(wait_s=30))
        assert all(each.is_present for each in bridges.states())


@asynctest
async def test_who_says_that_it_serves_for_another_node_is_no_bridge() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        other.serve("spark-bridge/somebody/state", lambda _: ANSWER)
        other.serve("spark-bridge/state", lambda _: ANSWER)
        bridges = Bridges(bus)
        assert await until(lambda: any(len(info.patterns) == 2 for info in bus.nodes()))
        assert await look(bridges) == []


@asynctest
async def test_closing_ends_a_round() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        forever = asyncio.Event()

        async def hang(_: jsonbus.Message) -> None:
            await forever.wait()

        other.serve(state_topic(other.id), hang)
        bridges = Bridges(bus)
        assert await until(lambda: bridges.states() or bridges.look())
        await bridges.close()
        forever.set()
