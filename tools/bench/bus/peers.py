"""Other systems by their own Python bindings, for those who have them installed.

    zenoh   eclipse-zenoh; two peers over TCP, its own batching
    pyzmq   PUB and SUB over TCP
    lcm     UDP multicast, like jsonbus; it sends where the multicast route points, so it is
            measured only in network namespaces, where that is the one interface there is
    nats    nats-py, through a nats-server that run.py starts

All with orjson on both sides. None is a dependency of jsonbus.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from orjson import dumps, loads

from tools.bench.bus.flow import Tally
from tools.bench.bus.publish import Publisher
from tools.bench.bus.publish_tasks import AsyncPublisher
from tools.bench.bus.spec import Spec

MODULES = {"zenoh": "zenoh", "pyzmq": "zmq", "lcm": "lcm", "nats": "nats"}
#: How often a receiver that cannot be woken looks whether it is to stop.
LOOK_MS = 100


def find_obstacle(peer: str, in_namespace: bool) -> str | None:
    """Why this peer cannot be measured here, or None if it can."""
    if importlib.util.find_spec(MODULES[peer]) is None:
        return "not installed"
    if peer == "lcm" and not in_namespace:
        return "would use a real interface outside of a network namespace"
    if peer == "nats" and find_nats_server() is None:
        return "no nats-server found"
    return None


def find_nats_server() -> str | None:
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


# --- zenoh ----------------------------------------------------------------------------------------


def _open_zenoh(spec: Spec) -> Any:
    import zenoh

    side = "listen" if spec.role == "publisher" else "connect"
    settings = {
        "mode": "peer",
        side: {"endpoints": [f"tcp/{spec.address}:{spec.port}"]},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
    }
    return zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))


class ZenohPublisher(Publisher):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        import zenoh

        self._session = _open_zenoh(spec)
        self._publisher = self._session.declare_publisher(
            spec.topic, congestion_control=zenoh.CongestionControl.BLOCK
        )

    def publish(self, topic: str, value: Any) -> None:
        self._publisher.put(dumps(value))

    def burst(self, count: int) -> None:
        put, value = self._publisher.put, self.value
        for _ in range(count):
            put(dumps(value))

    def close(self) -> None:
        self._session.close()


class _Waiting:
    """A subscriber whose library has threads of its own."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def stats(self) -> dict[str, int]:
        return {}


class ZenohSubscriber(_Waiting):
    def __init__(self, spec: Spec, tally: Tally) -> None:
        super().__init__()
        self._spec = spec
        self._handle = tally.handler(lambda value: value)

    def run(self, ready: Callable[[], None]) -> None:
        handle = self._handle

        def take(sample: Any) -> None:
            handle(loads(sample.payload.to_bytes()))

        with _open_zenoh(self._spec) as session:
            subscriber = session.declare_subscriber(self._spec.topic, take)
            ready()
            self._stopping.wait()
            subscriber.undeclare()


# --- pyzmq ----------------------------------------------------------------------------------------


class ZmqPublisher(Publisher):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        import zmq

        self._socket = zmq.Context().socket(zmq.PUB)
        self._socket.set_hwm(0)  # the window bounds what waits; its own bound would drop
        self._socket.bind(f"tcp://{spec.address}:{spec.port}")
        self._prefix = spec.topic.encode() + b" "

    def publish(self, topic: str, value: Any) -> None:
        self._socket.send(self._prefix + dumps(value))

    def burst(self, count: int) -> None:
        send, prefix, value = self._socket.send, self._prefix, self.value
        for _ in range(count):
            send(prefix + dumps(value))


class ZmqSubscriber(_Waiting):
    def __init__(self, spec: Spec, tally: Tally) -> None:
        super().__init__()
        self._spec = spec
        self._handle = tally.handler(lambda value: value)

    def run(self, ready: Callable[[], None]) -> None:
        import zmq

        handle, prefix = self._handle, self._spec.topic.encode() + b" "
        socket = zmq.Context().socket(zmq.SUB)
        socket.set_hwm(0)
        socket.setsockopt(zmq.RCVTIMEO, LOOK_MS)
        socket.setsockopt(zmq.SUBSCRIBE, prefix)
        socket.connect(f"tcp://{self._spec.address}:{self._spec.port}")
        ready()
        recv, skip = socket.recv, len(prefix)
        while not self._stopping.is_set():
            try:
                while True:
                    handle(loads(recv()[skip:]))
            except zmq.Again:
                continue


# --- lcm ------------------------------------------------------------------------------------------


def _open_lcm(spec: Spec) -> Any:
    import lcm

    url = f"udpm://{spec.group}:{spec.port}?ttl=1&recv_buf_size={spec.receive_buffer_bytes}"
    return lcm.LCM(url)


class LcmPublisher(Publisher):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._lcm = _open_lcm(spec)

    def publish(self, topic: str, value: Any) -> None:
        self._lcm.publish(topic, dumps(value))

    def burst(self, count: int) -> None:
        publish, topic, value = self._lcm.publish, self.topic, self.value
        for _ in range(count):
            publish(topic, dumps(value))


class LcmSubscriber(_Waiting):
    def __init__(self, spec: Spec, tally: Tally) -> None:
        super().__init__()
        self._spec = spec
        self._handle = tally.handler(lambda value: value)

    def run(self, ready: Callable[[], None]) -> None:
        handle = self._handle

        def take(_channel: str, data: bytes) -> None:
            handle(loads(data))

        bus = _open_lcm(self._spec)
        subscription = bus.subscribe(self._spec.topic, take)
        subscription.set_queue_capacity(0)  # unbounded: the window bounds what waits
        ready()
        while not self._stopping.is_set():
            bus.handle_timeout(LOOK_MS)


# --- nats -----------------------------------------------------------------------------------------


class NatsPublisher(AsyncPublisher):
    async def open(self) -> None:
        import nats

        self._client = await nats.connect(f"nats://{self.spec.address}:{self.spec.port}")
        self._subject = self.topic.replace("/", ".")

    async def publish(self, topic: str, value: Any) -> None:
        await self._client.publish(self._subject, dumps(value))

    async def burst(self, count: int) -> None:
        publish, subject, value = self._client.publish, self._subject, self.value
        for _ in range(count):
            await publish(subject, dumps(value))
        # It gathers until the event loop gets a turn.
        await asyncio.sleep(0)

    async def finish(self) -> None:
        await self._client.flush()

    async def close(self) -> None:
        await self._client.close()


class NatsSubscriber:
    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._spec = spec
        self._handle = tally.handler(lambda value: value)
        self._end: Callable[[], object] | None = None

    def run(self, ready: Callable[[], None]) -> None:
        asyncio.run(self._run(ready))

    async def _run(self, ready: Callable[[], None]) -> None:
        import nats

        handle = self._handle

        async def take(message: Any) -> None:
            handle(loads(message.data))

        stopping = asyncio.Event()
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, stopping.set)
        client = await nats.connect(f"nats://{self._spec.address}:{self._spec.port}")
        subject = self._spec.topic.replace("/", ".")
        await client.subscribe(subject, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        ready()
        await stopping.wait()
        await client.close()

    def stop(self) -> None:
        assert self._end is not None
        self._end()

    def stats(self) -> dict[str, int]:
        return {}


PUBLISHERS: dict[str, type[Publisher] | type[AsyncPublisher]] = {
    "zenoh": ZenohPublisher,
    "pyzmq": ZmqPublisher,
    "lcm": LcmPublisher,
    "nats": NatsPublisher,
}
SUBSCRIBERS = {
    "zenoh": ZenohSubscriber,
    "pyzmq": ZmqSubscriber,
    "lcm": LcmSubscriber,
    "nats": NatsSubscriber,
}


def make_publisher(spec: Spec) -> Publisher | AsyncPublisher:
    return PUBLISHERS[spec.system](spec)


def make_subscriber(spec: Spec, tally: Tally) -> Any:
    return SUBSCRIBERS[spec.system](spec, tally)
