"""The parts of the way from publish to handler, each as a loop to be timed or counted.

A loop is prepared for a number of messages, and then run with as many or fewer. Preparation makes
everything that is needed once, such as datagrams to receive, so that two runs with different
numbers differ only in the loop.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

from orjson import dumps, loads

import jsonbus
from jsonbus.core.limits import HISTORY_TOPIC_MESSAGES_MAX
from jsonbus.core.node import Node
from jsonbus.core.routing.pattern_map import PatternMap
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode_messages import Stamp, encode_batch, encode_message
from tools.bench.bus.floor import Batcher, take_batches, take_single
from tools.bench.bus.growth import MESSAGES_PER_SEND, make_publisher_node, make_subscriber_node
from tools.bench.bus.spec import SENSOR, TOPIC, TOPIC_NOBODY_WANTS, make_value
from tools.bench.wire.scripted import ADDRESS, ScriptedTransport

VALUE_JSON = dumps(SENSOR)
TOPIC_JSON = dumps(TOPIC)
PAIR = b"[%b,%b]" % (TOPIC_JSON, VALUE_JSON)
UNWANTED_BYTES = 1600
SLICED_BYTES = 1 << 20
PATTERNS = 1000
#: Far longer than any loop takes, under callgrind too.
WAIT_S = 120.0

Loop = Callable[[int], None]


def dump_values(_prepared: int) -> Loop:
    return lambda count: _repeat(count, dumps, SENSOR)


def dump_by_codec(_prepared: int) -> Loop:
    return lambda count: _repeat(count, codec.dumps, SENSOR)


def encode_messages(_prepared: int) -> Loop:
    stamp = Stamp("publisher", 1)

    def loop(count: int) -> None:
        for number in range(count):
            encode_message(stamp, TOPIC_JSON, codec.dumps(SENSOR), number, 0)

    return loop


def encode_batches(_prepared: int) -> Loop:
    stamp = Stamp("publisher", 1)

    def loop(count: int) -> None:
        for number in range(0, count, MESSAGES_PER_SEND):
            pairs = [
                b"[%b,%b]" % (TOPIC_JSON, codec.dumps(SENSOR)) for _ in range(MESSAGES_PER_SEND)
            ]
            encode_batch(stamp, b",".join(pairs), number, 0)

    return loop


def load_values(_prepared: int) -> Loop:
    return lambda count: _repeat(count, loads, VALUE_JSON)


def decode_messages(_prepared: int) -> Loop:
    datagram = encode_message(Stamp("publisher", 1), TOPIC_JSON, VALUE_JSON, 1, 0)
    return lambda count: _repeat(count, decode, datagram)


def decode_batches(_prepared: int) -> Loop:
    pairs = b",".join([PAIR] * MESSAGES_PER_SEND)
    datagram = encode_batch(Stamp("publisher", 1), pairs, 1, 0)
    return lambda count: _repeat(count // MESSAGES_PER_SEND, decode, datagram)


def floor_publish(_prepared: int) -> Loop:
    return lambda count: Batcher(len, 1_400).put(TOPIC, SENSOR, count)


def floor_publish_singly(_prepared: int) -> Loop:
    def loop(count: int) -> None:
        for number in range(count):
            dumps((number, TOPIC, SENSOR))

    return loop


def node_publish(_prepared: int) -> Loop:
    node = make_publisher_node()

    def loop(count: int) -> None:
        publish, take = node.publish, node.outbox.take
        for _ in range(count // MESSAGES_PER_SEND):
            for _ in range(MESSAGES_PER_SEND):
                publish(TOPIC, SENSOR, 0.0)
            take(0.0)

    return loop


def node_publish_reliable(_prepared: int) -> Loop:
    """With a history that is full, as in any long flood: each message pushes another one out."""
    node = make_publisher_node()
    _publish_reliably(node, HISTORY_TOPIC_MESSAGES_MAX, 0.0)
    return lambda count: _publish_reliably(node, count, 1.0)


def node_publish_singly(_prepared: int) -> Loop:
    node = make_publisher_node()

    def loop(count: int) -> None:
        publish, take = node.publish, node.outbox.take
        for _ in range(count):
            publish(TOPIC, SENSOR, 0.0)
            take(0.0)

    return loop


def bus_publish(_prepared: int) -> Loop:
    """`Bus.publish` until its datagrams are with the transport, which drops them."""
    return _publish_by(_open_bus(ScriptedTransport()))


def bus_publish_reliable(_prepared: int) -> Loop:
    return _publish_by(_open_bus(ScriptedTransport(), reliable=True))


def node_suppress(_prepared: int) -> Loop:
    node = make_publisher_node()
    assert node.publish("nobody/wants/this", SENSOR, 0.0) is False
    return lambda count: _repeat(count, node.publish, "nobody/wants/this", SENSOR, 0.0)


def floor_receive(prepared: int) -> Loop:
    datagrams: list[bytes] = []
    batcher = Batcher(datagrams.append, 1_400)
    batcher.put(TOPIC, SENSOR, prepared)
    batcher.push()
    per_datagram = len(loads(datagrams[0])[1])
    return lambda count: _ignore(
        take_batches(datagrams[: count // per_datagram], {TOPIC: lambda value: None})
    )


def floor_receive_singly(prepared: int) -> Loop:
    datagrams = [dumps((number, TOPIC, SENSOR)) for number in range(1, prepared + 1)]
    return lambda count: _ignore(take_single(datagrams[:count], {TOPIC: lambda value: None}))


def node_receive(prepared: int) -> Loop:
    sender = make_publisher_node()
    node, datagrams = make_subscriber_node(sender, TOPIC), list(_batches(sender, prepared))
    return lambda count: _receive(node, datagrams[: count // MESSAGES_PER_SEND])


def node_receive_reliable(prepared: int) -> Loop:
    sender = make_publisher_node()
    datagrams = list(_batches(sender, prepared, is_reliable=True))
    node = make_subscriber_node(sender, TOPIC)
    return lambda count: _receive(node, datagrams[: count // MESSAGES_PER_SEND])


def node_receive_slices(prepared: int) -> Loop:
    """One large message in so many slices after the other; each counts as a message here."""
    sender = make_publisher_node()
    slices: list[bytes] = []
    while len(slices) < prepared:
        slices += _singles(sender, "x" * SLICED_BYTES, 1)
    node = make_subscriber_node(sender, TOPIC)
    return lambda count: _receive(node, slices[:count])


def node_receive_singly(prepared: int) -> Loop:
    sender = make_publisher_node()
    node, datagrams = make_subscriber_node(sender, TOPIC), list(_singles(sender, SENSOR, prepared))
    return lambda count: _receive(node, datagrams[:count])


def node_refuse(prepared: int) -> Loop:
    """Messages of 1.6 KB that this node does not want."""
    sender = make_publisher_node()
    sender.outbox.allow_bytes(2 * UNWANTED_BYTES)  # else they would be sent in slices
    node = make_subscriber_node(sender, TOPIC_NOBODY_WANTS)
    datagrams = list(_singles(sender, make_value(UNWANTED_BYTES), prepared))
    return lambda count: _receive(node, datagrams[:count])


def bus_receive(prepared: int) -> Loop:
    """From the transport to a handler, by receive thread and worker."""
    return _receive_by_bus(prepared, is_reliable=False)


def bus_receive_reliable(prepared: int) -> Loop:
    return _receive_by_bus(prepared, is_reliable=True)


def _receive_by_bus(prepared: int, *, is_reliable: bool) -> Loop:
    sender = Node(NodeSettings("publisher", 1, "publisher", mode="basic"), random.Random(1))
    sender.open(0.0)
    greeting = sender.outbox.take(0.0)
    datagrams = list(_batches(sender, prepared, is_reliable=is_reliable))
    transport = ScriptedTransport()
    bus = _open_bus(transport)
    handled, expected, finished = 0, 0, threading.Event()

    def handle(_message: Any) -> None:
        nonlocal handled
        handled += 1
        if handled == expected:
            finished.set()

    bus.subscribe(TOPIC, handle, maxsize=prepared + 1)
    transport.bring(greeting)

    def loop(count: int) -> None:
        nonlocal expected
        chosen = datagrams[: count // MESSAGES_PER_SEND]
        expected = len(chosen) * MESSAGES_PER_SEND
        transport.bring(chosen)
        if not finished.wait(WAIT_S):
            raise RuntimeError(f"{handled} of {expected} messages arrived")

    return loop


def match_exactly(_prepared: int) -> Loop:
    patterns = _make_patterns()
    return lambda count: _repeat(count, patterns.match, "room/7/sensor/7")


def match_anew(prepared: int) -> Loop:
    """Topics that were never seen before, against 1,000 patterns."""
    patterns = _make_patterns()
    topics = [f"room/{number % PATTERNS}/sensor/{number}" for number in range(prepared)]

    def loop(count: int) -> None:
        for topic in topics[:count]:
            patterns.match(topic)

    return loop


def close_buses() -> None:
    """End what pieces have opened; not part of what is measured."""
    while _buses:
        _buses.pop().close()


_buses: list[jsonbus.Bus] = []


def _open_bus(transport: ScriptedTransport, *, reliable: bool = False) -> jsonbus.Bus:
    _buses.append(jsonbus.Bus.over(transport, mode="basic", reliable=reliable))
    return _buses[-1]


def _publish_by(bus: jsonbus.Bus) -> Loop:
    def loop(count: int) -> None:
        _repeat(count, bus.publish, TOPIC, SENSOR)
        bus.flush()

    return loop


def _publish_reliably(node: Node, count: int, now: float) -> None:
    publish, take = node.publish, node.outbox.take
    for _ in range(count // MESSAGES_PER_SEND):
        for _ in range(MESSAGES_PER_SEND):
            publish(TOPIC, SENSOR, now, is_reliable=True)
        take(now)


def _repeat(count: int, function: Callable[..., Any], *arguments: Any) -> None:
    for _ in range(count):
        function(*arguments)


def _ignore(_result: object) -> None:
    pass


def _receive(node: Node, datagrams: list[bytes]) -> None:
    receive, take = node.receive_datagram, node.take_deliveries
    for datagram in datagrams:
        receive(datagram, ADDRESS, 0.0)
        take()


def _batches(sender: Node, count: int, *, is_reliable: bool = False) -> Iterator[bytes]:
    for _ in range(count // MESSAGES_PER_SEND):
        for _ in range(MESSAGES_PER_SEND):
            sender.publish(TOPIC, SENSOR, 0.0, is_reliable=is_reliable)
        yield from sender.outbox.take(0.0)


def _singles(sender: Node, value: Any, count: int) -> Iterator[bytes]:
    for _ in range(count):
        sender.publish(TOPIC, value, 0.0)
        yield from sender.outbox.take(0.0)


def _make_patterns() -> PatternMap[int]:
    patterns: PatternMap[int] = PatternMap()
    for number in range(PATTERNS):
        patterns.add(f"room/{number}/**", number)
    return patterns
