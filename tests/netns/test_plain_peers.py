"""Peers that only know UDP and JSON: a sensor's one line, a listener of the first kind."""

from __future__ import annotations

import pytest

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, datagrams, values
from tests.netns.conftest import MakeLab
from tests.netns.plain import GROUP, LISTENER, PORT, message

CLASSIC_GROUP = "224.1.2.3"


@pytest.mark.parametrize(("options", "group"), [([], GROUP), (["--classic"], CLASSIC_GROUP)])
def test_a_sensor_sends_one_line_and_is_heard(lab: MakeLab, options: list[str], group: str) -> None:
    one, two = lab(2).hosts
    listener = one.start("sub", "sensors/**", *options)

    def is_heard() -> bool:
        two.send_plain(message("sensors/kitchen", {"temp": 21.5}), group)
        return {"temp": 21.5} in values(listener)

    assert wait_until(is_heard, TIMEOUT_S)


def test_a_plain_listener_that_shares_its_list_gets_its_messages_one_by_one(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    ear = one.start_script(LISTENER, one.address, GROUP, str(PORT))
    assert ear.wait_until(lambda p: p.lines(), TIMEOUT_S)
    publisher = two.start(
        "pub", "news", '{"n": 1}', "--count", "20", "--rate", "20", "--wait", "60"
    )

    def is_published() -> bool:
        one.send_plain(message("jsonbus.topics", ["jsonbus.topics", "news"]))
        return publisher.returncode is not None

    assert wait_until(is_published, TIMEOUT_S)
    assert publisher.returncode == 0, publisher.report()

    def news() -> list[object]:
        return [each["payload"] for each in datagrams(ear) if each["topic"] == "news"]

    assert wait_until(lambda: len(news()) >= 20, TIMEOUT_S)
    assert news() == [{"n": 1}] * 20
    # Whatever else it hears, it can read: objects with a topic and a payload.
    assert all({"topic", "payload"} <= each.keys() for each in datagrams(ear))
