from __future__ import annotations

import threading

from jsonbus import Message
from jsonbus.cli.lib import message_printer as listening
from jsonbus.cli.lib.message_printer import Inbox
from jsonbus.core.message import make_message
from tests.helpers import wait_until


def message(value: object) -> Message:
    return make_message("t", value, None, None)  # type: ignore[arg-type]


def test_messages_come_out_in_order_and_all_at_once() -> None:
    inbox = Inbox()
    messages = [message(each) for each in range(5)]
    for each in messages:
        inbox.put(each)
    assert inbox.take(30) == messages
    assert inbox.take(0) == []


def test_who_brings_waits_while_it_is_full() -> None:
    inbox = Inbox()
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
    inbox = Inbox()
    bringing = threading.Thread(
        target=lambda: [inbox.put(message(each)) for each in range(3_000)], daemon=True
    )
    bringing.start()
    inbox.close()
    bringing.join(30)
    assert not bringing.is_alive()
