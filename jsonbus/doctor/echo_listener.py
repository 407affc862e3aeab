"""`jsonbus doctor --listen`: joins the group and answers echoes."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time

from jsonbus.config import BusSettings, load

from ..core.wire.decode import decode
from ..core.wire.frames import EchoFrame
from ..errors import DatagramError, TransportError
from ..frontend.opening import make_name, open_transport
from ..transport.base import TransportInfo
from .echo import Answerer, Asking
from .examination import send
from .traffic import receive_from


class EchoListener:
    """Joined when created, which raises TransportError or ConfigError; a context manager.

    It answers while `listen` runs, in the caller's thread.
    """

    def __init__(self, settings: BusSettings) -> None:
        config = load(**settings)
        self.name = config.name or make_name(socket.gethostname(), os.getpid())
        self._transport = open_transport(config)
        now = time.monotonic()
        self._answerer = Answerer(self.name, time.time() - now, now)

    @property
    def info(self) -> TransportInfo:
        """Where it listens."""
        return self._transport.describe()

    def listen(self, duration_s: float) -> list[Asking]:
        """Answer for so long, and return those who have asked and are done."""
        end = time.monotonic() + duration_s
        sockets = self._transport.sockets()
        while (now := time.monotonic()) < end:
            if self._answerer.due_at <= now:
                self._send(self._answerer.tell(now))
            wake_at = min(end, self._answerer.due_at)
            select.select(sockets, [], [], max(0.0, wake_at - time.monotonic()))
            self._receive()
        self._transport.rejoin()  # an interface may have come back
        return self._answerer.take_done(time.monotonic())

    def end(self) -> list[Asking]:
        """Return those who have asked and were not returned yet."""
        return self._answerer.take_done(time.monotonic(), all_of_them=True)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> EchoListener:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _receive(self) -> None:
        for data, sender in receive_from(self._transport):
            with contextlib.suppress(DatagramError):  # it is for nodes to complain about those
                frame = decode(data)
                if isinstance(frame, EchoFrame):
                    answer = self._answerer.receive(frame, len(data), sender, time.monotonic())
                    if answer is not None:
                        self._send(answer)

    def _send(self, datagram: bytes) -> None:
        with contextlib.suppress(TransportError):  # the asker notices that it lacks an answer
            send(self._transport, datagram)
