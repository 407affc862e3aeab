"""A bridge without a bus: a log that the test fills itself, behind the real server."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonbus
from jsonbus.tls.certificate import ServerCertificate
from spark_bridge.groups import Groups
from spark_bridge.log.offset_log import OffsetLog
from spark_bridge.requests import Requests
from spark_bridge.server import Server
from spark_bridge.sink.sink import Sink
from tests.spark_bridge.log.log_rows import make_batch, make_row


class ServedLog:
    """Serves from its making on; `stop` and `start` are a restart at the same address."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 2,
        token: str | None = None,
        certificate: ServerCertificate | None = None,
        **log: Any,
    ) -> None:
        self._directory = directory
        self._token = token
        self._certificate = certificate
        self._log_options = {"partitions": partitions, **log}
        self._port = 0
        self.groups = Groups()
        self.published: list[tuple[str, Any]] = []  # by the sink
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        self.log = OffsetLog(self._directory, **self._log_options)
        self._sink = Sink(self._directory, self._publish)
        requests = Requests(
            self.log,
            self._sink,
            self.groups,
            name=f"bridge of {jsonbus.__version__}",
            stats=lambda: {},
        )
        self._server = Server(requests, token=self._token, certificate=self._certificate)
        _, self._port = self._server.start("127.0.0.1", self._port)

    def stop(self) -> None:
        self._sink.close()
        self._server.stop()
        self.log.close()

    def move(self) -> None:
        """Serve the same log at another address."""
        self.stop()
        self._port = 0
        self.start()

    def replace(self) -> None:
        """Serve a new, empty log at the same address."""
        self.stop()
        shutil.rmtree(self._directory)
        self.start()

    def append(self, partition: int, rows: Iterable[dict[str, Any]]) -> None:
        self.log.append({partition: make_batch(rows)})
        self._server.appended()

    def publish(self, values: Iterable[Any], topic: str = "t", partition: int = 0) -> None:
        """Rows with these values as JSON."""
        self.append(partition, [make_row(json.dumps(each), topic) for each in values])

    @property
    def attached_bytes(self) -> int:
        """What clients have attached to requests that are not answered yet."""
        return self._server.stats()["attached_bytes"]

    def wake(self) -> None:
        """Tell whoever waits that the log has grown, be it true or not."""
        self._server.appended()

    def stats(self) -> dict[str, int]:
        return self._server.stats()

    def _publish(self, topic: str, value: Any, **options: Any) -> bool:
        self.published.append((topic, value))
        return True


@contextmanager
def serving(folder: Path) -> Iterator[Callable[..., ServedLog]]:
    """Serves new logs, until all of them are stopped: `open_log(partitions=1, token="secret")`."""
    opened: list[ServedLog] = []
    numbers = itertools.count()

    def open_log(**options: Any) -> ServedLog:
        opened.append(ServedLog(folder / f"log-{next(numbers)}", **options))
        return opened[-1]

    try:
        yield open_log
    finally:
        for each in opened:
            each.stop()
