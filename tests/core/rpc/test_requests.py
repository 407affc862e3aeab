"""Requests and replies: repeated when lost, served once, within bounds."""

from __future__ import annotations

import pytest

from jsonbus.core.events import ReplyReceived
from jsonbus.core.limits import REPLIES_KEPT_MAX
from jsonbus.core.rpc import requests
from jsonbus.core.rpc.requests import REQUEST_BYTES_MAX
from jsonbus.core.wire.frames import ReplyFrame, RequestFrame
from jsonbus.errors import LocalError
from tests.core.link import Link
from tests.core.rpc.serving import answer, ask, cancel, make_pair, replies, requests_of

# --- Losses ---------------------------------------------------------------------------------------


def test_lost_request_is_repeated_at_growing_intervals_until_its_deadline() -> None:
    link = Link()
    a, _ = make_pair(link)
    link.cut_off(a)
    begun = link.now
    ask(link, a, timeout_s=2.0)
    link.run(5)
    at = [when - begun for name, when, frame in link.sent if isinstance(frame, RequestFrame)]
    assert at == pytest.approx([0.0, 0.1, 0.3, 0.7, 1.5])
    assert a.view.stats()["requests_repeated"] == 4


def test_lost_request_is_served_by_its_repeat() -> None:
    link = Link()
    a, b = make_pair(link)
    link.cut_off(a)
    ask(link, a)
    link.heal()
    link.run(0.11)
    answer(link, b, "late but there")
    assert [reply.value for reply in replies(link)] == ["late but there"]


def test_lost_reply_is_repeated_without_running_the_handler_twice() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a)
    link.cut_off(a)
    answer(link, b, 42)
    link.heal()
    assert replies(link) == []
    link.run(0.11)
    assert [reply.value for reply in replies(link)] == [42]
    assert requests_of(link, "b") == []
    assert b.view.stats()["requests_served"] == 1
    assert len(link.frames("b", ReplyFrame)) == 2


def test_repeats_while_the_handler_works_do_not_start_it_again() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a, timeout_s=5.0)
    link.run(2)
    assert a.view.stats()["requests_repeated"] >= 3
    assert len(requests_of(link, "b")) == 1
    answer(link, b, 1)
    link.run(3)
    assert len(replies(link)) == 1


def test_answered_request_is_not_repeated() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a, timeout_s=5.0)
    answer(link, b, 1)
    link.run(5)
    assert a.view.stats()["requests_repeated"] == 0


def test_cancelled_request_is_not_repeated_and_a_late_reply_only_counted() -> None:
    link = Link()
    a, b = make_pair(link)
    request_id = ask(link, a)
    link.cut_off(a)
    cancel(link, a, request_id)  # b does not hear of it
    link.heal()
    link.run(1)
    answer(link, b, 1)
    assert replies(link) == []
    assert a.view.stats()["requests_repeated"] == 0
    assert a.view.stats()["replies_too_late"] == 1
    assert not a.requests.cancel(request_id, link.now)  # again: nothing to cancel


# --- Serving --------------------------------------------------------------------------------------


def test_first_reply_of_several_servers_counts() -> None:
    link = Link()
    a, b = make_pair(link)
    c = link.add("c")
    c.requests.serve("add", "adder", link.now)
    link.run(3)
    ask(link, a)
    answer(link, c, "from c")
    answer(link, b, "from b")
    assert [(reply.value, reply.name) for reply in replies(link)] == [("from c", "c")]
    assert a.view.stats()["replies_too_late"] == 1


def test_own_serving_answers_own_requests_without_the_network() -> None:
    link = Link()
    a = link.add("a")
    a.requests.serve("add", "adder", link.now)
    request_id = ask(link, a, value=(1, 2))
    (request,) = requests_of(link, "a")
    assert request.value == [1, 2]
    a.requests.reply(request, {"sum": 3}, None, link.now)
    a.requests.reply(request, {"sum": 4}, None, link.now)  # answered already
    link.move()
    assert replies(link) == [ReplyReceived(request_id, {"sum": 3}, a.settings.node, "a", None)]
    assert link.frames("a", RequestFrame) == []
    assert link.frames("a", ReplyFrame) == []


def test_own_request_stays_with_its_own_handler_when_the_list_changes() -> None:
    link = Link()
    a, _ = make_pair(link)  # b serves it, too
    a.requests.serve("add", "adder", link.now)
    link.run(5)
    ask(link, a, timeout_s=20)
    link.add("c")
    link.run(5)
    assert (len(requests_of(link, "a")), len(requests_of(link, "b"))) == (1, 0)
    answer(link, a, "own")
    assert [(reply.value, reply.name) for reply in replies(link)] == [("own", "a")]


def test_topic_is_served_once_per_node() -> None:
    link = Link()
    _, b = make_pair(link)
    with pytest.raises(LocalError, match="already"):
        b.requests.serve("add", "another", link.now)
    assert b.requests.patterns() == ["jsonbus.request/add"]
    b.requests.unserve("add", link.now)
    b.requests.unserve("add", link.now)
    assert b.requests.patterns() == []
    b.requests.serve("add", "another", link.now)


@pytest.mark.parametrize(
    ("value", "words"), [("x" * 70_000, "a datagram holds"), (object(), "not JSON")]
)
def test_reply_that_cannot_be_sent_becomes_an_error_that_the_asker_sees(
    value: object, words: str
) -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a)
    answer(link, b, value)
    (reply,) = replies(link)
    assert reply.value is None
    assert reply.error is not None and words in reply.error


def test_largest_request_and_reply_travel() -> None:
    link = Link()
    a, b = make_pair(link)
    value = "x" * (REQUEST_BYTES_MAX - 2)
    ask(link, a, value=value)
    answer(link, b, value)
    assert [reply.value for reply in replies(link)] == [value]


def test_long_error_is_cut() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a)
    answer(link, b, error="because " * 1_000)
    (reply,) = replies(link)
    assert reply.error is not None and reply.error.startswith("because") and len(reply.error) <= 250


def test_second_answer_to_one_request_is_ignored() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a)
    (request,) = requests_of(link, "b")
    for value in (1, 2):
        b.requests.reply(request, value, None, link.now)
    link.move()
    assert [reply.value for reply in replies(link)] == [1]
    assert len(link.frames("b", ReplyFrame)) == 1


def test_replies_are_kept_for_repeats_within_bounds() -> None:
    link = Link()
    a, b = make_pair(link)
    kept = b.requests._replies
    for number in range(REPLIES_KEPT_MAX + 10):
        ask(link, a, value=number)
        answer(link, b, number)
    assert len(kept) == REPLIES_KEPT_MAX
    for _ in range(100):
        ask(link, a)
        answer(link, b, "x" * 60_000)
    assert sum(len(payload) for payload, _ in kept.values()) <= 4 << 20
    assert b.requests._replies_bytes == sum(len(payload) for payload, _ in kept.values())
    assert len(replies(link)) == REPLIES_KEPT_MAX + 110


def test_requests_never_answered_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUESTS_SERVED_MAX", 5)
    link = Link()
    a, b = make_pair(link)
    for _ in range(5):
        ask(link, a, timeout_s=0.5)
    ask(link, a, timeout_s=0.5)
    assert b.view.stats()["requests_refused"] >= 1
    assert len(requests_of(link, "b")) == 5
    link.run(2)
    link.received["b"].clear()
    ask(link, a)
    assert len(requests_of(link, "b")) == 1


def test_served_topics_are_announced_and_not_shown_as_subscriptions() -> None:
    link = Link()
    a, b = make_pair(link)
    assert b.own_entry().patterns == ("jsonbus.request/add",)
    assert a.view.subscriptions() == {}
    assert not a.has_subscribers("add")
    assert link.publish(a, "add", 1) == [False]
