"""A program as a user writes it. mypy --strict checks it; `assert_type` states what it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

import jsonbus


@dataclass
class Reading:
    temp: float


def on_reading(message: jsonbus.Message[Reading]) -> None:
    assert_type(message.value, Reading)


def on_batch(messages: list[jsonbus.Message[Reading]]) -> None:
    assert_type(messages[0].value, Reading)


def on_any(message: jsonbus.Message) -> None:
    assert_type(message.value, Any)
    assert_type(message.topic, str)


def on_text(message: jsonbus.Message[str]) -> None: ...


def with_threads(bus: jsonbus.Bus) -> None:
    assert_type(bus.subscribe("a", as_type=Reading).get().value, Reading)
    assert_type(bus.subscribe("a", as_type=list[Reading]).get_many(9)[0].value, list[Reading])
    assert_type(bus.subscribe("a").get().value, Any)
    for message in bus.subscribe("a", as_type=Reading, maxsize=9, overflow="block", passive=True):
        assert_type(message, jsonbus.Message[Reading])
    bus.subscribe("a", on_reading, as_type=Reading)
    bus.subscribe("a", on_batch, as_type=Reading, in_batches=True)
    bus.subscribe(["a", "b"], on_any)
    bus.subscribe("a", as_type=Reading | None)
    bus.subscribe("a", as_type=Literal["a"])
    bus.subscribe("a", as_type=Annotated[int, "note"])
    bus.subscribe("a", on_text, as_type=Reading)  # wrong: on_text takes another value
    bus.subscribe("a", overflow="drop_some")  # wrong: no such policy

    @bus.on("a", as_type=Reading)
    def decorated(message: jsonbus.Message[Reading]) -> int:
        return 1

    assert_type(decorated(bus.subscribe("a", as_type=Reading).get()), int)

    @bus.on("a")
    def plain(message: jsonbus.Message) -> None: ...


async def with_tasks(bus: jsonbus.AsyncBus) -> None:
    assert_type((await bus.subscribe("a", as_type=Reading).get()).value, Reading)
    async for message in bus.subscribe("a", as_type=Reading):
        assert_type(message.value, Reading)

    async def on_reading_async(message: jsonbus.Message[Reading]) -> None: ...

    bus.subscribe("a", on_reading_async, as_type=Reading)
    bus.on("a", as_type=Reading)(on_reading_async)
    bus.subscribe("a", on_text, as_type=Reading)  # wrong: on_text takes another value


async def queues_and_stores() -> None:
    queue: jsonbus.TopicQueue[Reading] = jsonbus.TopicQueue(9)
    assert_type(queue.get(), Reading | None)
    tasks: jsonbus.AsyncTopicQueue[Reading] = jsonbus.AsyncTopicQueue(9)
    assert_type(await tasks.get(), Reading | None)
    store: jsonbus.SubscriptionStore[str] = jsonbus.SubscriptionStore()
    assert_type(store.subscribers_of("a"), tuple[str, ...])
    store.subscribe("a", 7)  # wrong: subscribers are text


def keep(
    bus: jsonbus.Bus, tasks: jsonbus.AsyncBus, overflow: jsonbus.Overflow
) -> tuple[jsonbus.Subscription[Reading], jsonbus.AsyncSubscription[Reading]]:
    watches: tuple[jsonbus.Watch[jsonbus.NodeEvent], jsonbus.AsyncWatch[jsonbus.GapEvent]]
    watches = (bus.on_node(print), tasks.on_gap(print))
    bindings: tuple[jsonbus.Binding, jsonbus.AsyncBinding] = (bus.bind("a"), tasks.bind("a"))
    pongs: list[jsonbus.Pong] = bus.ping()
    assert watches and bindings and pongs
    return (
        bus.subscribe("a", as_type=Reading, overflow=overflow),
        tasks.subscribe("a", as_type=Reading),
    )


def answer(request: jsonbus.Request) -> object:
    return request.value
