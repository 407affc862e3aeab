"""What both front ends share."""

from __future__ import annotations

import itertools
import logging
import socket
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import jsonbus
from jsonbus.config import load
from jsonbus.core.events import (
    DatagramRejected,
    Event,
    GapFound,
    InterestChanged,
    MasterMissing,
    MessagesLost,
    NodeJoined,
    NodeLeft,
    PongReceived,
    ReplyReceived,
    RequestUnserved,
    StateChanged,
)
from jsonbus.core.mailbox import Overflow
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.wire.names import is_host_name, is_software_version
from jsonbus.errors import (
    ClosedError,
    ConfigError,
    LocalError,
    NobodyServesError,
    RequestFailedError,
)
from jsonbus.frontend.checks import SECONDS_MAX, check_optional_seconds, check_seconds
from jsonbus.frontend.log import WARNED_MAX, BusLog
from jsonbus.frontend.opening import make_host, make_name, make_node
from jsonbus.frontend.options import SubscribeOptions
from jsonbus.frontend.requests import (
    Answer,
    BaseRequests,
    Pong,
    describe_failure,
    read_answer,
)
from jsonbus.frontend.subscription import BaseSubscription, DiscardCounter
from jsonbus.frontend.watch import Watches

ORIGIN = Origin("node", "name", 1, 2.0, 3.0)


def make_messages(*values: object) -> list[Message]:
    return [make_message("x", value, None, ORIGIN) for value in values]


# --- opening --------------------------------------------------------------------------------------


def test_each_node_is_a_new_one_with_the_settings_of_its_bus() -> None:
    config = load(subs_share_delay=50, name="kitchen", datagram_bytes_max=2000, batching=False)
    first, second = make_node(config), make_node(config)
    assert first.settings.node != second.settings.node
    assert len(first.settings.node) >= 12
    assert first.settings.incarnation <= second.settings.incarnation
    assert first.settings.name == "kitchen"
    assert first.settings.mode == "delayed"
    assert first.settings.share_delay_s == 0.05
    assert first.settings.datagram_bytes_max == 2000
    assert not first.settings.batching


def test_a_node_is_told_the_buffer_that_its_transport_got() -> None:
    assert make_node(load(), 425_984).settings.receive_buffer_bytes == 425_984
    assert make_node(load()).settings.receive_buffer_bytes is None


def test_a_share_delay_of_zero_is_not_a_random_one() -> None:
    assert make_node(load(subs_share_delay=0)).settings.share_delay_s == 0
    assert make_node(load()).settings.share_delay_s is None


def test_a_master_is_one() -> None:
    settings = make_node(load(master=True)).settings
    assert (settings.mode, settings.is_master) == ("master", True)


def test_a_bus_without_a_name_is_named_after_host_and_process() -> None:
    assert make_name("kitchen.example.org", 17) == "kitchen-17"
    assert make_name("", 17) == "node-17"
    assert len(make_name("ü" * 300, 1_000_000).encode()) <= 255


def test_a_machine_is_called_by_its_name_as_far_as_others_take_it() -> None:
    assert make_host("kitchen.example.org") == "kitchen.example.org"
    assert make_host("") is None
    assert make_host("\x1b\n") is None
    assert make_host("a\ud800b\x9bc") == "abc"
    longest = make_host("x" + "ü" * 300)
    assert longest == "x" + "ü" * 31
    for host in ("kitchen", "ü" * 32, longest):
        assert is_host_name(host)


def test_a_node_tells_where_and_what_it_is() -> None:
    about = make_node(load()).settings.about
    assert about.version == jsonbus.__version__
    assert is_software_version(about.version)
    assert about.host == make_host(socket.gethostname())


# --- checks ---------------------------------------------------------------------------------------


def test_times_to_wait_are_numbers_of_seconds_within_reason() -> None:
    assert check_seconds("timeout", 1) == 1.0
    assert check_seconds("timeout", 1e300) == SECONDS_MAX
    assert check_optional_seconds("timeout", None) is None
    assert check_optional_seconds("timeout", 0) == 0.0
    for wrong in (-0.1, float("nan"), float("inf"), "1", True, None):
        with pytest.raises(ConfigError, match="timeout"):
            check_seconds("timeout", wrong)


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (NodeJoined("id", "hall"), logging.INFO, "node 'hall' (id) joined"),
        (NodeLeft("id", "hall", "left"), logging.INFO, "node 'hall' (id) left"),
        (NodeLeft("id", "hall", "gone"), logging.INFO, "node 'hall' (id) expired"),
        (StateChanged("sure", "why"), logging.DEBUG, "= sure: why"),
        (MasterMissing(), logging.WARNING, "--master"),
        (DatagramRejected("not_json", "1.2.3.4:5", "x\ny"), logging.WARNING, r"'x\ny'"),
        (MessagesLost("id", "hall", 3), logging.WARNING, "3 messages of node 'hall'"),
        (
            GapFound("id", "hall", "door", 4, 6),
            logging.WARNING,
            "3 messages of node 'hall' (id) to",
        ),
    ],
)
def test_events_are_logged_with_the_name_of_the_bus(
    caplog: pytest.LogCaptureFixture, event: Event, level: int, text: str
) -> None:
    caplog.set_level(logging.DEBUG, "jsonbus.bus")
    BusLog("kitchen").report(event)
    (record,) = caplog.records
    assert record.name == "jsonbus.bus"
    assert record.levelno == level
    assert record.getMessage().startswith("kitchen: ")
    assert text in record.getMessage()


def test_changed_interest_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "jsonbus.bus")
    BusLog("kitchen").report(InterestChanged())
    assert caplog.records == []


def test_a_cause_is_warned_of_once_and_the_memory_for_that_is_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "jsonbus.bus")
    log = BusLog("kitchen")
    for _ in range(3):
        log.report(MessagesLost("id", "hall", 1))
    assert [record.levelno for record in caplog.records] == [30, 10, 10]
    caplog.clear()
    for topic in ("a", "a", "b"):
        log.report(GapFound("id", "hall", topic, 1, 2))
    assert [record.levelno for record in caplog.records] == [30, 10, 30]
    caplog.clear()
    log = BusLog("kitchen")
    for number in range(2 * WARNED_MAX):
        log.warn_once(number, "trouble %d", number)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == WARNED_MAX


def make_requests(workers: int = 1, **services: str) -> BaseRequests:
    """The requests of a bus whose node counts requests and pings from 1."""
    ids = itertools.count(1)
    node = SimpleNamespace(
        requests=SimpleNamespace(request=lambda *_: next(ids)), ping=lambda now: next(ids)
    )
    loop: Any = SimpleNamespace(
        call=lambda act: act(node, 0.0), services=services, workers_max=workers
    )
    return BaseRequests(loop, nullcontext())


def test_answers_go_to_whoever_waits_for_them() -> None:
    requests = make_requests()
    got: list[Answer] = []
    for _ in range(2):
        requests._loop.call(requests._ask("x", None, 1.0, got.append))
    reply = ReplyReceived(1, "value", "id", "hall", None)
    for event in (reply, reply, ReplyReceived(3, 0, "id", "hall", None)):
        assert requests.give(event)
    assert got == [reply]
    requests.give_up()
    assert got == [reply, None]


def test_pongs_are_collected_nearest_first_until_they_are_taken() -> None:
    requests = make_requests()
    pongs = [PongReceived(1, "b", "far", 0.2), PongReceived(1, "a", "near", 0.1)]
    with requests._pinging() as got:
        for event in (*pongs, PongReceived(8, "c", "another ping", 0.1)):
            assert requests.give(event)
    assert got == [Pong("a", "near", 0.1), Pong("b", "far", 0.2)]
    assert requests.give(pongs[0])
    assert len(got) == 2


def test_an_answer_is_a_value_or_the_error_that_says_why_not() -> None:
    assert read_answer(ReplyReceived(1, [2], "id", "hall", None), "x") == [2]
    with pytest.raises(RequestFailedError, match="milk"):
        read_answer(ReplyReceived(1, None, "id", "hall", "spilt milk"), "x")
    with pytest.raises(NobodyServesError, match="'x'"):
        read_answer(RequestUnserved(1), "x")
    with pytest.raises(ClosedError, match="'x'"):
        read_answer(None, "x")


def test_a_failure_is_told_in_bounded_length() -> None:
    assert describe_failure(ValueError("spilt milk")) == "ValueError: spilt milk"
    assert len(describe_failure(ValueError("x" * 10_000))) == 150


# --- subscription ---------------------------------------------------------------------------------


class PlainSubscription(BaseSubscription):
    def end(self) -> None:
        self._end()


def make_subscription(maxsize: int, overflow: Overflow) -> BaseSubscription:
    loop: Any = SimpleNamespace(
        log=BusLog("kitchen"),
        discards=DiscardCounter(),
        watches=Watches(nullcontext()),
        wake_receivers=lambda: None,
    )
    return PlainSubscription(SubscribeOptions("x", None, maxsize, overflow), loop, None)


def test_a_subscription_that_blocks_keeps_what_does_not_fit_in_order() -> None:
    subscription = make_subscription(2, "block")
    subscription._put(make_messages(0))
    assert not subscription.blocks_receiving
    subscription._put(make_messages(1, 2, 3))
    subscription._put(make_messages(4))
    assert subscription.blocks_receiving
    assert (subscription.pending, subscription.dropped) == (5, 0)
    assert [m.value for m in subscription._take(1)] == [0]
    assert [m.value for m in subscription._take(10)] == [1, 2]
    assert [m.value for m in subscription._take(10)] == [3, 4]


def test_a_subscription_lets_receiving_go_on_when_it_is_half_empty() -> None:
    subscription = make_subscription(4, "block")
    subscription._put(make_messages(0, 1, 2, 3))
    assert subscription.blocks_receiving
    subscription._take(1)
    assert not subscription._unblocks()
    subscription._take(1)
    assert subscription._unblocks()
    assert not subscription.blocks_receiving
    assert not subscription._unblocks()


def test_a_subscription_that_ended_counts_what_it_had_and_what_comes_late() -> None:
    subscription = make_subscription(2, "block")
    subscription._put(make_messages(0, 1, 2))
    subscription._end()
    subscription._put(make_messages(3))
    assert (subscription.pending, subscription.blocks_receiving) == (0, False)
    assert (subscription.dropped, subscription._discards.dropped) == (0, 0)
    assert subscription._discards.unread == 4


# --- waits ----------------------------------------------------------------------------------------


def test_a_wait_needs_a_worker_that_does_not_wait() -> None:
    requests = make_requests(workers=3, topic="service")
    with requests._waiting_for("topic", is_handler=True):
        with requests._waiting_for("topic", is_handler=True):
            with (
                pytest.raises(LocalError, match="more workers"),
                requests._waiting_for("topic", is_handler=True),
            ):
                pass
        with requests._waiting_for("topic", is_handler=True):
            pass


@pytest.mark.parametrize(("topic", "is_handler"), [("elsewhere", True), ("topic", False)])
def test_waits_that_need_no_worker_of_this_bus_are_never_refused(
    topic: str, is_handler: bool
) -> None:
    requests = make_requests(workers=1, topic="service")
    with requests._waiting_for(topic, is_handler=is_handler):
        pass
