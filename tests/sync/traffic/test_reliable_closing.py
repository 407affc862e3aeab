"""A publisher that closes right after its last reliable message."""

from __future__ import annotations

import pytest

from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus


@pytest.mark.slow
def test_a_handler_may_close_its_bus_after_a_reliable_message(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    asker, answerer = open_over(network.open()), open_over(network.open())
    answers = asker.subscribe("answer")

    def answer(message: object) -> None:
        answerer.publish("answer", "yes", reliable=True)
        answerer.close()

    answerer.subscribe("question", answer)
    assert asker.wait_for_subscribers("question", timeout=30)
    assert answerer.wait_for_subscribers("answer", timeout=30)
    asker.publish("question", "is it?")
    assert answers.get(timeout=30).value == "yes"
    assert wait_until(lambda: answerer.is_closed)
