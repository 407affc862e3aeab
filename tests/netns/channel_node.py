"""A node with channels, as a program for Host.start_program; prints one JSON object a line.

    serve NAME                      binds echo, sink, slow; tells what becomes of its channels
    send NAME TO PORT [options]     connects and sends numbered messages, as long as it can
    talk NAME TO…                   connects to each, by its name and then by its id, and has it
                                    echo something
    knock NAME TO                   connects again and again, and tells how that went
    mesh NAME TO… [--each N]        N channels to each of the others, which echo what they get

With --interface in front of the role, which may be repeated, on these interfaces only.
A numbered message is bytes: its number, and something that depends on it. Times are of the
machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import jsonbus
from jsonbus.errors import ChannelClosedError, ChannelError, ChannelRefusedError
from jsonbus.sync.channel import Channel

TELL_S = 0.2
KNOCK_S = 0.1
CONNECT_S = 60.0
#: Longer than a node may be silent.
SLOW_S = 10.0
PATTERN = bytes(range(251)) * 300
_lock = threading.Lock()


def main() -> None:
    options = _parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings: Any = {"interface": options.interface} if options.interface else {}
    with jsonbus.Bus(name=options.name, **settings) as bus:
        match options.role:
            case "serve":
                serve(bus)
            case "send":
                send(bus, options)
            case "talk":
                talk(bus, options.to)
            case "knock":
                knock(bus, *options.to)
            case "mesh":
                mesh(bus, options.to, options.each)
        while True:
            time.sleep(600)


class Sink:
    """Holds numbered messages against what they should be."""

    def __init__(self, channel: Channel) -> None:
        self.count = 0
        self.is_intact = True
        self.name = channel.name
        self._sum = hashlib.sha256()

    def take(self, message: bytes) -> None:
        self.is_intact &= message == make_message(self.count, len(message))
        self._sum.update(message)
        self.count += 1

    def end(self, error: ChannelClosedError) -> None:
        tell("closed", **self.standing(), **_describe(error), sum=self._sum.hexdigest())

    def standing(self) -> dict[str, Any]:
        return {"from": self.name, "count": self.count, "intact": self.is_intact}


def serve(bus: jsonbus.Bus) -> None:
    sinks: list[Sink] = []

    def accept_sink(channel: Channel) -> None:
        sink = Sink(channel)
        sinks.append(sink)
        channel.on_message(sink.take)
        channel.on_closed(sink.end)

    bus.bind("echo", bind_echo)
    bus.bind("sink", accept_sink)
    slow = bus.bind("slow")
    threading.Thread(target=lambda: [_read_slowly(each) for each in slow], daemon=True).start()
    tell("ready", id=bus.id)
    while True:
        tell("standing", sinks=[sink.standing() for sink in sinks], resident_kb=resident_kb())
        time.sleep(TELL_S)


def bind_echo(channel: Channel) -> None:
    channel.on_message(channel.send)


def _read_slowly(channel: Channel) -> None:
    """Nothing for a while, then everything."""
    sink = Sink(channel)
    tell("slow", resident_kb=resident_kb())
    time.sleep(SLOW_S)
    tell("slow reads", pending=channel.pending, resident_kb=resident_kb())
    try:
        while True:
            sink.take(channel.receive())
    except ChannelClosedError as error:
        tell("slow closed", **sink.standing(), **_describe(error), resident_kb=resident_kb())


def send(bus: jsonbus.Bus, options: argparse.Namespace) -> None:
    (to,) = options.to
    channel = bus.connect(to, options.port, CONNECT_S, retry=True)
    tell("connected", node=channel.node, resident_kb=resident_kb())
    checksum, number, longest_s = hashlib.sha256(), 0, 0.0
    began_at = time.monotonic()
    try:
        for number in range(options.count):
            message = make_message(number, options.size)
            began_send_at = time.monotonic()
            channel.send(message)
            longest_s = max(longest_s, time.monotonic() - began_send_at)
            checksum.update(message)
            if options.pause:
                time.sleep(options.pause)
    except ChannelClosedError as error:
        tell("closed", count=number, **_describe(error))
        return
    is_confirmed = channel.close(CONNECT_S)
    tell(
        "sent",
        count=options.count,
        confirmed=is_confirmed,
        sum=checksum.hexdigest(),
        seconds=time.monotonic() - began_at,
        longest_s=longest_s,
        resident_kb=resident_kb(),
    )


def talk(bus: jsonbus.Bus, names: list[str]) -> None:
    for name in names:
        who = name
        for _ in range(2):
            with bus.connect(who, "echo", CONNECT_S, retry=True) as channel:
                channel.send({"to": who})
                tell("echoed", node=channel.node, name=channel.name, value=channel.receive(60.0))
                who = channel.node


def knock(bus: jsonbus.Bus, to: str) -> None:
    while True:
        try:
            with bus.connect(to, "echo") as channel:
                channel.send("knock")
                channel.receive(1.0)
                tell("reached", node=channel.node)
        except ChannelRefusedError as error:
            tell("refused", reason=error.reason)
        except ChannelError as error:
            tell("failed", reason=str(error))
        time.sleep(KNOCK_S)


def mesh(bus: jsonbus.Bus, names: list[str], each: int) -> None:
    bus.bind("echo", bind_echo)
    first = bus.connect(names[0], "echo", CONNECT_S, retry=True)
    threads = threading.active_count()
    channels = [
        bus.connect(name, "echo", CONNECT_S, retry=True) for name in names for _ in range(each)
    ]
    for number in range(20):
        for index, channel in enumerate(channels):
            channel.send({"from": bus.name, "channel": index, "number": number})
            channel.send(make_message(index + number, 5_000))
    is_intact = all(
        channel.receive(60.0) == {"from": bus.name, "channel": index, "number": number}
        and channel.receive(60.0) == make_message(index + number, 5_000)
        for index, channel in enumerate(channels)
        for number in range(20)
    )
    tell(
        "mesh",
        channels=len(channels),
        intact=is_intact,
        more_threads=threading.active_count() - threads,
    )
    first.close()


def make_message(number: int, size: int) -> bytes:
    begin = number % 251
    head = number.to_bytes(8, "big")
    return head + PATTERN[begin : begin + size - len(head)]


def tell(event: str, **facts: Any) -> None:
    with _lock:
        print(  # noqa: T201 (for the test)
            json.dumps({"event": event, "at": time.monotonic(), **facts}), flush=True
        )


def resident_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not tell")


def _describe(error: ChannelClosedError) -> dict[str, Any]:
    return {"lost": error.is_lost, "reason": error.reason}


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interface", action="append")
    roles = parser.add_subparsers(dest="role", required=True)
    role = roles.add_parser("serve")
    role.add_argument("name")
    role = roles.add_parser("send")
    role.add_argument("name")
    role.add_argument("to", nargs=1)
    role.add_argument("port")
    role.add_argument("--count", type=int, default=10**9)
    role.add_argument("--size", type=int, default=64_000)
    role.add_argument("--pause", type=float, default=0.0)
    for name in ("talk", "knock", "mesh"):
        role = roles.add_parser(name)
        role.add_argument("name")
        role.add_argument("to", nargs="+")
        role.add_argument("--each", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
