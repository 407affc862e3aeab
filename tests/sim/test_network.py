from __future__ import annotations

import random
from math import inf

import pytest

from jsonbus.sim.network import OUTAGE_S, Network, NetworkOptions

EVERYBODY = list(range(50))


def make_network(seed: int = 1, **options: float) -> Network:
    return Network(NetworkOptions(**options), random.Random(seed))  # type: ignore[arg-type]


def receivers(network: Network, sender: int = 0, now: float = 0.0) -> list[int]:
    return [receiver for _, receiver in network.arrivals(sender, EVERYBODY, now)]


def test_a_datagram_reaches_everybody_else_once_within_the_delays() -> None:
    network = make_network(delay_min_s=0.001, delay_max_s=0.004)
    arrivals = network.arrivals(0, EVERYBODY, 10.0)
    assert sorted(receiver for _, receiver in arrivals) == EVERYBODY[1:]
    assert arrivals == sorted(arrivals)
    assert all(10.001 <= at <= 10.004 for at, _ in arrivals)


def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    options = {"loss": 0.3, "repeat": 0.2, "late": 0.2}
    first = make_network(1, **options).arrivals(0, EVERYBODY, 0.0)
    assert first == make_network(1, **options).arrivals(0, EVERYBODY, 0.0)
    assert first != make_network(2, **options).arrivals(0, EVERYBODY, 0.0)


def test_loss_is_tossed_for_each_receiver() -> None:
    network = make_network(loss=0.3)
    counts = [len(receivers(network)) for _ in range(200)]
    assert len(set(counts)) > 5
    assert 0.65 < sum(counts) / (200 * 49) < 0.75
    assert receivers(make_network(loss=1.0)) == []


def test_repeats_arrive_twice() -> None:
    heard = receivers(make_network(repeat=1.0))
    assert sorted(heard) == sorted(2 * EVERYBODY[1:])


def test_late_datagrams_are_overtaken_by_later_ones() -> None:
    network = make_network(late=0.5, late_max_s=1.0)
    early = dict((r, at) for at, r in network.arrivals(0, EVERYBODY, 0.0))
    later = dict((r, at) for at, r in network.arrivals(0, EVERYBODY, 0.1))
    assert any(later[r] < early[r] for r in early)


def test_links_that_keep_order_never_let_a_datagram_overtake_another() -> None:
    network = make_network(late=0.5, late_max_s=1.0, keeps_order=True)
    last = dict.fromkeys(EVERYBODY, 0.0)
    for step in range(100):
        for at, receiver in network.arrivals(0, EVERYBODY, step * 0.01):
            assert at > last[receiver]
            last[receiver] = at


def test_a_sender_hears_itself_only_where_datagrams_loop_back() -> None:
    assert 0 not in receivers(make_network())
    assert 0 in receivers(make_network(loops_back=True))


def test_a_cut_closes_one_direction_only() -> None:
    network = make_network()
    network.cut([0], [1, 2])
    assert not {1, 2} & set(receivers(network, sender=0))
    assert 0 in receivers(network, sender=1)
    assert not network.is_open(0, 1)
    assert network.is_open(1, 0)


def test_a_partition_closes_both_directions_and_leaves_each_side_whole() -> None:
    network = make_network()
    network.partition([0, 1], [2, 3])
    assert set(receivers(network, 0)) & {0, 1, 2, 3} == {1}
    assert set(receivers(network, 3)) & {0, 1, 2, 3} == {2}


def test_a_link_is_open_again_only_when_every_cut_of_it_is_mended() -> None:
    network = make_network()
    first, second = network.cut([0], [1]), network.cut([0, 5], [1])
    network.mend(first, 10.0)
    assert network.open_since(0, 1) is None
    network.mend(second, 20.0)
    assert network.open_since(0, 1) == 20.0
    assert network.open_since(1, 0) == -inf


def test_mending_everything_leaves_no_cut() -> None:
    network = make_network()
    network.partition([0], [1])
    assert network.whole_since is None
    network.mend_all(3.0)
    assert network.whole_since == 3.0
    assert sorted(receivers(network)) == EVERYBODY[1:]
    assert network.open_since(0, 1) == network.open_since(1, 0) == 3.0


@pytest.mark.parametrize("options", [{"loss": 1.1}, {"delay_min_s": 2.0}, {"repeat": -0.1}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        NetworkOptions(**options)  # type: ignore[arg-type]


def test_a_link_has_bursts_of_loss_and_recovers() -> None:
    options = NetworkOptions(bursts=0.02, burst_datagrams=10)
    network = Network(options, random.Random(1))
    came = [bool(network.arrivals(0, [1], 0.0)) for _ in range(20_000)]
    lost = came.count(False)
    bursts = sum(1 for before, now in zip(came, came[1:], strict=False) if before and not now)
    assert 0.1 < lost / len(came) < 0.25
    assert 7 < lost / bursts < 13
    again = Network(options, random.Random(1))
    assert [bool(again.arrivals(0, [1], 0.0)) for _ in range(20_000)] == came


def test_a_link_that_loses_everything_for_long_counts_as_cut_until_something_passes() -> None:
    network = Network(NetworkOptions(loss=1.0), random.Random(1))
    for at in (10.0, 12.0, 13.9):
        assert network.arrivals(0, [1], at) == []
        assert network.carries_since(0, 1) == -inf  # single losses are no outage
    network.arrivals(0, [1], 10.0 + OUTAGE_S)
    assert network.carries_since(0, 1) is None
    assert network.open_since(0, 1) == network.carries_since(1, 0) == -inf
    network.options = NetworkOptions()
    assert network.arrivals(0, [1], 20.0)
    assert network.carries_since(0, 1) == 20.0
