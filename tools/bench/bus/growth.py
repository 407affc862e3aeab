"""How the cost of a message grows with the topics in use and with the nodes known.

Without network: from `Bus.publish` to a transport that drops its datagrams, and from datagrams to
the messages of a subscription, by the core alone. Last, with a network, what nodes cost that do
nothing (idle.py). Topics are used in random order, which no
processor's cache likes: a table of 100,000 of anything does not fit it. What that alone costs is
shown beside: a bare program around orjson that looks each topic up in a dict.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time

from orjson import dumps

import jsonbus
from jsonbus.core.membership.subscription_list import FrozenList
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.frames import Entry
from tools._setup import say
from tools.bench.arena import Arena
from tools.bench.bus.floods import Plan
from tools.bench.bus.floor import take_batches
from tools.bench.bus.idle import measure_idle
from tools.bench.bus.spec import SENSOR
from tools.bench.measures import Sample
from tools.bench.wire.scripted import ADDRESS, Company

#: Messages between two sends: about what fits one datagram.
MESSAGES_PER_SEND = 12
TOPICS_BESIDE_NODES = 100
WARM_UP = 2_000

#: Headers as long as they are in this century: how they look tells which datagram is the next one.
WALL_OFFSET_S = 1_700_000_000.0


def measure_growth(arena: Arena, plan: Plan) -> Iterator[Sample]:
    count = max(1, plan.messages // 4)
    warm_up = _make_order(1, WARM_UP)  # Python is slower at what it does for the first time
    _publish_us(1, 1, warm_up)
    _measure_receive(1, warm_up)
    for repetition in range(plan.repetitions):
        say(f"growth {repetition + 1}/{plan.repetitions}")
        for topics in plan.growth_topics:
            order = _make_order(topics, max(topics, count))
            topics_json = {name: dumps(name) for name in _make_names(topics)}
            floor_us = _time_us(order, partial(_dump_all, topics_json, order))
            figure_us = _publish_us(topics, 1, order)
            yield Sample("growth-topics", f"{topics:,}", figure_us, {"floor_us": floor_us})
        order = _make_order(TOPICS_BESIDE_NODES, count)
        for nodes in plan.growth_nodes:
            figure_us = _publish_us(TOPICS_BESIDE_NODES, nodes, order)
            yield Sample("growth-nodes", f"{nodes:,}", figure_us)
        for topics in plan.growth_topics:
            yield _measure_receive(topics, _make_order(topics, max(topics, count)))
    yield from measure_idle(arena, plan)


def make_publisher_node() -> Node:
    """A node that agrees with another about being all there is; that one wants sensors."""
    node = Node(NodeSettings("publisher", 1, "publisher"), random.Random(1), WALL_OFFSET_S)
    reader = Entry("reader", 1, 1, "reader", ("sensors/**",))
    node.open_converged(0.0, FrozenList([node.own_entry(), reader]))
    # A newcomer makes it look anew at what it may withhold; a converged group has none.
    newcomer = Node(NodeSettings("newcomer", 1, "newcomer"), random.Random(1))
    newcomer.open(0.0)
    for datagram in newcomer.outbox.take(0.0):
        node.receive_datagram(datagram, ADDRESS, 0.0)
    node.outbox.take(0.0)
    assert node.state == "sure"
    return node


def make_subscriber_node(sender: Node, pattern: str) -> Node:
    """A node that agrees with the sender about being all there is, and wants the pattern."""
    node = Node(NodeSettings("reader", 1, "reader"), random.Random(1))
    node.subscribe(pattern, "sink", 0.0)
    node.open_converged(0.0, FrozenList([node.own_entry(), sender.own_entry()]))
    return node


def _publish_us(topics: int, nodes: int, order: list[str]) -> float:
    """CPU of all threads, until everything is with the transport."""
    company = Company(nodes)
    with jsonbus.Bus.over(company) as bus:
        company.introduce(lambda: bus.state == "sure" and len(bus.nodes()) > nodes)
        # A publisher's first message to a topic is not what it costs.
        assert all([bus.publish(name, SENSOR) for name in _make_names(topics)])
        assert bus.flush(30)

        def publish() -> None:
            publish = bus.publish
            for name in order:
                publish(name, SENSOR)
            bus.flush()

        return _time_us(order, publish)


def _measure_receive(topics: int, order: list[str]) -> Sample:
    sender = make_publisher_node()
    node = make_subscriber_node(sender, "sensors/**")
    received = _receive_all(node, _publish_all(sender, _make_names(topics)))
    datagrams = _publish_all(sender, order)

    def receive() -> None:
        nonlocal received
        received += _receive_all(node, datagrams)

    figure_us = _time_us(order, receive)
    bare = [dumps([1, [[name, SENSOR] for name in batch]]) for batch in _batches(order)]
    callbacks = {name: partial(len) for name in _make_names(topics)}  # one object for each
    extra = {
        "floor_us": _time_us(order, lambda: take_batches(bare, callbacks)),
        "received": received,
        "sent": topics + len(order),
    }
    return Sample("growth-receive", f"{topics:,}", figure_us, extra)


def _make_names(topics: int) -> list[str]:
    return [f"sensors/{number % 100}/{number}" for number in range(topics)]


def _make_order(topics: int, count: int) -> list[str]:
    """Topics to publish to, the same for every size but for their number."""
    names, dice = _make_names(topics), random.Random(2)
    return [dice.choice(names) for _ in range(count)]


def _batches(order: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(order), MESSAGES_PER_SEND):
        yield order[start : start + MESSAGES_PER_SEND]


def _time_us(order: list[str], run: Callable[[], object]) -> float:
    """CPU per topic of the order."""
    begun_s = process_time()
    run()
    return 1e6 * (process_time() - begun_s) / len(order)


def _publish_all(node: Node, order: list[str]) -> list[bytes]:
    datagrams: list[bytes] = []
    publish, take = node.publish, node.outbox.take
    waiting = 0
    for name in order:
        publish(name, SENSOR, 0.0)
        waiting += 1
        if waiting == MESSAGES_PER_SEND:
            datagrams += take(0.0)
            waiting = 0
    return datagrams + take(0.0)


def _receive_all(node: Node, datagrams: list[bytes]) -> int:
    """How many messages they brought."""
    receive, take = node.receive_datagram, node.take_deliveries
    received = 0
    for datagram in datagrams:
        receive(datagram, ADDRESS, 0.0)
        received += sum(len(messages) for _, messages in take())
    return received


def _dump_all(topics_json: dict[str, bytes], order: list[str]) -> None:
    for batch in _batches(order):
        b",".join([b"[%b,%b]" % (topics_json[name], dumps(SENSOR)) for name in batch])
