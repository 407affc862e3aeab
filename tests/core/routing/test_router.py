"""Where a topic's messages go."""

from __future__ import annotations

import pytest

from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.message import Origin, make_message
from jsonbus.core.routing import router as routing
from jsonbus.core.routing.router import Deliveries, Inbox, Router
from jsonbus.core.wire.frames import Entry
from jsonbus.errors import InvalidTopicError

ORIGIN = Origin("x", "x", 1, 0.0, 0.0)
SERVED = "jsonbus.request/add"


def make_entry(node: str, *patterns: str, mode: str = "delayed") -> Entry:
    return Entry(node, 1, 1, node, patterns, mode)


def make_router(*others: Entry) -> Router:
    return Router(lambda: others, FastPublish())


def test_route_knows_the_topic_as_json() -> None:
    route = make_router().route('a "quoted" ü')
    assert route.prefix == '["a \\"quoted\\" ü",'.encode()


@pytest.mark.parametrize("topic", ["", "a/*", "jsonbus.x", 3, None, [], {}])
def test_what_is_no_topic_has_no_route(topic: object) -> None:
    router = make_router()
    assert router.find(topic) is None
    with pytest.raises(InvalidTopicError):
        router.route(topic)
    assert len(router.routes) == 0


def test_routes_are_found_again() -> None:
    router = make_router()
    route = router.route("t")
    router.route("u")
    assert router.route("t") is route
    assert router.find("t") is route


def test_wish_of_others_is_known_from_the_list() -> None:
    router = make_router(make_entry("x", "t/*"), make_entry("y", "u"))
    assert router.route("t/1").is_wanted_elsewhere
    assert router.route("u").is_wanted_elsewhere
    assert not router.route("v").is_wanted_elsewhere


def test_changes_elsewhere_reach_routes_already_made() -> None:
    router = make_router()
    route = router.route("t")
    assert not route.is_wanted_elsewhere
    router.entry_changed(None, make_entry("x", "t"))
    assert router.route("t").is_wanted_elsewhere
    router.entry_changed(make_entry("x", "t"), make_entry("x", "u"))
    assert not router.route("t").is_wanted_elsewhere
    assert router.route("u").is_wanted_elsewhere
    router.entry_changed(make_entry("x", "u"), None)
    assert not router.route("u").is_wanted_elsewhere


def test_change_that_changes_no_pattern_keeps_the_routes() -> None:
    router = make_router()
    generation = router.generation
    router.entry_changed(make_entry("x", "t"), make_entry("x", "t"))
    assert router.generation == generation


def test_topic_wanted_by_two_is_wanted_until_both_are_gone() -> None:
    router = make_router()
    router.is_wanted_elsewhere("t")
    for node in ("x", "y"):
        router.entry_changed(None, make_entry(node, "t"))
    router.entry_changed(make_entry("x", "t"), None)
    assert router.is_wanted_elsewhere("t")
    router.entry_changed(make_entry("y", "t"), None)
    assert not router.is_wanted_elsewhere("t")


def test_served_topics_are_no_wishes() -> None:
    router = make_router(make_entry("x", SERVED))
    assert router.is_served_elsewhere("add")
    assert not router.is_wanted_elsewhere("add")
    assert not router.is_served_elsewhere("subtract")


def test_served_by_two_is_served_until_both_stop() -> None:
    router = make_router(make_entry("x", SERVED))
    assert router.is_served_elsewhere("add")
    router.entry_changed(None, make_entry("y", SERVED))
    router.entry_changed(make_entry("x", SERVED), None)
    assert router.is_served_elsewhere("add")
    router.entry_changed(make_entry("y", SERVED), None)
    assert not router.is_served_elsewhere("add")


def test_who_wants_everything_serves_nothing_by_that() -> None:
    router = make_router(make_entry("x", "**", mode="basic"))
    assert router.is_wanted_elsewhere("add")
    assert not router.is_served_elsewhere("add")


def test_basic_nodes_are_noticed_and_missed() -> None:
    router = make_router()
    assert not router.has_basic_nodes
    basic = make_entry("x", "**", mode="basic")
    router.entry_changed(None, basic)
    router.entry_changed(None, make_entry("y", "t"))
    assert router.has_basic_nodes
    router.entry_changed(basic, None)
    assert not router.has_basic_nodes


def test_local_subscriptions_fill_the_route() -> None:
    router = make_router()
    inbox = Inbox("sink")
    assert router.route("a/b").inboxes == ()
    router.local.subscribe("a/*", inbox)
    router.generation += 1
    assert router.route("a/b").inboxes == (inbox,)


def test_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "ROUTES_MAX", 10)
    router = make_router(make_entry("x", "t7"))
    for number in range(100):
        assert router.route(f"t{number}").is_wanted_elsewhere == (number == 7)
    assert len(router.routes) <= 10


def test_deliveries_are_grouped_by_sink_in_order_of_their_first_message() -> None:
    deliveries = Deliveries()
    first, second = Inbox("first"), Inbox("second")
    messages = [make_message("t", number, number, ORIGIN) for number in range(3)]
    deliveries.add(second, messages[0])
    deliveries.add(first, messages[1])
    deliveries.add(second, messages[2])
    assert deliveries.take() == [("second", [messages[0], messages[2]]), ("first", [messages[1]])]
    assert deliveries.take() == []


def test_messages_taken_are_not_touched_by_later_ones() -> None:
    deliveries = Deliveries()
    inbox = Inbox("sink")
    message = make_message("t", 1, 1, ORIGIN)
    deliveries.add(inbox, message)
    ((_, taken),) = deliveries.take()
    deliveries.add(inbox, message)
    assert len(taken) == 1
