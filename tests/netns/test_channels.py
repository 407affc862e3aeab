"""Channels among hosts: by name and id, over bad links, many at once, to nodes that come back."""

from __future__ import annotations

from pathlib import Path

from tests.netns.commands import TIMEOUT_S, events
from tests.netns.conftest import MakeLab
from tools.lab.shape import Shape

NODE = Path(__file__).with_name("channel_node.py")
BYTES = 200_000_000
MESSAGE_BYTES = 64_000


def test_bad_links_slow_a_channel_and_change_nothing_else(lab: MakeLab) -> None:
    # A frame has up to 64 KB here, so that a loss is one of some forty segments at once.
    shape = Shape(loss=0.003, delay_ms=2, jitter_ms=2, repeat=0.01, reorder=0.01)
    one, two = lab(2, shape, hub="relay").hosts
    talker = two.start_program(NODE, "talk", "talker", "server")
    server = one.start_program(NODE, "serve", "server")
    assert talker.wait_until(lambda p: len(events(p, "echoed")) == 2, TIMEOUT_S), talker.report()
    (ready,) = events(server, "ready")
    by_name, by_id = events(talker, "echoed")
    assert by_name["value"] == {"to": "server"}
    assert by_id["value"] == {"to": ready["id"]}
    assert by_name["node"] == by_id["node"] == ready["id"]

    count = str(BYTES // MESSAGE_BYTES)
    sender = two.start_program(
        NODE, "send", "sender", "server", "sink", "--count", count, "--size", str(MESSAGE_BYTES)
    )
    assert sender.wait_until(lambda p: events(p, "sent"), 3 * TIMEOUT_S), sender.report()
    (sent,) = events(sender, "sent", confirmed=True)
    assert server.wait_until(lambda p: events(p, "closed"), TIMEOUT_S), server.report()
    (came,) = events(server, "closed", intact=True, lost=False)
    assert came["sum"] == sent["sum"]


def test_a_hundred_channels_between_five_hosts_need_no_thread_each(lab: MakeLab) -> None:
    hosts = lab(5).hosts
    nodes = [
        host.start_program(
            NODE, "mesh", host.name, *(each.name for each in hosts if each is not host)
        )
        for host in hosts
    ]
    for node in nodes:
        assert node.wait_until(lambda p: events(p, "mesh"), 2 * TIMEOUT_S), node.report()
        (told,) = events(node, "mesh", channels=20, intact=True)
        assert told["more_threads"] == 0


def test_a_node_that_was_killed_is_found_again_under_its_name(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    knocker = two.start_program(NODE, "knock", "knocker", "server")
    assert knocker.wait_until(lambda p: events(p, "refused", reason="unknown"), TIMEOUT_S)
    for is_killed in (True, False):
        server = one.start_program(NODE, "serve", "server")
        assert server.wait_until(lambda p: events(p, "ready"), TIMEOUT_S), server.report()
        (ready,) = events(server, "ready")
        # Each has another TCP port, and the one that was killed is still in everybody's list.
        node = ready["id"]
        assert knocker.wait_until(lambda p, n=node: events(p, "reached", node=n), TIMEOUT_S)
        if is_killed:
            server.kill()
    assert not events(knocker, "refused", reason="ambiguous")
