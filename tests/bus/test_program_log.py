"""What the program did wrong is on standard error, unless logging is configured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jsonbus
from jsonbus.core.events import MessagesLost
from jsonbus.frontend.log import BusLog
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until

PORT = "port"


@contextmanager
def logging_unconfigured() -> Iterator[logging.Logger]:
    """Take away the handlers of pytest, as in a program that never heard of logging."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        yield root
    finally:
        root.handlers = handlers


def fail(_: object) -> None:
    raise RuntimeError("the sensor is upside down")


def in_a_subscription(bus: Any, other: Any) -> None:
    bus.subscribe("a", fail)
    bus.publish("a", 1)


def in_batches(bus: Any, other: Any) -> None:
    bus.subscribe("a", fail, in_batches=True)
    bus.publish("a", 1)


def in_a_service(bus: Any, other: Any) -> None:
    bus.serve("a", fail)
    with pytest.raises(jsonbus.RequestFailedError):
        bus.request("a", timeout=60)


def in_a_watch(bus: Any, other: Any) -> None:
    bus.on_node(fail)


def in_a_channel(bus: Any, other: Any) -> None:
    bus.bind(PORT, fail)
    other.connect(bus.id, PORT, timeout=60, retry=True)


@pytest.mark.parametrize(
    "happens", [in_a_subscription, in_batches, in_a_service, in_a_watch, in_a_channel]
)
def test_an_error_of_a_handler_is_seen_without_any_logging_configured(
    open_bus: OpenBus, capsys: pytest.CaptureFixture[str], happens: Callable[[Any, Any], None]
) -> None:
    bus, other = open_bus(name="kitchen"), open_bus()
    shown = ""

    def is_shown() -> bool:
        nonlocal shown
        shown += capsys.readouterr().err
        return "RuntimeError: the sensor is upside down" in shown

    with logging_unconfigured():
        happens(bus, other)
        assert wait_until(is_shown)
    assert "kitchen: " in shown
    assert shown.count("Traceback (most recent call last)") == 1


def test_an_error_of_a_handler_goes_to_logging_alone_where_that_is_configured(
    open_bus: OpenBus, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    in_a_subscription(open_bus(), None)
    assert wait_until(lambda: caplog.records)
    (record,) = caplog.records
    assert (record.levelname, record.exc_info is None) == ("ERROR", False)
    assert record.name.startswith("jsonbus.")
    assert capsys.readouterr().err == ""


def test_errors_of_handlers_can_be_silenced(
    open_bus: OpenBus, capsys: pytest.CaptureFixture[str]
) -> None:
    bus, handled = open_bus(), []
    logger = logging.getLogger("jsonbus")
    bus.subscribe("a", lambda message: handled.append(fail(handled.append(message))))
    with logging_unconfigured():
        logger.setLevel(logging.CRITICAL)
        try:
            for number in range(2):
                bus.publish("a", number)
            assert wait_until(lambda: len(handled) == 2)
            bus.close()
        finally:
            logger.setLevel(logging.NOTSET)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, "x" * 70_000])
def test_a_reply_that_cannot_be_sent_is_logged_where_it_was_made(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    bus = open_bus()
    bus.serve("odd", lambda request: value)
    with pytest.raises(jsonbus.RequestFailedError, match="the reply "):
        bus.request("odd", timeout=60)
    assert wait_until(lambda: [each for each in caplog.records if each.levelname == "ERROR"])
    assert "a request to 'odd' failed here: the reply " in caplog.text


def test_wildcards_of_other_systems_are_told_once_and_by_a_logger_of_their_own(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus(name="kitchen")
    for _ in range(2):
        bus.subscribe(["sensors/#", "c#"])
    bus.subscribe("door").add_pattern("+")
    bus.serve("a/#", len)  # one topic, and no pattern
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told == [
        "kitchen: 'sensors/#' has a wildcard of another system: did you mean 'sensors/**'?",
        "kitchen: '+' has a wildcard of another system: did you mean '*'?",
    ]
    assert {each.name for each in caplog.records} == {"jsonbus.bus.program.patterns"}


def test_wildcards_of_other_systems_are_seen_without_any_logging_configured(
    open_bus: OpenBus, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_unconfigured():
        open_bus().subscribe("sensors/#")
    assert "did you mean 'sensors/**'?" in capsys.readouterr().err


def test_what_is_no_fault_of_the_program_stays_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_unconfigured():
        BusLog("kitchen").report(MessagesLost("id", "hall", 1))
    assert capsys.readouterr().err == ""
