from __future__ import annotations

import threading

import pytest

from jsonbus import Message
from jsonbus.cli import listening
from jsonbus.cli.listening import Inbox
from jsonbus.core.message import make_message
from tests.helpers import wait_until


def message(value: object) -> Message:
    return make_message("t", value, None, None)  # type: ignore[arg-type]


def test_messages_come_out_in_order_and_all_at_once() -> None:
    inbox = Inbox(may_repeat=True)
    messages = [message(each) for each in range(5)]
    for each in messages:
        inbox.put(each)
    assert inbox.take(30) == messages
    assert inbox.take(0) == []


def test_the_same_message_counts_once_even_after_it_was_taken() -> None:
    inbox = Inbox(may_repeat=True)
    first, second = message(1), message(1)
    inbox.put(first)
    inbox.put(first)
    assert inbox.take(30) == [first]
    inbox.put(first)
    inbox.put(second)
    assert inbox.take(30) == [second]


def test_who_brings_waits_while_it_is_full() -> None:
    inbox = Inbox(may_repeat=True)
    count = listening.INBOX_MESSAGES_MAX + 1
    bringing = threading.Thread(
        target=lambda: [inbox.put(message(each)) for each in range(count)], daemon=True
    )
    bringing.start()
    taken: list[Message] = []

    def take() -> bool:
        batch = inbox.take(0)
        assert len(batch) <= listening.INBOX_MESSAGES_MAX
        taken.extend(batch)
        return len(taken) == count

    assert wait_until(take)
    bringing.join(30)
    assert not bringing.is_alive()


def test_closing_lets_go_whoever_waits() -> None:
    inbox = Inbox(may_repeat=True)
    bringing = threading.Thread(
        target=lambda: [inbox.put(message(each)) for each in range(3_000)], daemon=True
    )
    bringing.start()
    inbox.close()
    bringing.join(30)
    assert not bringing.is_alive()


def test_its_memory_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAILBOX_MESSAGES_MAX", 50)
    inbox = Inbox(may_repeat=True)
    for each in range(150):
        inbox.put(message(each))
        inbox.take(0)
    assert len(inbox._recent) == 100
