"""How the cost of a publish grows with the topics in use and with the nodes known.

The core alone, without network: from `Node.publish` to the bytes of full datagrams.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import process_time

from _setup import say
from bench_arena import Arena
from bench_floods import Plan
from bench_measures import Sample
from bench_spec import SENSOR

from jsonbus.core.frames import Entry
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.subscription_list import FrozenList

#: Messages between two sends: about what fits one datagram.
MESSAGES_PER_SEND = 12


def measure_growth(_arena: Arena, plan: Plan) -> Iterator[Sample]:
    for repetition in range(plan.repetitions):
        say(f"growth {repetition + 1}/{plan.repetitions}")
        for topics in plan.growth_topics:
            figure_us = _cpu_per_publish_us(topics, 1, max(topics, plan.messages // 4))
            yield Sample("growth-topics", f"{topics:,}", figure_us)
        for nodes in plan.growth_nodes:
            figure_us = _cpu_per_publish_us(100, nodes, plan.messages // 4)
            yield Sample("growth-nodes", f"{nodes:,}", figure_us)


def make_publisher_node(nodes: int = 1) -> Node:
    """A node that agrees with so many others; each wants a topic of its own, one wants sensors."""
    node = Node(NodeSettings("publisher", 1, "publisher"), random.Random(1))
    others = [Entry("reader", 1, 1, "reader", ("sensors/**",))]
    others += [Entry(f"n{n}", 1, 1, f"n{n}", (f"other/{n}",)) for n in range(1, nodes)]
    node.open_converged(0.0, FrozenList([node.own_entry(), *others]))
    # A newcomer makes it look anew at what it may withhold; a converged group has none.
    newcomer = Node(NodeSettings("newcomer", 1, "newcomer"), random.Random(1))
    newcomer.open(0.0)
    for datagram in newcomer.datagrams_to_send(0.0):
        node.receive_datagram(datagram, ("127.0.0.1", 2416), 0.0)
    node.datagrams_to_send(0.0)
    assert node.state == "sure"
    return node


def _cpu_per_publish_us(topics: int, nodes: int, count: int) -> float:
    node = make_publisher_node(nodes)
    names = [f"sensors/{number % 100}/{number}" for number in range(topics)]
    for name in names:
        assert node.publish(name, SENSOR, 0.0)
        node.datagrams_to_send(0.0)
    # In an order that no cache likes, the same for every size.
    dice = random.Random(2)
    order = [dice.choice(names) for _ in range(max(1, count))]
    publish, take = node.publish, node.datagrams_to_send
    begun_s = process_time()
    waiting = 0
    for name in order:
        publish(name, SENSOR, 0.0)
        waiting += 1
        if waiting == MESSAGES_PER_SEND:
            take(0.0)
            waiting = 0
    return 1e6 * (process_time() - begun_s) / len(order)
