"""jsonbus as programs with threads use it: `Bus`, and a handler that is called per message.

jsonbus        datagrams as large as the bus chooses for loopback
jsonbus-1400   as large as on a LAN, or as the number says
jsonbus-reliable  as jsonbus, with messages that are sent again to who missed them
jsonbus-sealed    as jsonbus, on a bus with a key
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from time import process_time
from typing import Any

import jsonbus
from jsonbus.frontend.opening import datagram_bytes
from jsonbus.transport import platforms
from tools.bench.bus.flow import Tally
from tools.bench.bus.publish import Publisher, describe_means
from tools.bench.bus.spec import TOPIC_NOBODY_WANTS, Spec

READY_S = 30.0
#: Of a sealed bus. Everybody may know this secret.
KEYS = {
    "jsonbus-key": 1,
    "bus": "bench",
    "keys": [
        {
            "id": "k1",
            "secret": "ZXZlcnlib2R5IG1heSBrbm93IHRoaXMgc2VjcmV0ISE=",
            "from": "2026-01-01T00:00:00Z",
        }
    ],
}
_UDP_GRO = 104  # linux/udp.h


class BusPublisher(Publisher):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._bus = jsonbus.Bus(**bus_settings(spec))
        # No method around it: the loop of `burst` calls what an application would call.
        self.publish = self._bus.publish  # type: ignore[assignment, method-assign]

    def probe(self) -> dict[str, Any]:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._bus.state == "sure" and len(self._bus.nodes()) > self.spec.subscribers:
                break
            time.sleep(0.005)
        return super().probe()

    def finish(self) -> None:
        self._bus.flush(READY_S)

    def suppress(self, count: int) -> dict[str, Any]:
        """Publish what nobody wants."""
        publish, topic, value = self._bus.publish, TOPIC_NOBODY_WANTS, self.value
        while publish(topic, value):
            self._bus.wait_until_sure(READY_S)  # until then it is held, or sent
        cpu_s = process_time()
        for _ in range(count):
            publish(topic, value)
        return {"sent": count, "cpu_s": process_time() - cpu_s}

    def stats(self) -> dict[str, int]:
        return self._bus.stats()

    def means(self) -> str:
        return means_of(self._bus)

    def close(self) -> None:
        self._bus.close()


class BusSubscriber:
    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._bus = jsonbus.Bus(**bus_settings(spec))
        handler = tally.handler(lambda message: message.value)
        self._bus.subscribe(spec.topic, handler, maxsize=mailbox_size(spec))
        self._stopping = threading.Event()

    def run(self, ready: Callable[[], None]) -> None:
        ready()
        self._stopping.wait()
        self._bus.close()

    def stop(self) -> None:
        self._stopping.set()

    def stats(self) -> dict[str, int]:
        return self._bus.stats()


def bus_settings(spec: Spec) -> Any:
    settings: dict[str, Any] = {
        "group": spec.group,
        "port": spec.port,
        "interface": spec.interface,
        "mode": spec.mode,
        "name": f"{spec.role}-{spec.index}",
        "receive_buffer_bytes": spec.receive_buffer_bytes,
    }
    if spec.system.endswith("-reliable"):
        settings["reliable"] = True
    if spec.system.endswith("-sealed"):
        settings["key_file"] = KEYS
    size = spec.system.rpartition("-")[2]
    if size.isdecimal():
        settings["datagram_bytes_max"] = int(size)
    return settings


def means_of(bus: jsonbus.Bus | jsonbus.AsyncBus) -> str:
    """See `Publisher.means`."""
    loop = bus._loop
    size, _ = datagram_bytes(loop.config, loop.transport)
    (receiver,) = loop.transport.sockets()
    has_runs = platforms.IS_LINUX and receiver.getsockopt(socket.SOL_UDP, _UDP_GRO) > 0
    return describe_means(size, sends_runs=has_runs and not loop.transport.offload_refusals)


def mailbox_size(spec: Spec) -> int:
    """Nothing is dropped unless that is what is measured: the window bounds what may wait."""
    return 4 * spec.window if spec.mailbox is None else spec.mailbox


def make_publisher(spec: Spec) -> BusPublisher:
    return BusPublisher(spec)


def make_subscriber(spec: Spec, tally: Tally) -> BusSubscriber:
    return BusSubscriber(spec, tally)
