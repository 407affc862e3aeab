from __future__ import annotations

from collections.abc import Sequence

from jsonbus.core.message import Message
from jsonbus.core.rpc.requests import Request
from jsonbus.core.wire.frames import Frame
from jsonbus.sim import Checker, NetworkOptions, World
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.records import Flight, Sink
from jsonbus.sim.world import WISHES_MIN


class Recorder(Checker):
    """Remembers what was sent and delivered."""

    def __init__(self) -> None:
        self.sent_by: list[tuple[str, float, str]] = []
        self.given: list[tuple[str, str, int]] = []

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        self.sent_by.append((sender.name, self.world.clock.now, type(frame).__name__))

    def delivered(self, sink: Sink, messages: Sequence[Message], flight: Flight | None) -> None:
        for message in messages:
            if not isinstance(message, Request):
                self.given.append((sink.participant.name, message.topic, message.value["number"]))


def make_pair(options: NetworkOptions | None = None) -> tuple[World, Recorder, SimNode, SimNode]:
    recorder = Recorder()
    world = World(1, options, (recorder,))
    reader = world.add_node("reader", patterns=["sensors/*"])
    writer = world.add_node("writer")
    world.run_for(2.0)
    return world, recorder, reader, writer


def test_a_publication_reaches_the_subscriber_and_nobody_else() -> None:
    world, recorder, _, writer = make_pair()
    world.add_node("bystander", patterns=["other"])
    world.run_for(1.0)
    wanted = world.publish(writer, "sensors/door")
    unwanted = world.publish(writer, "nobody/cares")
    world.run_for(0.1)
    assert wanted.accepted
    assert not unwanted.accepted
    assert recorder.given == [("reader", "sensors/door", wanted.number)]


def test_the_same_seed_gives_the_same_history_to_the_last_datagram() -> None:
    histories = []
    for _ in range(2):
        _, recorder, _, _ = make_pair(NetworkOptions(loss=0.2, repeat=0.2, late=0.2))
        histories.append(recorder.sent_by)
    assert histories[0] == histories[1]
    assert len(histories[0]) > 4


def test_clock_offsets_change_nothing_but_the_clocks() -> None:
    histories = []
    for offsets in ((0.0, 0.0), (987_654.321, 12.5)):
        recorder = Recorder()
        world = World(1, checkers=(recorder,))
        for name, offset in zip("ab", offsets, strict=True):
            world.add_node(name, patterns=["x"], clock_offset_s=offset, wall_s=10 * offset)
            world.run_for(0.1)  # so that no two of them ever do something at the same instant
        world.run_for(30.0)
        histories.append([(name, kind) for name, _, kind in recorder.sent_by])
    assert histories[0] == histories[1]


def test_a_crashed_node_hears_and_says_nothing_more() -> None:
    world, recorder, reader, writer = make_pair()
    world.crash(reader)
    crashed_at = world.clock.now
    world.publish(writer, "sensors/door")
    world.run_for(5.0)
    assert recorder.given == []
    assert not any(name == "reader" and at > crashed_at for name, at, _ in recorder.sent_by)
    assert world.wanted_by("sensors/door") == []


def test_a_node_that_leaves_says_goodbye_and_is_forgotten_at_once() -> None:
    world, recorder, reader, writer = make_pair()
    world.leave(reader)
    world.run_for(0.1)
    assert ("reader", "ByeFrame") in [(name, kind) for name, _, kind in recorder.sent_by]
    assert not world.publish(writer, "sensors/door").accepted


def test_a_restarted_node_is_a_new_incarnation_under_its_old_name() -> None:
    world, recorder, reader, writer = make_pair()
    before = reader.node_id, reader.incarnation
    world.crash(reader)
    world.run_for(0.5)
    world.start(reader, ["sensors/door"])
    world.run_for(1.0)
    publication = world.publish(writer, "sensors/door")
    world.run_for(0.1)
    assert reader.node_id != before[0]
    assert reader.incarnation > before[1]
    assert recorder.given == [("reader", "sensors/door", publication.number)]


def test_a_node_may_keep_its_id_over_a_restart() -> None:
    world, _, reader, _ = make_pair()
    before = reader.node_id, reader.incarnation
    world.crash(reader)
    world.start(reader, node_id=reader.node_id)
    assert reader.node_id == before[0]
    assert reader.incarnation > before[1]


def test_a_frozen_node_neither_hears_nor_speaks_and_goes_on_when_thawed() -> None:
    world, recorder, reader, writer = make_pair()
    world.freeze(reader)
    frozen_at = world.clock.now
    assert reader not in world.nodes
    world.publish(writer, "sensors/door")
    world.run_for(5.0)
    assert recorder.given == []
    assert not any(name == "reader" and at > frozen_at for name, at, _ in recorder.sent_by)
    world.thaw(reader)
    world.run_for(1.0)
    publication = world.publish(writer, "sensors/door")
    world.run_for(0.1)
    assert recorder.given == [("reader", "sensors/door", publication.number)]


def test_an_agreed_group_is_sure_from_the_start_and_sends_no_list() -> None:
    recorder = Recorder()
    world = World(3, checkers=(recorder,))
    group = world.add_agreed_group(20, lambda number: [f"topic/{number}"])
    assert all(node.core.state == "sure" for node in group)
    world.run_for(10.0)
    assert "ListFrame" not in {kind for _, _, kind in recorder.sent_by}
    assert len({node.subscription_list.digest for node in group}) == 1
    publication = world.publish(group[0], "topic/7")
    world.run_for(0.1)
    assert recorder.given == [("n7", "topic/7", publication.number)]


def test_an_agreed_group_begins_with_as_many_heartbeats_as_it_goes_on_with() -> None:
    recorder = Recorder()
    world = World(1, checkers=(recorder,))
    world.add_agreed_group(200, lambda number: ["a"])
    world.run_for(4.0)
    by_second = [0] * 4
    for _, at, _ in recorder.sent_by:
        by_second[int(at)] += 1
    assert sum(by_second) <= 200 * (4.0 / 1.8 + 0.5)
    assert max(by_second) <= 200 * 0.75  # all of them within two seconds, half of them in each


def test_a_request_is_answered_by_whoever_serves_its_topic() -> None:
    world, _, reader, writer = make_pair()
    world.serve(reader, "echo")
    world.run_for(0.5)
    world.request(writer, "echo")
    assert world.run_while(lambda: writer.core.view.stats()["requests_sent"] < 1, 1.0)
    world.run_for(0.1)
    assert reader.core.view.stats()["requests_served"] == 1
    world.unserve(reader, "echo")
    assert "jsonbus.request/echo" not in reader.sinks


def test_run_while_stops_at_the_event_that_ends_the_condition() -> None:
    world = World(1)
    node = world.add_node()
    assert world.run_while(lambda: node.core.state == "joining", 5.0)
    assert node.core.state == "sure"
    assert world.clock.now < 1.0
    assert not world.run_while(lambda: True, 2.0)


def test_plain_peers_and_nodes_hear_each_other() -> None:
    recorder = Recorder()
    world = World(1, checkers=(recorder,))
    node = world.add_node("node", patterns=["from/plain"])
    world.run_for(1.0)
    peer = world.add_plain("peer", topics=["to/plain"])
    world.run_for(1.0)
    world.publish(peer, "from/plain")
    publication = world.publish(node, "to/plain")
    world.run_for(0.1)
    assert peer.heard == [("to/plain", {"number": publication.number})]
    assert ("node", "from/plain", 0) in recorder.given


def test_wishes_that_ended_long_ago_are_dropped() -> None:
    world = World(1)
    node = world.add_node("node", patterns=["stays"])
    for number in range(2_000):
        world.subscribe(node, f"t/{number}")
        world.run_for(1.0)
        world.unsubscribe(node, f"t/{number}")
    assert len(world.wishes) <= WISHES_MIN
    wanted = {wish.pattern for wish in world.wishes}
    assert wanted >= {"stays"} | {f"t/{number}" for number in range(1_945, 2_000)}
