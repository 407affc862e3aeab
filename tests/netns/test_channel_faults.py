"""What becomes of channels when links are cut, nodes die or freeze, and readers are slow.

One scenario: all of it takes as long as a node may be silent, and so happens at the same time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from jsonbus.core.channel.limits import SILENCE_S, UNANSWERED_S
from tests.netns.commands import TIMEOUT_S, events
from tests.netns.conftest import MakeLab
from tools.lab.process import Process

NODE = Path(__file__).with_name("channel_node.py")
#: On a busy machine everything takes longer.
NOTICED_MAX_S = 3 * SILENCE_S
#: For who is gone for less than the silence: TCP sends again, but ever more seldom.
SHORT_S = 3.0
SLOW_BYTES = 100_000_000
#: What a channel may hold on both sides is a few MB, and a Python with it.
RESIDENT_GROWTH_MAX_KB = 30_000


SENDERS = ("cut", "blinking", "killed", "frozen", "drowsy", "off")


def test_channels_end_when_the_other_side_is_gone_and_only_then(lab: MakeLab) -> None:
    network = lab(2 + len(SENDERS))
    home, *others, far = network.hosts
    server = home.start_program(NODE, "serve", "home")
    host_of = dict(zip(SENDERS, others, strict=True))
    send = ("home", "sink", "--pause", "0.01")
    sender_of = {name: host_of[name].start_program(NODE, "send", name, *send) for name in SENDERS}
    offer = ("--count", str(SLOW_BYTES // 64_000))
    offering = far.start_program(NODE, "send", "offering", "home", "slow", *offer)
    assert server.wait_until(lambda p: heard_from(p).keys() == set(SENDERS), TIMEOUT_S)
    assert server.wait_until(lambda p: events(p, "slow"), TIMEOUT_S)

    began_at = time.monotonic()
    for name in ("cut", "blinking"):
        host_of[name].set_link(False)
    for name in ("frozen", "drowsy"):
        sender_of[name].set_frozen(True)
    network.hub.disconnect(host_of["off"].name)
    for name in ("off", "killed"):
        sender_of[name].kill()
    assert server.wait_until(lambda p: ended(p, "killed"), TIMEOUT_S)
    time.sleep(max(0.0, began_at + SHORT_S - time.monotonic()))
    heard = heard_from(server)
    host_of["blinking"].set_link(True)
    sender_of["drowsy"].set_frozen(False)
    was_short = time.monotonic() - began_at < UNANSWERED_S - 1

    for name in ("cut", "frozen", "off"):
        assert server.wait_until(lambda p, n=name: ended(p, n), TIMEOUT_S)
        assert SILENCE_S - 3 < noticed_s(server, name, began_at) < NOTICED_MAX_S
    assert noticed_s(server, "killed", began_at) < SILENCE_S - 1
    assert sender_of["cut"].wait_until(lambda p: events(p, "closed", lost=True), TIMEOUT_S)
    (told,) = events(sender_of["cut"], "closed")
    assert UNANSWERED_S - 3 < told["at"] - began_at < NOTICED_MAX_S
    assert told["count"] >= heard_from(server)["cut"]["count"]
    # Whatever came was sent, from the first on and in order.
    assert all(each["intact"] for each in heard_from(server).values())

    if was_short:
        for name in ("blinking", "drowsy"):
            assert server.wait_until(lambda p, n=name: has_gone_on(p, n, heard), TIMEOUT_S)
            assert not events(sender_of[name], "closed"), sender_of[name].report()
    check_slow_reader(server, offering)


def check_slow_reader(server: Process, sender: Process) -> None:
    """It took nothing for longer than an answer may take, and then everything."""
    assert server.wait_until(lambda p: events(p, "slow closed"), TIMEOUT_S), server.report()
    assert sender.wait_until(lambda p: events(p, "sent"), TIMEOUT_S), sender.report()
    (connected,), (sent,) = events(sender, "connected"), events(sender, "sent", confirmed=True)
    assert sent["longest_s"] > UNANSWERED_S  # it had to wait
    assert sent["resident_kb"] - connected["resident_kb"] < RESIDENT_GROWTH_MAX_KB
    (came,) = events(server, "slow closed", intact=True, lost=False)
    assert came["count"] == sent["count"]
    (began,), (full,) = events(server, "slow"), events(server, "slow reads")
    assert full["pending"]
    assert full["resident_kb"] - began["resident_kb"] < RESIDENT_GROWTH_MAX_KB


def heard_from(server: Process) -> dict[str, dict[str, Any]]:
    """How each sender's channel stood when the server told last."""
    told = events(server, "standing")
    return {each["from"]: each for each in told[-1]["sinks"] if each["count"]} if told else {}


def has_gone_on(server: Process, name: str, before: dict[str, dict[str, Any]]) -> bool:
    """Whether much more has come since."""
    return bool(heard_from(server)[name]["count"] > before[name]["count"] + 20)


def ended(server: Process, name: str) -> list[dict[str, Any]]:
    return events(server, "closed", lost=True, **{"from": name})


def noticed_s(server: Process, name: str, since: float) -> float:
    (told,) = ended(server, name)
    return float(told["at"]) - since
