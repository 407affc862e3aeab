from __future__ import annotations

from jsonbus import Totals
from jsonbus.survey import Asking, NodeView, Overview, Survey
from tests.survey.making import make_node


def view_one(taken: Survey, now: float, totals: Totals | None, **facts: int) -> NodeView:
    return taken.picture(now, [make_node("n1", totals=totals, **facts)], {}).nodes[0]


def test_rates_are_taken_between_the_moments_at_which_a_node_told() -> None:
    """It tells every two seconds; whoever looks four times a second sees no staircase."""
    taken = Survey()
    seen = set()
    for quarter in range(80):
        told = quarter // 8
        totals = Totals(sent=200 * told, suppressed=20 * told, received=10 * told)
        view = view_one(taken, quarter / 4, totals)
        if quarter >= 16:
            seen.add((view.sent_per_s, view.suppressed_per_s, view.received_per_s))
    assert seen == {(100.0, 10.0, 5.0)}


def test_totals_older_than_the_first_look_do_not_make_a_rate() -> None:
    """The first look is 1.75 s after the node told, and 0.25 s before it tells again."""
    taken = Survey()
    seen = []
    for quarter in range(7, 40):
        seen.append(view_one(taken, quarter / 4, Totals(suppressed=20 * (quarter // 8))))
    assert {view.suppressed_per_s for view in seen} == {None, 10.0}


def test_a_node_that_does_nothing_has_rates_of_zero() -> None:
    taken = Survey()
    assert view_one(taken, 0.0, Totals(sent=5)).sent_per_s is None
    view_one(taken, 2.0, Totals(sent=9))
    assert view_one(taken, 3.0, Totals(sent=9)).sent_per_s == 2.0
    assert view_one(taken, 7.0, Totals(sent=9)).sent_per_s == 0.0


def test_a_node_that_tells_rarely_is_not_taken_for_silent() -> None:
    taken = Survey()
    for second in range(60):
        view = view_one(taken, float(second), Totals(sent=120 * (second // 12)))
        assert second < 12 or view.sent_per_s == 10.0


def test_a_node_that_does_not_tell_has_no_rates_but_is_heard() -> None:
    taken = Survey()
    view_one(taken, 0.0, None, received=10)
    view = view_one(taken, 2.0, None, received=50, lost=50)
    assert (view.sent_per_s, view.lost_per_s) == (None, None)
    assert (view.heard_per_s, view.loss) == (20.0, 0.5)


def test_a_node_that_starts_again_begins_anew() -> None:
    taken = Survey()
    view_one(taken, 0.0, Totals(sent=1_000), received=1_000)
    view_one(taken, 2.0, Totals(sent=2_000), received=2_000)
    view = view_one(taken, 4.0, Totals(sent=10), received=10, incarnation=2)
    assert (view.sent_per_s, view.heard_per_s) == (None, 2.5)


def test_what_nodes_tell_is_summed_up() -> None:
    taken = Survey()
    nodes = [
        make_node("n1", totals=Totals(60, 40, 0, 0, 3, 1)),
        make_node("n2", totals=Totals(30, 70, 90, 10, 0, 2)),
        make_node("n3", totals=None),
    ]
    overview: Overview = taken.picture(0.0, nodes, {"messages_dropped": 4}).overview
    assert (overview.nodes, overview.nodes_telling) == (3, 2)
    assert (overview.sent, overview.suppressed, overview.suppressed_share) == (90, 110, 0.55)
    assert (overview.received, overview.lost, overview.loss) == (90, 10, 0.1)
    assert (overview.repaired, overview.shares, overview.dropped_here) == (3, 3, 4)


def test_an_empty_bus_has_a_picture() -> None:
    picture = Survey().picture(0.0, [], {})
    assert (picture.topics, picture.nodes) == ([], [])
    assert set(picture.overview) == {0}


def test_nodes_are_asked_every_two_seconds_and_on_a_large_bus_less_often() -> None:
    small, large = Asking(), Asking()
    assert [now for now in range(13) if small.is_due(float(now), 100)] == [0, 2, 4, 6, 8, 10, 12]
    assert [now for now in range(13) if large.is_due(float(now), 300)] == [0, 6, 12]
