"""The bridge: a node of the bus with a log, a recorder, a sink and a server.

bus  ──►  Recorder  ──►  OffsetLog  ──►  Server  ──►  Spark
bus  ◄──  Sink  ◄─────────────────────  Server  ◄──  Spark
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, Unpack

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.tls.certificate import ServerCertificate, load_certificate

from .errors import BridgeError, StoreError, explain
from .groups import Groups
from .log.offset_log import OffsetLog
from .recorder import Recorder
from .requests import Requests
from .server import Server
from .sink.sink import Sink
from .state import Terms, Trouble, describe_state, state_topic

logger = logging.getLogger("jsonbus.bridge")

PORT = 7710
PARTITIONS = 4
SYNC_MS = 20.0

#: How often retention is applied.
EXPIRE_S = 5.0


class BridgeSettings(BusSettings, total=False):
    """Settings of the bridge's node, and those of TLS: files in PEM, both or none."""

    tls_cert: Path | None
    tls_key: Path | None


class Bridge:
    """A bridge, open until `close`; then everything that it received is on disk.

        with Bridge(["sensors/**"], data_dir=Path("log")) as bridge:
            print(bridge.address)

    `listen` is a host and a port, 0 for any. `partitions` is the number for a new log; an existing
    log keeps its own. `settings` are those of jsonbus.Bus, and `tls_cert` and `tls_key`, with which
    its port speaks TLS. Raises BridgeError if the log cannot be opened or the address cannot be
    used, ConfigError if the certificate cannot, and what Bus raises.
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
        **settings: Unpack[BridgeSettings],
    ) -> None:
        self.certificate = _take_certificate(settings)  # None without TLS
        of_the_node: BusSettings = settings
        self._groups = Groups()
        self._stopping = threading.Event()
        self._complaint: Trouble | None = None  # the keeper's last
        self._is_complaining = False
        with ExitStack() as opened:
            log = OffsetLog(
                data_dir,
                partitions=partitions,
                retention_bytes=retention_bytes,
                retention_s=retention_s,
            )
            self.log = opened.enter_context(log)
            self._directory = os.stat(data_dir)
            self.bus = opened.enter_context(jsonbus.Bus(**of_the_node))
            largest = self.bus.config.value_bytes_max
            self._sink = Sink(
                data_dir, self.bus.publish, flush=self.bus.flush, value_bytes_max=largest
            )
            # Parts end in the reverse order: the sink first, because the recorder should record
            # what goes out, and because the server waits for batches on their way.
            opened.callback(self._sink.close)
            requests = Requests(log, self._sink, self._groups, name=self.bus.name, stats=self.stats)
            self._server = Server(requests, token=token, certificate=self.certificate)
            opened.callback(self._server.stop)
            sync_s, appended = sync_ms / 1000, self._server.appended
            self._recorder = Recorder(self.bus, log, patterns, sync_s=sync_s, appended=appended)
            self._recorder.start()
            opened.callback(self._recorder.stop)
            opened.callback(self._sink.close)
            self._recover_sink()
            self.address = self._listen(*listen)
            self._terms = Terms(
                name=self.bus.name,
                node=self.bus.id,
                version=jsonbus.__version__,
                address=self.address,
                has_token=token is not None,
                has_tls=self.certificate is not None,
                log=self.log.id,
                retention_s=retention_s,
                retention_bytes=retention_bytes,
            )
            self.bus.serve(state_topic(self.bus.id), lambda _: self.state())
            self._start_keeper(opened)
            self._opened = opened.pop_all()

    def stats(self) -> dict[str, Any]:
        """Return every counter by part (log, recorder, sink, server, bus), and the groups."""
        return {
            "log": self.log.stats(),
            "recorder": self._recorder.stats(),
            "sink": self._sink.stats(),
            "server": self._server.stats(),
            "bus": self.bus.stats(),
            "groups": self._groups.describe(self.log.end(), monotonic()),
        }

    def state(self) -> dict[str, Any]:
        """Return the state that the bridge reports over the bus. Never waits for a disk."""
        now = monotonic()
        ends = self.log.end()
        stats: dict[str, dict[str, Any]] = {
            "log": self.log.stats(),
            "recorder": self._recorder.stats(),
            "server": self._server.stats(),
            "groups": self._groups.describe(ends, now),
        }
        troubles = [each for each in (self._recorder.trouble, self._complaint) if each is not None]
        return describe_state(
            self._terms,
            stats,
            list(zip(self.log.first(), ends, strict=True)),
            max(troubles, default=None),
            is_failing=self._recorder.is_refused or self._is_complaining,
            now=now,
        )

    def close(self) -> None:
        """Stop serving, record what was received, leave the bus. Idempotent."""
        self._opened.close()

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recover_sink(self) -> None:
        try:
            self._sink.recover()
        except StoreError as error:
            # Most likely a full disk. The log can still be read, and a query that asks for its
            # batch again makes it go on.
            logger.error("batches on their way to the bus have to wait: %s", error)

    def _listen(self, host: str, port: int) -> tuple[str, int]:
        try:
            return self._server.start(host, port)
        except OSError as error:
            raise BridgeError(f"cannot listen on {host}:{port}: {explain(error)}") from error

    def _start_keeper(self, opened: ExitStack) -> None:
        keeper = threading.Thread(target=self._keep, name="jsonbus-bridge-keeper")
        keeper.start()
        opened.callback(keeper.join)
        opened.callback(self._stopping.set)

    def _keep(self) -> None:
        """Apply retention every EXPIRE_S, and check that the log still exists."""
        complaint = None
        while not self._stopping.wait(EXPIRE_S):
            before, complaint = complaint, self._tend_log()
            if complaint is not None:
                self._complaint = Trouble(monotonic(), complaint)
                if complaint != before:
                    logger.error("%s", complaint)
            self._is_complaining = complaint is not None

    def _tend_log(self) -> str | None:
        """Return what is wrong, in one sentence, or None."""
        try:
            self.log.expire()
            if not os.path.samestat(os.stat(self.log.directory), self._directory):
                raise FileNotFoundError
        except FileNotFoundError:
            return (
                f"{self.log.directory} was moved or deleted while the bridge runs: what is "
                "recorded will not be found again; restart the bridge"
            )
        except (BridgeError, OSError) as error:
            return f"old segments cannot be removed: {error}"
        except Exception as error:
            logger.exception("old segments cannot be removed: this is a bug")
            return f"old segments cannot be removed: {error}"
        return None


def _take_certificate(settings: BridgeSettings) -> ServerCertificate | None:
    """Take what is about TLS out of the settings: the rest is the node's."""
    return load_certificate(settings.pop("tls_cert", None), settings.pop("tls_key", None))
