"""Last values between processes that end and start again."""

from __future__ import annotations

import signal

import pytest

from tests.end_to_end.processes import Desk


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_subscriber_that_starts_again_gets_the_last_value(desk: Desk, number: int) -> None:
    publisher = desk.start("pub", "--retain", "--stay", "--name", "hall", "door", '"open"')
    desk.wait_until(lambda: publisher.complaints == ["hall retains 1 value; Ctrl-C ends"])
    for _ in range(2):
        subscriber = desk.start("sub", "door")
        desk.wait_until(lambda each=subscriber: each.lines)
        (message,) = subscriber.results
        assert (message["value"], message["retained"]) == ("open", True)
        subscriber.send_signal(number)
        subscriber.wait()
    publisher.send_signal(signal.SIGINT)
    publisher.expect_exit(0)


def test_the_last_value_ends_with_its_publisher(desk: Desk) -> None:
    publisher = desk.start("pub", "--retain", "--stay", "--name", "hall", "door", '"open"')
    once = desk.start("sub", "--once", "--value", "door")
    once.expect_exit(0)
    assert once.lines == ['"open"']
    publisher.send_signal(signal.SIGTERM)
    publisher.expect_exit(0)
    desk.start("sub", "--once", "--timeout", "1", "door").expect_exit(3)
