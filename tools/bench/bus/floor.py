"""The floor: what a publish/subscribe over UDP multicast costs with nothing but sockets and orjson.

    raw        one message per datagram          [number,topic,value]
    raw-1400   as many as fit 1,400 bytes        [number,[[topic,value],…]]
    raw-8k     as many as fit 8,000 bytes        the same; the cheapest size on loopback
    raw-slices the JSON text of one message cut into datagrams of 1,400 bytes, a number and the
               place of the slice before each; put together in the order of arrival
    …-offload  the same; as many datagrams as the kernel cuts and joins leave and arrive in one call

Each message is encoded once, and a batch is joined from ready bytes, since only that tells when it
is full. The receiver parses each datagram once, checks its number for gaps, finds the callback of
each message by its topic and calls it. There is nothing else: no lists, no lock, no threads. Both
sides have the buffers and the pinned interface that a bus would have.

A publisher's loop is written out, without a call per message: nothing can be faster in Python. A
bus has to be called, and `publish` as a method alone costs some 0.07 µs more.

`recv` is given 65,536 bytes of room in all of them: a program that does not know what others send
has to.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

from orjson import dumps, loads

from jsonbus.transport import offload, platforms
from jsonbus.transport.base import DATAGRAM_BYTES_MAX
from jsonbus.transport.interfaces import choose_interfaces
from tools.bench.bus.flow import Tally
from tools.bench.bus.publish import Publisher, describe_means
from tools.bench.bus.spec import Spec

#: By system, the bytes of its datagrams; 0: one message in each.
BATCH_BYTES = {"raw": 0, "raw-1400": 1_400, "raw-8k": 8_000}
SLICES = "raw-slices"
OFFLOAD = "-offload"
RECEIVE_BYTES = 65_536
#: How often a receiver looks whether it is to stop.
LOOK_S = 0.1

_BATCH = b"[%d,[%b]]"
_BATCH_OVERHEAD_BYTES = len(_BATCH % (2**53, b""))

_PLACE = struct.Struct("=QII")
_SLICE_BYTES = 1_400 - _PLACE.size
_UDP_SEGMENT = 103  # linux/udp.h

Datagrams = Iterable[bytes]


class Batcher:
    """Values in, full datagrams out."""

    def __init__(self, send: Callable[[bytes], Any], bytes_max: int) -> None:
        self._send = send
        self._room = bytes_max - _BATCH_OVERHEAD_BYTES
        self._pairs: list[bytes] = []
        self._size = 0
        self._first = 1  # number of the first message that waits

    def put(self, topic: str, value: Any, count: int) -> None:
        """Send the value so many times; what does not fill a datagram waits."""
        pairs, size, room = self._pairs, self._size, self._room
        for _ in range(count):
            pair = dumps((topic, value))
            size += len(pair) + 1
            if size > room and pairs:
                self._send(_BATCH % (self._first, b",".join(pairs)))
                self._first += len(pairs)
                pairs.clear()
                size = len(pair) + 1
            pairs.append(pair)
        self._size = size

    def push(self) -> None:
        """Send what waits."""
        if self._pairs:
            self._send(_BATCH % (self._first, b",".join(self._pairs)))
            self._first += len(self._pairs)
            self._pairs.clear()
            self._size = 0


def take_single(datagrams: Datagrams, callbacks: dict[str, Callable[[Any], Any]]) -> int:
    """Handle datagrams of one message each until there are no more; how many were missing."""
    expected, missing = 1, 0
    for datagram in datagrams:
        number, topic, value = loads(datagram)
        if number != expected:
            missing += number - expected
        expected = number + 1
        callbacks[topic](value)
    return missing


def take_batches(datagrams: Datagrams, callbacks: dict[str, Callable[[Any], Any]]) -> int:
    """The same for batches."""
    expected, missing = 1, 0
    for datagram in datagrams:
        first, pairs = loads(datagram)
        if first != expected:
            missing += first - expected
        expected = first + len(pairs)
        for topic, value in pairs:
            callbacks[topic](value)
    return missing


def take_slices(datagrams: Datagrams, callbacks: dict[str, Callable[[Any], Any]]) -> int:
    """The same for slices; what lacks one is thrown away."""
    expected, missing, pieces = 1, 0, []
    for datagram in datagrams:
        number, index, count = _PLACE.unpack_from(datagram)
        if index != len(pieces):
            pieces = []
            continue
        pieces.append(datagram[_PLACE.size :])
        if index == count - 1:
            topic, value = loads(b"".join(pieces))
            pieces = []
            missing += number - expected
            expected = number + 1
            callbacks[topic](value)
    return missing


class Runs:
    """Datagrams in, runs of as many as the kernel cuts out. The last of a run may be smaller."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        sock.setsockopt(socket.SOL_UDP, _UDP_SEGMENT, size)
        self._sendmsg = sock.sendmsg
        self._size = size
        self._count_max = min(offload.SEGMENTS_MAX, DATAGRAM_BYTES_MAX // size)
        self._run: list[bytes] = []

    def send(self, datagram: bytes) -> None:
        run = self._run
        run.append(datagram.ljust(self._size))  # JSON may end in spaces
        if len(run) == self._count_max:
            self.push()

    def send_last(self, datagram: bytes) -> None:
        """Send it and what waits, without filling it up."""
        self._run.append(datagram)
        self.push()

    def push(self) -> None:
        if self._run:
            self._sendmsg(self._run)
            self._run.clear()


class RawPublisher(Publisher):
    """Sends through a connected socket, the cheapest way there is."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._socket = _open_sender(spec)
        self._send = self._send_last = self._socket.send
        self._number = 0
        system = spec.system.removesuffix(OFFLOAD)
        self._slices = system == SLICES
        bytes_max = 0 if self._slices else BATCH_BYTES[system]
        self._runs = None
        if spec.system != system:
            self._runs = Runs(self._socket, bytes_max or _PLACE.size + _SLICE_BYTES)
            self._send, self._send_last = self._runs.send, self._runs.send_last
        self._batcher = Batcher(self._send, bytes_max) if bytes_max else None

    def publish(self, topic: str, value: Any) -> None:
        if self._batcher is not None:
            self._batcher.put(topic, value, 1)
            return
        self._number += 1
        if self._slices:
            self._send_slices(dumps((topic, value)))
        else:
            self._send(dumps((self._number, topic, value)))

    def _send_slices(self, text: bytes) -> None:
        count = -(-len(text) // _SLICE_BYTES)
        for index in range(count):
            start = index * _SLICE_BYTES
            place = _PLACE.pack(self._number, index, count)
            send = self._send if index < count - 1 else self._send_last
            send(place + text[start : start + _SLICE_BYTES])

    def burst(self, count: int) -> None:
        if self._slices:
            for _ in range(count):
                self.publish(self.topic, self.value)
            return
        if self._batcher is not None:
            self._batcher.put(self.topic, self.value, count)
            return
        send, topic, value = self._send, self.topic, self.value
        for number in range(self._number + 1, self._number + count + 1):
            send(dumps((number, topic, value)))
        self._number += count

    def push(self) -> None:
        if self._batcher is not None:
            self._batcher.push()
        if self._runs is not None:
            self._runs.push()

    def means(self) -> str:
        size = BATCH_BYTES.get(self.spec.system.removesuffix(OFFLOAD), _PLACE.size + _SLICE_BYTES)
        segment = self._socket.getsockopt(socket.SOL_UDP, _UDP_SEGMENT) if platforms.IS_LINUX else 0
        return describe_means(size, sends_runs=segment > 0)

    def close(self) -> None:
        self._socket.close()


class RawSubscriber:
    """Receives in the main thread."""

    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._spec = spec
        self._socket = open_receiver(spec)
        self._has_runs = spec.system.endswith(OFFLOAD) and offload.ask_for_runs(self._socket)
        self._handler = tally.handler(lambda value: value)
        self._is_stopping = False
        self._missing = 0

    def run(self, ready: Callable[[], None]) -> None:
        take, system = take_slices, self._spec.system.removesuffix(OFFLOAD)
        if system != SLICES:
            take = take_batches if BATCH_BYTES[system] else take_single
        ready()
        datagrams = self._datagrams_of_runs() if self._has_runs else self._datagrams()
        self._missing = take(datagrams, {self._spec.topic: self._handler})

    def stop(self) -> None:
        self._is_stopping = True

    def stats(self) -> dict[str, int]:
        drops = platforms.count_kernel_drops(self._socket)
        return {"messages_lost": self._missing, "kernel_drops": drops}

    def _datagrams(self) -> Datagrams:
        recv = self._socket.recv
        while True:
            # Left only when nothing came for a while: entering a `with` costs nothing per datagram.
            with contextlib.suppress(BlockingIOError):
                while True:
                    yield recv(RECEIVE_BYTES)
            if self._is_stopping:
                return

    def _datagrams_of_runs(self) -> Datagrams:
        recvmsg, cut_run = self._socket.recvmsg, offload.cut_run
        while True:
            with contextlib.suppress(BlockingIOError):
                while True:
                    data, ancillary, _, _ = recvmsg(RECEIVE_BYTES, offload.ANCILLARY_BYTES)
                    if ancillary:
                        yield from cut_run(data, ancillary)
                    else:
                        yield data
            if self._is_stopping:
                return


class BareReceiver:
    """Receives and looks at nothing: the floor of a message that is not wanted."""

    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._socket = open_receiver(spec)
        self._count = tally.handler(lambda value: value)
        self._is_stopping = False
        self._received = 0

    def run(self, ready: Callable[[], None]) -> None:
        recv = self._socket.recv
        ready()
        while not self._is_stopping:
            with contextlib.suppress(BlockingIOError):
                while True:
                    recv(RECEIVE_BYTES)
                    self._received += 1

    def stop(self) -> None:
        self._is_stopping = True

    def stats(self) -> dict[str, int]:
        return {"datagrams_received": self._received}


def open_receiver(spec: Spec) -> socket.socket:
    """A socket that hears the group; `recv` raises BlockingIOError after LOOK_S of silence."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    platforms.grow_receive_buffer(sock, spec.receive_buffer_bytes)
    platforms.bind_to_group(sock, spec.group, spec.port)
    for interface in choose_interfaces([spec.interface]):
        platforms.join(sock, spec.group, interface)
    # The kernel's timeout: that of Python would poll before every recv, and double its cost.
    span = struct.pack("ll", int(LOOK_S), int(LOOK_S % 1 * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
    return sock


def _open_sender(spec: Spec) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for interface in choose_interfaces([spec.interface]):
        platforms.send_through(sock, interface)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    sock.connect((spec.group, spec.port))
    return sock


def make_publisher(spec: Spec) -> RawPublisher:
    return RawPublisher(spec)


def make_subscriber(spec: Spec, tally: Tally) -> RawSubscriber | BareReceiver:
    return BareReceiver(spec, tally) if spec.system == "bare-recv" else RawSubscriber(spec, tally)
