"""The bridge: a node of the bus with a log, a recorder, a sink and a server, put together.

bus  ──►  Recorder  ──►  OffsetLog  ──►  Server  ──►  Spark
bus  ◄──  Sink  ◄─────────────────────  Server  ◄──  Spark
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Unpack

import jsonbus
from jsonbus.config import BusSettings

from .errors import BridgeError
from .groups import Groups
from .log.offset_log import OffsetLog
from .recorder import Recorder
from .requests import Requests
from .server import Server
from .sink.sink import Sink

logger = logging.getLogger("jsonbus.bridge")

PORT = 7710
PARTITIONS = 4
SYNC_MS = 20.0

#: How often old segments are looked for.
EXPIRE_S = 5.0


class Bridge:
    """A bridge, open from its making until `close`; what it was given to record is then on disk.

        with Bridge(["sensors/**"], data_dir=Path("log")) as bridge:
            print(bridge.address)

    `listen` is a host and a port, 0 for any. `partitions` counts when the log is made; None is
    what it has. `settings` are those of jsonbus.Bus. Raises BridgeError if the log cannot be
    opened or the address not be had, and what Bus raises.
    """

    def __init__(
        self,
        patterns: Sequence[str] = ("**",),
        *,
        listen: tuple[str, int] = ("127.0.0.1", PORT),
        data_dir: Path,
        partitions: int | None = None,
        retention_bytes: int | None = None,
        retention_s: float | None = None,
        sync_ms: float = SYNC_MS,
        token: str | None = None,
        **settings: Unpack[BusSettings],
    ) -> None:
        self._groups = Groups()
        self._stopping = threading.Event()
        with ExitStack() as opened:
            self.log = opened.enter_context(
                OffsetLog(
                    data_dir,
                    partitions=partitions,
                    retention_bytes=retention_bytes,
                    retention_s=retention_s,
                )
            )
            self.bus = opened.enter_context(jsonbus.Bus(**settings))
            self._sink = Sink(
                data_dir,
                self.bus.publish,
                flush=self.bus.flush,
                value_bytes_max=self.bus.config.value_bytes_max,
            )
            self._server = Server(self._make_requests, token=token)
            opened.callback(self._server.stop)
            # Before the server stops: it waits for batches on their way out, which this ends.
            opened.callback(self._sink.close)
            self._recorder = Recorder(
                self.bus,
                self.log,
                patterns,
                sync_s=sync_ms / 1000,
                appended=self._server.appended,
            )
            self._recorder.start()
            opened.callback(self._recorder.stop)
            self._sink.recover()
            try:
                self.address = self._server.start(*listen)
            except OSError as error:
                host, port = listen
                raise BridgeError(
                    f"cannot listen on {host}:{port}: {error.strerror or error}"
                ) from error
            self._keeper = threading.Thread(target=self._keep, name="jsonbus-bridge-keeper")
            self._keeper.start()
            opened.callback(self._keeper.join)
            opened.callback(self._stopping.set)
            self._opened = opened.pop_all()

    def stats(self) -> dict[str, Any]:
        """Every counter, by part: log, recorder, sink, server, bus; and the groups by name."""
        return {
            "log": self.log.stats(),
            "recorder": self._recorder.stats(),
            "sink": self._sink.stats(),
            "server": self._server.stats(),
            "bus": self.bus.stats(),
            "groups": self._groups.describe(self.log.end(), time()),
        }

    def close(self) -> None:
        """Stop serving, record what was received, leave the bus. A second call does nothing."""
        self._opened.close()

    def __enter__(self) -> Bridge:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _make_requests(self, readers: Executor, publishers: Executor) -> Requests:
        return Requests(
            self.log,
            self._sink,
            self._groups,
            name=self.bus.name,
            readers=readers,
            publishers=publishers,
            stats=self.stats,
        )

    def _keep(self) -> None:
        """Apply the retention, now and then."""
        expire = partial(self._stopping.wait, EXPIRE_S)
        while not expire():
            try:
                self.log.expire()
            except (BridgeError, OSError) as error:
                logger.error("old segments cannot be removed: %s", error)
