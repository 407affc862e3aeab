"""What both topic queues rely on; their behaviour is tested with them, in test_topic_queue.py."""

from __future__ import annotations

import pytest

from jsonbus.errors import ClosedError
from jsonbus.queues.state import CALLER, QueueState, Reader


def state_with(maxsize: int, *subscribers: str) -> QueueState[str]:
    state = QueueState[str](maxsize)
    for subscriber in subscribers:
        assert state.subscribe(subscriber)
    return state


def reader_of(state: QueueState[str], subscriber: str) -> Reader:
    reader = state.reader(subscriber)
    assert reader is not None
    return reader


def test_what_is_dropped_is_handed_to_the_caller() -> None:
    state = state_with(4, "ann", "bob")
    for message in "wxyz":
        assert state.append(message)
    assert state.resize(3) == ["w"]
    assert state.remove("y") == ["y"]
    assert state.remove("y") == []
    assert state.take(reader_of(state, "ann")) == "x"
    assert state.unsubscribe("bob") == ["x"]  # ann has yet to read z
    assert state.unsubscribe("bob") is None
    assert state.unsubscribe("ann") == ["z"]
    assert len(state) == 0


def test_without_subscribers_nothing_is_added() -> None:
    state = state_with(1)
    assert not state.append("x")
    assert state.has_room


def test_a_reader_knows_when_it_is_no_longer_subscribed() -> None:
    state = state_with(1, "ann")
    reader = reader_of(state, "ann")
    state.unsubscribe("ann")
    state.subscribe("ann")
    assert not reader.is_subscribed
    assert reader_of(state, "ann").is_subscribed


def test_a_place_that_lags_behind_what_was_dropped_is_brought_up() -> None:
    state = state_with(3, "ann")
    reader = reader_of(state, "ann")
    for message in "xyz":
        state.append(message)
    state.resize(1)
    assert state.unread(reader) == 1
    assert state.take(reader) == "z"
    assert state.unread(reader) == 0


def test_closing_is_told_to_who_asks() -> None:
    state = state_with(1, "ann")
    state.check_open()
    state.is_closed = True
    with pytest.raises(ClosedError):
        state.check_open()
    with pytest.raises(ClosedError):
        state.subscribe("bob")


def test_the_default_subscriber_explains_itself_in_a_signature() -> None:
    assert repr(CALLER) == "<the caller>"
