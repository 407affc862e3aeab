"""Requests that nobody waits for any more: expired or cancelled, they are not run."""

from __future__ import annotations

import random

import pytest

from jsonbus.core.node import Node
from jsonbus.core.rpc import requests
from jsonbus.core.rpc.requests import Request, RequestKey
from jsonbus.core.wire.encode import encode_reply, encode_request
from jsonbus.core.wire.frames import ByeFrame, ReplyFrame, RequestFrame
from tests.core.link import Link, forge
from tests.core.rpc.serving import answer, ask, cancel, make_pair, replies, requests_of


def begin_all(link: Link, node: Node) -> list[bool]:
    """Whether each waiting request may run, as for a worker that takes them one by one."""
    waiting = requests_of(link, node.settings.name)
    return [node.requests.begin(request, link.now) for request in waiting]


def abandoned(node: Node) -> tuple[int, int]:
    """How many requests expired here, and how many were cancelled."""
    stats = node.view.stats()
    return stats["requests_expired"], stats["requests_cancelled"]


def forge_request(request_id: int, timeout_ms: int, counter: int, node: str = "stranger") -> bytes:
    request = {"topic": "add", "payload": b"1", "request_id": request_id, "timeout_ms": timeout_ms}
    return forge(encode_request, node=node, counter=counter, **request)


def forge_cancel(request_id: int, counter: int, node: str = "stranger") -> bytes:
    return forge(encode_reply, node, request_id, b"null", None, node=node, counter=counter)


# --- Deadlines ------------------------------------------------------------------------------------


def test_request_is_run_within_its_time_and_not_after() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a, timeout_s=0.5)
    ask(link, a, timeout_s=2.0)
    link.run(0.6)
    assert begin_all(link, b) == [False, True]
    assert abandoned(b) == (1, 0)


def test_request_is_begun_once() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a)
    assert begin_all(link, b) == [True]
    assert begin_all(link, b) == [False]
    answer(link, b, 1)
    assert len(replies(link)) == 1
    assert abandoned(b) == (0, 0)


def test_repeats_carry_the_time_that_is_left() -> None:
    link = Link()
    a, _ = make_pair(link)
    ask(link, a, timeout_s=2.0)
    link.run(2)
    left_ms = [frame.timeout_ms for frame in link.frames("a", RequestFrame)]
    assert left_ms == [2000, 1900, 1700, 1300, 500]


def test_request_with_less_than_a_millisecond_left_is_not_sent_as_expired() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a, timeout_s=0.0001)
    assert begin_all(link, b) == [True]


def test_repeat_that_was_delayed_less_corrects_the_deadline() -> None:
    link = Link()
    _, b = make_pair(link)
    link.inject(forge_request(7, 1000, counter=1))
    link.inject(forge_request(7, 50, counter=2))
    link.inject(forge_request(7, 900, counter=3))
    link.run(0.1)
    assert begin_all(link, b) == [False]
    assert abandoned(b) == (1, 0)


def test_expired_requests_that_make_room_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUESTS_SERVED_MAX", 3)
    link = Link()
    a, b = make_pair(link)
    for _ in range(3):
        ask(link, a, timeout_s=0.5)
    assert b.requests.begin(requests_of(link, "b")[0], link.now)
    link.run(1)
    ask(link, a)
    assert abandoned(b) == (2, 0)  # the first one runs
    assert begin_all(link, b) == [False, False, False, True]
    assert abandoned(b) == (2, 0)


# --- Cancelling -----------------------------------------------------------------------------------


def test_cancelled_request_that_waits_is_not_run() -> None:
    link = Link()
    a, b = make_pair(link)
    first, _ = ask(link, a), ask(link, a)
    assert cancel(link, a, first)
    assert not cancel(link, a, first)
    assert begin_all(link, b) == [False, True]
    assert abandoned(b) == (0, 1)


def test_cancelled_request_that_runs_goes_on_and_its_reply_is_dropped() -> None:
    link = Link()
    _, b = make_pair(link)
    link.inject(forge_request(7, 1000, counter=1))
    assert begin_all(link, b) == [True]
    link.inject(forge_cancel(7, counter=2))
    answer(link, b, "done")
    assert link.frames("b", ReplyFrame) == []
    assert abandoned(b) == (0, 0)
    assert b.view.stats()["requests_served"] == 1
    # A repeat that was on its way for long gets the reply: its handler does not run again.
    link.inject(forge_request(7, 900, counter=3))
    assert requests_of(link, "b") == []
    assert [frame.value for frame in link.frames("b", ReplyFrame)] == ["done"]


def test_repeat_that_comes_after_the_cancellation_runs_at_most_once() -> None:
    link = Link()
    _, b = make_pair(link)
    link.inject(forge_request(7, 1000, counter=1))
    link.inject(forge_cancel(7, counter=3))
    link.inject(forge_request(7, 900, counter=2))
    assert sorted(begin_all(link, b)) == [False, True]


def test_cancellation_concerns_only_requests_of_its_sender() -> None:
    link = Link()
    _, b = make_pair(link)
    link.inject(forge_request(7, 1000, counter=1))
    link.inject(forge_cancel(7, counter=1, node="another"))
    link.inject(forge_cancel(8, counter=2))
    assert begin_all(link, b) == [True]
    assert abandoned(b) == (0, 0)


def test_cancelled_requests_leave_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUESTS_SERVED_MAX", 1)
    link = Link()
    a, b = make_pair(link)
    cancel(link, a, ask(link, a))
    ask(link, a)
    assert begin_all(link, b) == [False, True]
    assert b.view.stats()["requests_refused"] == 0


def test_request_whose_time_is_over_is_not_cancelled_but_expires() -> None:
    link = Link()
    a, b = make_pair(link)
    request_id = ask(link, a, timeout_s=0.5)
    link.run(0.4999)
    assert not cancel(link, a, request_id)
    assert link.frames("a", ReplyFrame) == []
    link.run(0.0001)
    assert begin_all(link, b) == [False]
    assert abandoned(b) == (1, 0)


def test_request_that_was_not_sent_yet_is_cancelled_silently() -> None:
    link = Link()
    a = link.add("a")  # joining: it does not know yet who serves
    assert not cancel(link, a, ask(link, a))
    assert link.frames("a", ReplyFrame) == []


def test_closing_cancels_before_it_says_goodbye() -> None:
    link = Link()
    a, b = make_pair(link)
    ask(link, a), ask(link, a)
    link.forget_sent()
    link.close(a)
    kinds = [type(frame) for name, _, frame in link.sent if name == "a"]
    assert kinds == [ReplyFrame, ReplyFrame, ByeFrame]
    assert begin_all(link, b) == [False, False]
    assert abandoned(b) == (0, 2)
    assert not a.requests.cancel(1, link.now)


# --- A node that asks itself ----------------------------------------------------------------------


def test_own_requests_expire_and_are_cancelled_without_the_network() -> None:
    link = Link()
    a = link.add("a")
    a.requests.serve("add", "adder", link.now)
    link.run(5)
    link.forget_sent()
    ask(link, a, timeout_s=0.5)
    cancelled = ask(link, a, timeout_s=5.0)
    running = ask(link, a, timeout_s=5.0)
    assert a.requests.begin(requests_of(link, "a")[2], link.now)
    assert not cancel(link, a, cancelled)
    assert not cancel(link, a, running)
    link.run(0.6)
    assert begin_all(link, a) == [False, False, False]
    assert abandoned(a) == (1, 1)
    a.requests.reply(requests_of(link, "a")[2], "done", None, link.now)
    link.move()
    assert replies(link) == []
    assert link.frames("a", ReplyFrame) == link.frames("a", RequestFrame) == []


# --- Any order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_no_request_runs_twice_in_whatever_order_its_datagrams_come(seed: int) -> None:
    link, dice = Link(seed), random.Random(seed)
    _, b = make_pair(link)
    datagrams = [forge_request(number % 10, 1 + 50 * number, number + 1) for number in range(40)]
    datagrams += [forge_cancel(number % 10, number + 41) for number in range(20)]
    dice.shuffle(datagrams)
    running: list[Request] = []
    begun: list[RequestKey] = []
    for datagram in datagrams:
        link.inject(datagram)
        link.run(dice.choice([0, 0, 0.1]))
        waiting = requests_of(link, "b")
        if waiting and dice.random() < 0.7:
            link.received["b"].remove(waiting[0])
            if b.requests.begin(waiting[0], link.now):
                running.append(waiting[0])
                begun.append(waiting[0].request_key)
        if running and dice.random() < 0.5:
            b.requests.reply(running.pop(0), 1, None, link.now)
    assert begun and len(set(begun)) == len(begun)
