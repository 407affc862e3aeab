"""A process in the hub that sees what every host sends, before the network can lose it.

    python3 -m tools.lab.promises.tap PORT…

For each datagram to the group it prints a line of JSON: when it was seen, at which port, its
sender, its topic, the digest of the sender's list if it tells one, and of each message in it the
number that its value carries, its topic, and its sequence if it is reliable. It reads the bytes by
itself, as any program could that knows the wire format, and uses nothing of jsonbus; but with
JSONBUS_KEY_FILE set, it has to be a sealed bus, and unsealing.py opens all that is sent.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from tools.lab.relay import open_port, take_precedence

UDP_PORT = 2416
_ETHERNET_BYTES = 14
_IPV4 = b"\x08\x00"
_UDP = 17
_UDP_HEADER_BYTES = 8
#: The beginning of a message in slices, as the first of them has it.
_FIRST_SLICE = re.compile(r'\["([^"]+)",\{"number":(\d+)')

Message = tuple[int, str, int | None]

#: What a host sent -> the datagram in it; nothing if it has none.
Unseal = Callable[[bytes], bytes]


def main(names: list[str]) -> None:
    unseal = make_unseal(os.environ.get("JSONBUS_KEY_FILE"))
    with selectors.DefaultSelector() as selector:
        for name in names:
            selector.register(open_port(name, has_header=False), selectors.EVENT_READ, name)
        print(json.dumps({"at": time.time(), "port": "", "topic": "ready"}), flush=True)
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                take(key.fileobj, key.data, unseal)


def make_unseal(key_file: str | None) -> Unseal:
    if key_file is None:
        return bytes
    from tools.lab.promises.unsealing import Unsealing  # with cryptography

    return Unsealing(key_file).unseal


def take(port: socket.socket, name: str, unseal: Unseal) -> None:
    """Print what came to a port."""
    while True:
        try:
            frame, address = port.recvfrom(65_536)
        except OSError:
            break  # nothing more, or the port is down
        if address[2] == socket.PACKET_OUTGOING:
            continue
        payload = payload_of(frame)
        text = unseal(payload) if payload else b""
        if text:
            facts = {"at": time.time(), "port": name, **facts_of(json.loads(text))}
            sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def payload_of(frame: bytes) -> bytes:
    """Return what a frame carries to the group's port; nothing if it is another frame."""
    packet = frame[_ETHERNET_BYTES:]
    if frame[12:14] != _IPV4 or len(packet) < 20 or packet[9] != _UDP:
        return b""
    segment = packet[4 * (packet[0] & 0x0F) :]
    if int.from_bytes(segment[2:4], "big") != UDP_PORT:
        return b""
    return segment[_UDP_HEADER_BYTES : int.from_bytes(segment[4:6], "big")]


def facts_of(datagram: dict[str, Any]) -> dict[str, Any]:
    """Return what the tap prints of a datagram."""
    header = datagram.get("jb", {})
    facts = {"node": header.get("n"), "topic": datagram["topic"]}
    if "dig" in header:
        facts["digest"] = header["dig"]
    messages = list(messages_in(datagram, header))
    return {**facts, "messages": messages} if messages else facts


def messages_in(datagram: dict[str, Any], header: dict[str, Any]) -> Iterator[Message]:
    """Yield the lab's messages in a datagram: the number in the value, topic and sequence."""
    match datagram["topic"]:
        case "jsonbus.batch" | "jsonbus.repair":
            for topic, value, *more in datagram["payload"]:
                if is_ours(topic):
                    yield value["number"], topic, more[0] if more else None
        case "jsonbus.frag":
            _, index, _, *sequence = header["f"]
            begin = _FIRST_SLICE.match(datagram["payload"]) if index == 0 else None
            if begin is not None and is_ours(begin[1]):
                yield int(begin[2]), begin[1], sequence[0] if sequence else None
        case topic if is_ours(topic):
            yield datagram["payload"]["number"], topic, header.get("s")


def is_ours(topic: str) -> bool:
    return topic.startswith("lab/")


if __name__ == "__main__":
    take_precedence()
    main(sys.argv[1:])
