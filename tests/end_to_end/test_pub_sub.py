"""Values between processes that found each other without a broker."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.processes import Desk
from tests.helpers import find_free_port


@pytest.mark.parametrize("mode", ["basic", "master", "delayed"])
def test_a_value_travels_from_one_process_to_another(desk: Desk, mode: str) -> None:
    if mode == "master":
        desk.start("node", "--master")
    subscriber = desk.start("sub", "--mode", mode, "sensors/**")
    # In mode basic no list is shared: that it arrives is the only way to know.
    desk.wait_until(
        lambda: (
            desk.run("pub", "--mode", mode, "sensors/kitchen", '{"temp":21.5}') and subscriber.lines
        )
    )
    message = subscriber.results[0]
    assert (message["topic"], message["value"]) == ("sensors/kitchen", {"temp": 21.5})


def test_a_publisher_that_waits_serves_a_late_subscriber(desk: Desk) -> None:
    publisher = desk.start("pub", "--wait", "120", "--name", "early", "door", '"open"')
    desk.wait_until(lambda: "early" in desk.names())
    subscriber = desk.start("sub", "--value", "--count", "1", "door")
    subscriber.expect_exit(0)
    assert subscriber.lines == ['"open"']
    publisher.expect_exit(0)
    assert publisher.complaints == []


def test_a_late_subscriber_gets_what_is_published_from_then_on(desk: Desk) -> None:
    early = desk.subscribe("--value", "count")
    publisher = desk.start("pub", "count", stdin=subprocess.PIPE)
    publisher.stdin.write("1\n")
    publisher.stdin.flush()
    desk.wait_until(lambda: early.lines == ["1"])
    late = desk.subscribe("--value", "count")
    publisher.stdin.write("2\n")
    publisher.stdin.close()
    publisher.expect_exit(0)
    desk.wait_until(lambda: early.lines == ["1", "2"])
    desk.wait_until(lambda: late.lines == ["2"])


def test_every_subscriber_gets_every_value_in_order(desk: Desk) -> None:
    subscribers = [desk.subscribe("--value", "--count", "200", pattern) for pattern in ("n", "**")]
    publisher = desk.start("pub", "--rate", "2000", "n", stdin=subprocess.PIPE)
    publisher.stdin.write("".join(f"{number}\n" for number in range(200)))
    publisher.stdin.close()
    publisher.expect_exit(0)
    for subscriber in subscribers:
        subscriber.expect_exit(0)
        assert subscriber.results == list(range(200))


def test_what_sub_prints_goes_back_out_under_its_own_topics(desk: Desk, tmp_path: Path) -> None:
    pairs = [(f"room/{number}", {"n": number, "text": 'é ☃ \\ " \n'}) for number in range(5)]
    subscriber = desk.subscribe("--count", "5", "room/*")
    publisher = desk.start("pub", stdin=subprocess.PIPE)
    for topic, value in pairs:
        publisher.stdin.write(json.dumps({"topic": topic, "value": value}) + "\n")
    publisher.stdin.close()
    publisher.expect_exit(0)
    subscriber.expect_exit(0)

    kept = tmp_path / "kept.jsonl"
    kept.write_text("".join(f"{line}\n" for line in subscriber.lines), encoding="utf-8")
    again = desk.subscribe("--count", "5", "**")
    desk.start_shell(f"jsonbus pub < {kept}").expect_exit(0)
    again.expect_exit(0)
    assert [(line["topic"], line["value"]) for line in again.results] == pairs


def test_a_pipe_from_sub_to_pub_copies_a_bus_to_another(desk: Desk) -> None:
    other_port = find_free_port()
    copier = desk.start_shell(
        f"jsonbus sub --name copier --count 3 'a/**' | jsonbus pub --wait 120 --port {other_port}"
    )
    receiver = desk.start("sub", "--count", "3", "**", port=other_port)
    desk.wait_for_node("copier")
    for number in range(3):
        desk.run("pub", f"a/{number}", str(number))
    receiver.expect_exit(0)
    copier.expect_exit(0)
    assert [(line["topic"], line["value"]) for line in receiver.results] == [
        (f"a/{number}", number) for number in range(3)
    ]


def test_a_plain_datagram_of_a_sensor_is_printed(desk: Desk) -> None:
    subscriber = desk.subscribe("--count", "1", "hello")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor:
        interface = socket.inet_aton("239.255.24.16") + socket.inet_aton("127.0.0.1")
        sensor.setsockopt(
            socket.IPPROTO_IP,
            socket.IP_MULTICAST_IF,
            interface + struct.pack("@i", socket.if_nametoindex("lo")),
        )
        sensor.sendto(b'{"topic":"hello","payload":[1,2]}', ("239.255.24.16", desk.port))
        address = f"127.0.0.1:{sensor.getsockname()[1]}"
    subscriber.expect_exit(0)
    (message,) = subscriber.results
    assert (message["topic"], message["value"], message["sequence"]) == ("hello", [1, 2], None)
    assert message["node"] == f"plain:{address}"


def test_a_killed_subscriber_hurts_nobody_and_is_noticed(desk: Desk) -> None:
    survivor = desk.subscribe("--value", "door")
    victim = desk.subscribe("door")
    victim.send_signal(signal.SIGKILL)
    victim.expect_exit(-signal.SIGKILL)
    desk.run("pub", "door", "1")
    desk.wait_until(lambda: survivor.lines == ["1"])
    # Its lease runs out: some heartbeats later nobody counts on it any more.
    desk.wait_until(lambda: len(desk.names()) == 1)
    desk.run("pub", "door", "2")
    desk.wait_until(lambda: survivor.lines == ["1", "2"])


@pytest.mark.parametrize(
    ("arguments", "reply"), [((), {"a": 1}), (("--value", "5"), 5), (("--exec", "wc -l"), 1)]
)
def test_requests_are_answered_by_another_process(
    desk: Desk, arguments: tuple[str, ...], reply: object
) -> None:
    desk.start("serve", "--name", "server", "t", *arguments)
    desk.wait_for_node("server")
    assert desk.run("request", "--timeout", "60", "t", '{"a":1}').results == [reply]


def test_a_request_whose_command_fails_is_told_why_on_both_sides(desk: Desk) -> None:
    server = desk.start(
        "serve", "--name", "server", "print", "--exec", "echo out of paper >&2; exit 7"
    )
    desk.wait_for_node("server")
    client = desk.start("request", "--timeout", "60", "print")
    client.expect_exit(1)
    assert "out of paper" in client.complaints[-1]
    desk.wait_until(lambda: any("out of paper" in line for line in server.complaints))
    assert not any("Traceback" in line for line in server.complaints)


def test_a_node_tells_who_joins_and_leaves(desk: Desk) -> None:
    node = desk.start("node", "--name", "watcher", "--sub", "x")
    desk.wait_for_node("watcher")
    guest = desk.subscribe("y")

    def told(what: str) -> bool:
        return any("'subscriber-1'" in line and what in line for line in node.complaints)

    desk.wait_until(lambda: told("joined"))
    guest.send_signal(signal.SIGINT)
    guest.expect_exit(0)
    desk.wait_until(lambda: told("left"))
