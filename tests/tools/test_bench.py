"""The benchmarks measure what they say: counts add up. Times are not tested."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from contextlib import closing

import pytest

from tools.bench.arena import INSIDE, Arena
from tools.bench.bus.alone import measure_memory, measure_unwanted, resident_mb
from tools.bench.bus.calm import measure_calls, measure_latency
from tools.bench.bus.floods import UNKNOWN, Plan
from tools.bench.bus.floor import Batcher, Runs, take_batches
from tools.bench.bus.flow import Credit, Tally, make_slots, open_slots
from tools.bench.bus.growth import measure_growth
from tools.bench.bus.growth_node import measure_node
from tools.bench.bus.run import Run, RunError, cpu_clock_s, window_for
from tools.bench.bus.spec import SENSOR, SENSOR_BYTES, make_value

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CPU clocks of other processes are Linux's"
)

PLAN = Plan(
    repetitions=1,
    messages=400,
    subscribers=2,
    latency_messages=20,
    load_s=0.1,
    memory_messages=400,
    growth_topics=(1, 10),
    growth_nodes=(1, 10),
    idle_nodes=(2,),
    idle_s=2.0,
    peers=(),
)


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Arena:
    monkeypatch.delenv(INSIDE, raising=False)
    return Arena()


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    ["raw", "raw-1400", "raw-8k", "raw-8k-offload", "jsonbus", "jsonbus-1400", "jsonbus-aio"],
)
def test_every_message_of_a_flood_is_counted(arena: Arena, system: str) -> None:
    with Run(arena, system) as run:
        run.probe()
        first, second = run.flood(3_000), run.flood(500)
    assert (first.sent, first.received) == (3_000, (3_000,))
    assert (second.sent, second.received) == (500, (500,))
    assert second.publisher_cpu_s > 0 and second.subscribers_cpu_s > 0 and second.wall_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("system", ["raw-1400", "raw-1400-offload", "jsonbus", "jsonbus-aio"])
def test_a_flood_between_hosts_is_of_datagrams_that_fit_a_frame(system: str) -> None:
    arena = Arena(network="veth")
    if arena.network.obstacle is not None:
        pytest.skip(arena.network.obstacle)
    with closing(arena.network):
        for subscribers in (1, 2):  # by one cable, and by a bridge
            with Run(arena, system, subscribers=subscribers) as run:
                run.probe()
                assert run.flood(500).received == (500,) * subscribers
                means = run.means()
    assert means.startswith("1,400 B")
    assert means.endswith("offload") or system == "raw-1400"


@pytest.mark.slow
def test_large_values_between_hosts_are_cut_with_and_without_offload() -> None:
    arena = Arena(network="veth")
    if arena.network.obstacle is not None:
        pytest.skip(arena.network.obstacle)
    with closing(arena.network):
        for system in ("raw-slices", "raw-slices-offload", "jsonbus"):
            with Run(arena, system, value_bytes=100_000) as run:
                run.probe()
                assert run.flood(20).received == (20,)


@pytest.mark.slow
def test_lone_messages_show_their_delay_their_cpu_and_their_waits(arena: Arena) -> None:
    samples = list(measure_latency(arena, PLAN))
    assert {sample.row for sample in samples} == {"raw", "jsonbus", "jsonbus-aio"}
    for sample in samples:
        assert sample.value > 0
        if sample.measure == "calm":
            assert sample.extra["switches"] > 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_system_calls_of_a_subscriber_are_counted(arena: Arena) -> None:
    samples = {sample.row: sample for sample in measure_calls(arena, PLAN)}
    assert samples["raw"].value >= 1
    assert "recv" in samples["raw"].extra["commonest"]
    assert samples["jsonbus"].value >= 2


@pytest.mark.slow
def test_each_of_several_subscribers_gets_the_flood(arena: Arena) -> None:
    with Run(arena, "jsonbus", subscribers=3) as run:
        run.probe()
        flood = run.flood(500)
    assert flood.received == (500, 500, 500)
    assert flood.deliveries == 1_500


@pytest.mark.slow
@pytest.mark.parametrize("system", ["raw", "jsonbus"])
def test_a_delay_is_taken_of_every_value_with_an_instant(arena: Arena, system: str) -> None:
    with Run(arena, system, has_stamps=True) as run:
        run.probe()
        run.begin(20)
        run.publisher.ask("tick", count=20, rate=1_000)
        (report,) = run.settle(20)
    assert report["received"] == 20
    assert len(report["delays_ns"]) == 20
    assert all(delay_ns > 0 for delay_ns in report["delays_ns"])


@pytest.mark.slow
@pytest.mark.parametrize("system", ["raw", "jsonbus"])
def test_a_subscriber_beside_a_main_thread_that_computes_gets_everything(
    arena: Arena, system: str
) -> None:
    busy = {"has_stamps": True, "is_busy": True, "switch_interval_s": 0.0005}
    with Run(arena, system, **busy) as run:
        run.probe()
        run.begin(20)
        run.publisher.ask("tick", count=20, rate=1_000)
        (report,) = run.settle(20)
        last = run.subscribers[0].ask("stop")
    assert (report["received"], len(report["delays_ns"])) == (20, 20)
    assert last["received"] == 20  # it ends although it computes


@pytest.mark.slow
def test_what_a_small_buffer_loses_is_counted_to_the_last_message(arena: Arena) -> None:
    with Run(arena, "jsonbus", receive_buffer_bytes=65_536, handler_us=20.0, mailbox=64) as run:
        run.probe()
        run.begin(UNKNOWN)
        run.publisher.ask("offer", count=5_000)
        run.settle(UNKNOWN)  # a goodbye that overtakes nothing tells of the last loss
        published, (report,) = run.close()
    stats = report["stats"]
    handled, dropped = report["received_ever"], stats["messages_dropped"]
    assert published["messages_sent"] == handled + stats["messages_lost"] + dropped


@pytest.mark.slow
def test_unwanted_messages_reach_the_receiver_that_refuses_them(arena: Arena) -> None:
    ours, bare = measure_unwanted(arena, PLAN)
    assert (ours.row, bare.row) == ("jsonbus", "bare-recv")
    assert ours.extra["received"] == ours.extra["sent"] > 0


@pytest.mark.slow
def test_memory_is_read_while_messages_come(arena: Arena) -> None:
    samples = list(measure_memory(arena, PLAN))
    curve = [sample.row for sample in samples if sample.measure == "memory-curve"]
    assert (len(curve), curve[0], curve[-1]) == (20, "20", "400")
    (at_the_end,) = [sample for sample in samples if sample.row == "at the end"]
    assert at_the_end.extra["received"] == 400
    assert at_the_end.value > 1
    assert resident_mb(os.getpid()) > 1


def test_growth_is_measured_at_every_size(arena: Arena) -> None:
    samples = list(measure_growth(arena, PLAN))
    measures = ["growth-topics", "growth-nodes", "growth-receive"]
    expected = [(measure, size) for measure in measures for size in ("1", "10")]
    *samples, idle = samples
    assert [(sample.measure, sample.row) for sample in samples] == expected
    for sample in samples[-2:]:
        assert sample.extra["received"] == sample.extra["sent"] > 100
    assert (idle.measure, idle.row) == ("growth-idle", "2")
    assert idle.value > 0 and idle.extra["bare_ms"] > 0
    assert idle.extra["datagrams_s"] >= 0


def test_subscriptions_and_buses_are_measured_at_every_size(arena: Arena) -> None:
    samples = list(measure_node(arena, PLAN))
    subscriptions = ["subscribe-core", "subscribe-at-once", "subscribe-bus"]
    expected = [(each, "10") for each in subscriptions]
    expected += [("buses-threads", "2"), ("buses-tasks", "2")]
    assert [(sample.measure, sample.row) for sample in samples] == expected
    assert all(sample.value > 0 for sample in samples)


def test_a_process_that_fails_is_told_with_its_last_words(arena: Arena) -> None:
    with pytest.raises(RunError, match="no-such-system"):
        Run(arena, "no-such-system")


def test_a_publisher_has_no_more_messages_under_way_than_its_window() -> None:
    slots, under_way = _make_slots(2), []
    credit = Credit(slots, window=16)
    credit.begin()
    published = 0

    def handle_all() -> None:
        # Called before it would wait: the subscribers catch up.
        under_way.append(published - min(slots))
        slots[0] = slots[1] = published

    for chunk in credit.chunks(100, handle_all):
        published += chunk
        slots[0] = published  # one is always up to date: the slowest counts
    assert published == 100
    assert under_way and max(under_way) <= 16


def test_a_subscriber_tells_how_far_it_is_and_when_all_has_come() -> None:
    slots = _make_slots(1)
    tally = Tally(slots, 0, window=80, has_stamps=False, handler_us=0.0)
    handle = tally.handler(lambda message: message)
    handle("probe")
    assert slots[0] == 1
    tally.begin(25)
    told = []
    for _ in range(25):
        handle("message")
        told.append(slots[0])
    assert sorted(set(told)) == [1, 11, 21, 26]
    report = tally.report()
    assert (report["received"], report["received_ever"]) == (25, 26)
    assert report["ended_at"] is not None


def test_a_floor_batches_every_message_within_its_datagrams() -> None:
    datagrams: list[bytes] = []
    batcher = Batcher(datagrams.append, 1_400)
    batcher.put("a", SENSOR, 100)
    batcher.put("b", SENSOR, 50)
    batcher.push()
    batcher.push()
    received: dict[str, list[object]] = {"a": [], "b": []}
    missing = take_batches(datagrams, {name: received[name].append for name in received})
    assert (len(received["a"]), len(received["b"]), missing) == (100, 50, 0)
    assert received["a"][0] == SENSOR
    assert max(map(len, datagrams)) <= 1_400
    assert take_batches([datagrams[0], datagrams[2]], {"a": id, "b": id}) > 0


def test_a_run_of_a_floor_is_cut_into_datagrams_of_one_size() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(30)
        sender.connect(receiver.getsockname())
        runs = Runs(sender, 10)
        for _ in range(2):
            runs.send(b"[1]")
        runs.send_last(b"[2]")
        runs.push()  # nothing waits any more
        assert [receiver.recv(100) for _ in range(3)] == [b"[1]" + 7 * b" "] * 2 + [b"[2]"]


@pytest.mark.parametrize("size_bytes", [SENSOR_BYTES, 1_024, 1_600, 16_384])
def test_values_have_exactly_the_size_asked_for(size_bytes: int) -> None:
    assert len(json.dumps(make_value(size_bytes), separators=(",", ":"))) == size_bytes


def test_the_window_fits_the_receive_buffer() -> None:
    assert window_for(74, 4 << 20) == 2_048
    assert window_for(16_384, 4 << 20) == 128
    assert window_for(74, 208 << 10) < 208


def test_the_cpu_clock_of_a_process_is_its_own() -> None:
    assert 0 < cpu_clock_s(os.getpid()) <= cpu_clock_s(os.getpid())


def _make_slots(count: int) -> memoryview:
    fd = make_slots(count)
    try:
        return open_slots(fd, count)
    finally:
        os.close(fd)
