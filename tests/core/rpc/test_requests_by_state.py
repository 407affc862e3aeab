"""Asking: who serves is known from the list, or not yet."""

from __future__ import annotations

import pytest

from jsonbus.core.events import ReplyReceived, RequestUnserved
from jsonbus.core.rpc.requests import REQUEST_BYTES_MAX
from jsonbus.core.wire.frames import RequestFrame
from jsonbus.errors import ClosedError, InvalidTopicError, PayloadError
from tests.core.link import Link
from tests.core.rpc.serving import answer, ask, make_pair, replies, requests_of


def test_request_is_answered() -> None:
    link = Link()
    a, b = make_pair(link)
    request_id = ask(link, a, value=[1, 2])
    (request,) = requests_of(link, "b")
    assert (request.topic, request.value, request.timeout_s) == ("add", [1, 2], 1.0)
    assert (request.node, request.name) == (a.settings.node, "a")
    answer(link, b, 3)
    assert replies(link) == [ReplyReceived(request_id, 3, b.settings.node, "b", None)]
    assert a.view.stats()["requests_sent"] == b.view.stats()["requests_served"] == 1


def test_failure_reaches_the_asker() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a)
    answer(link, b, error="division by zero")
    assert [(reply.value, reply.error) for reply in replies(link)] == [(None, "division by zero")]


def test_answers_find_their_questions() -> None:
    link = Link()
    a, b = make_pair(link)
    ids = [ask(link, a, value=number) for number in range(3)]
    waiting = requests_of(link, "b")
    for request in reversed(waiting):
        b.requests.reply(request, request.value * 10, None, link.now)
    link.move()
    assert {reply.request_id: reply.value for reply in replies(link)} == {
        ids[0]: 0,
        ids[1]: 10,
        ids[2]: 20,
    }


def test_third_nodes_neither_serve_nor_get_the_reply() -> None:
    link = Link()
    a, b = make_pair(link)
    link.add("c")
    link.run(3)
    ask(link, a)
    answer(link, b, 1)
    assert requests_of(link, "c") == []
    assert replies(link, "c") == []


def test_nobody_serves_is_known_at_once_when_sure() -> None:
    link = Link()
    a, _ = make_pair(link)
    request_id = ask(link, a, "subtract")
    assert link.events_of("a", RequestUnserved) == [RequestUnserved(request_id)]
    assert link.frames("a", RequestFrame) == []


def test_joiner_waits_with_its_request_until_it_knows() -> None:
    link = Link()
    b = link.add("b", share_delay_s=0.05)
    b.requests.serve("add", "adder", link.now)
    link.run(5)
    a = link.add("a")
    ask(link, a)
    unserved = ask(link, a, "subtract")
    assert link.frames("a", RequestFrame) == []
    assert link.events_of("a", RequestUnserved) == []
    link.run(0.06)
    assert len(requests_of(link, "b")) == 1
    assert link.events_of("a", RequestUnserved) == [RequestUnserved(unserved)]


def test_in_doubt_a_request_is_sent_for_whoever_may_serve() -> None:
    link = Link()
    a, _ = make_pair(link)
    a.doubt_network("the network interfaces changed", link.now)
    ask(link, a, "subtract")
    assert len(link.frames("a", RequestFrame)) == 1
    assert link.events_of("a", RequestUnserved) == []
    link.run(3)
    assert a.state == "sure"
    assert len(link.events_of("a", RequestUnserved)) <= 1


def test_topic_served_later_is_served() -> None:
    link = Link()
    a, b = make_pair(link)
    b.requests.serve("subtract", "subtracter", link.now)
    link.run(0.01)
    ask(link, a, "subtract")
    assert len(requests_of(link, "b")) == 1


def test_topic_no_longer_served_is_refused() -> None:
    link = Link()
    a, b = make_pair(link)
    b.requests.unserve("add", link.now)
    link.run(0.01)
    ask(link, a)
    assert link.events_of("a", RequestUnserved)
    assert requests_of(link, "b") == []


def test_server_that_leaves_ends_the_waiting() -> None:
    link = Link()
    a, b = make_pair(link)
    request_id = ask(link, a, timeout_s=30.0)
    link.close(b)
    assert link.events_of("a", RequestUnserved) == [RequestUnserved(request_id)]


@pytest.mark.parametrize("modes", [("basic", "basic"), ("delayed", "basic"), ("basic", "delayed")])
def test_requests_work_with_basic_nodes_that_never_tell_what_they_serve(
    modes: tuple[str, str],
) -> None:
    link = Link()
    a, b = link.add("a", mode=modes[0]), link.add("b", mode=modes[1])
    b.requests.serve("add", "adder", link.now)
    link.run(5)
    ask(link, a)
    answer(link, b, 7)
    assert [reply.value for reply in replies(link)] == [7]
    assert link.events_of("a", RequestUnserved) == []


def test_invalid_requests_are_errors() -> None:
    link = Link()
    a, _ = make_pair(link)
    with pytest.raises(InvalidTopicError):
        a.requests.request("a/*", 1, 1.0, link.now)
    with pytest.raises(PayloadError):
        a.requests.request("add", object(), 1.0, link.now)
    with pytest.raises(PayloadError):
        a.requests.request("add", "x" * REQUEST_BYTES_MAX, 1.0, link.now)
    a.close(link.now)
    with pytest.raises(ClosedError):
        a.requests.request("add", 1, 1.0, link.now)


def test_request_that_nobody_serves_is_given_up_once() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a, "subtract")
    link.subscribe(b, "t")
    link.run(1)
    assert len(link.events_of("a", RequestUnserved)) == 1
