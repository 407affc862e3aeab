"""The doctor on real sockets, on loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import jsonbus
from jsonbus.doctor import examine, judge, worst
from jsonbus.doctor.echo import Asker
from jsonbus.doctor.facts import Facts
from jsonbus.errors import ConfigError
from tests.doctor.running import listening, sending
from tests.helpers import find_free_port, wait_until
from tests.sealed.material import ring, write_ring

GROUP = "239.255.24.16"
OTHER_GROUP = "239.255.24.17"


@pytest.fixture
def port() -> int:
    return find_free_port()


def look_until(port: int, condition: Callable[[Facts], object], duration_s: float = 0.5) -> Facts:
    """Examine until the facts are those: on a busy machine half a second may be too short."""
    seen: list[Facts] = []

    def is_seen() -> bool:
        seen.append(examine({"port": port}, duration_s))
        return bool(condition(seen[-1]))

    assert wait_until(is_seen, timeout_s=60), seen[-1]
    return seen[-1]


@pytest.mark.slow
def test_own_datagrams_come_back_and_nothing_else_is_there(port: int) -> None:
    facts = look_until(port, lambda facts: facts.traffic.own_heard == facts.traffic.own_sent > 0)
    assert facts.refusal is None and facts.joined is not None
    assert facts.joined.interfaces == ("lo",) and facts.is_local
    assert (facts.nodes, facts.listeners, facts.traffic.rejected) == ((), (), {})
    assert (facts.traffic.senders, facts.traffic.elsewhere) == ((), {})
    assert worst(judge(facts)) != "problem"


def test_an_interface_that_is_not_there_is_a_fact(port: int) -> None:
    facts = examine({"port": port, "interface": "nosuch0"}, 0.5)
    assert facts.refusal is not None and "nosuch0" in facts.refusal
    assert facts.joined is None
    assert worst(judge(facts)) == "problem"


def test_settings_that_contradict_each_other_are_an_error(port: int) -> None:
    with pytest.raises(ConfigError):
        examine({"port": port, "mode": "basic", "master": True}, 0.5)


@pytest.mark.slow
def test_nodes_are_found_and_the_doctors_own_is_none_of_them(port: int) -> None:
    with jsonbus.Bus(name="other", port=port):
        facts = look_until(port, lambda facts: facts.nodes)
    (node,) = facts.nodes
    assert (node.name, node.is_here) == ("other", True)
    assert node.address is not None and node.address.startswith("127.0.0.1:")


@pytest.mark.slow
def test_a_node_that_is_examined_neither_warns_nor_meets_anybody_by_the_echoes(port: int) -> None:
    with jsonbus.Bus(name="other", port=port) as bus, listening(port):
        look_until(port, lambda facts: facts.listeners and facts.nodes, duration_s=1.0)
        assert bus.stats()["datagrams_rejected"] == 0
        assert wait_until(lambda: [each.name for each in bus.nodes()] == ["other"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "cause"), [(b"\x00\x01", "not_json"), (b'{"topic":"jsonbus.x","payload":1}', None)]
)
def test_what_no_node_understands_is_counted_by_cause(
    port: int, data: bytes, cause: str | None
) -> None:
    with sending(data, GROUP, port):
        facts = look_until(port, lambda facts: facts.traffic.rejected)
    ((found, rejects),) = facts.traffic.rejected.items()
    assert found == (cause or "unknown_reserved")
    assert rejects.count > 0 and rejects.sender.startswith("127.0.0.1:")
    assert facts.traffic.senders == ("127.0.0.1",)


@pytest.mark.slow
def test_plain_datagrams_are_nothing_foreign(port: int) -> None:
    with sending(b'{"topic":"door","payload":"open"}', GROUP, port):
        facts = look_until(port, lambda facts: facts.traffic.plain)
    assert facts.traffic.rejected == {}


@pytest.mark.slow
def test_what_is_sent_to_another_group_or_to_the_machine_is_noticed(port: int) -> None:
    message = b'{"topic":"door","payload":"open"}'
    with (
        jsonbus.Bus(group=OTHER_GROUP, port=port),  # for the group to be joined on this machine
        sending(message, OTHER_GROUP, port),
        sending(message, "127.0.0.1", port),
    ):
        facts = look_until(
            port, lambda facts: {OTHER_GROUP, "127.0.0.1"} == facts.traffic.elsewhere.keys()
        )
    assert facts.traffic.plain == 0


@pytest.mark.slow
def test_the_echo_with_a_listener_is_measured_in_all_sizes(port: int) -> None:
    def is_measured(facts: Facts) -> bool:
        (listener,) = facts.listeners or (None,)
        return listener is not None and all(each.answered for each in listener.sizes)

    with listening(port) as done:
        facts = look_until(port, is_measured, duration_s=3.0)
        assert wait_until(lambda: done)
    (listener,) = facts.listeners
    assert (listener.name, listener.address, listener.is_here) == ("attic", "127.0.0.1", True)
    assert listener.round_trip_max_ms is not None and listener.round_trip_median_ms is not None
    assert listener.round_trip_max_ms >= listener.round_trip_median_ms > 0
    assert max(done[-1].sizes) == 65_507
    assert done[-1].address == "127.0.0.1"


@pytest.mark.slow
def test_a_sealed_bus_is_examined_as_a_node_that_has_the_key(
    port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JSONBUS_KEY_FILE", str(write_ring(tmp_path / "plant.key", ring())))

    def is_measured(facts: Facts) -> bool:
        (listener,) = facts.listeners or (None,)
        return listener is not None and all(each.answered for each in listener.sizes)

    message = b'{"topic":"door","payload":"open"}'
    with (
        jsonbus.Bus(name="other", port=port) as bus,
        listening(port),
        sending(message, GROUP, port),
    ):
        facts = look_until(port, is_measured, duration_s=3.0)
        assert bus.sealed == "plant"
    assert (facts.seal is not None) and (facts.seal.bus, facts.seal.key) == ("plant", "k1")
    assert facts.seal.refused["datagrams_open"] > 0
    assert facts.traffic.own_heard == facts.traffic.own_sent > 0
    assert (facts.traffic.rejected, facts.traffic.send_error) == ({}, None)
    assert [each.name for each in facts.nodes] == ["other"]
    assert facts.nodes[0].clock_ahead_s == pytest.approx(0.0, abs=1.0)
    assert max(each.size_bytes for each in facts.listeners[0].sizes) == 65_507


@pytest.mark.slow
def test_a_doctor_without_the_key_tells_that_the_bus_is_sealed(port: int) -> None:
    with jsonbus.Bus(name="other", port=port, key_file=ring()):
        facts = look_until(port, lambda facts: facts.traffic.rejected)
    assert facts.traffic.rejected.keys() == {"sealed"}
    assert facts.seal is None and facts.nodes == ()


@pytest.mark.slow
def test_a_doctor_does_not_answer_another(port: int) -> None:
    with sending(Asker(0.0, 100.0).next_echo(100.0), GROUP, port):
        facts = look_until(port, lambda facts: facts.traffic.echoes)
    assert facts.listeners == () and facts.nodes == ()
