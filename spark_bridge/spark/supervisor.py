"""Keep a streaming query running: restart it from its checkpoint when it failed.

A query ends with an exception when a process that it needs was killed, the bridge was away for
longer than its timeout, or a task failed too often. All that it needs to go on is in its
checkpoint. What comes back at once comes back again, so restarts wait longer each time and are
counted; a query that ran well for a while gets the whole number again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("jsonbus.spark")


class Supervisor:
    """Starts a query, and starts it again whenever it ends with an exception.

    `start` must start the query with a `checkpointLocation`, the same each time. It is called here
    first, and raises its errors to the caller; later it is called in a thread of the supervisor. A
    restart waits `backoff_s`, the next twice as long, up to `backoff_max_s`. After `restarts_max`
    restarts the last exception is final; a query that ran for `refill_after_s` gets the whole
    number again. Any thread may call any method.
    """

    def __init__(
        self,
        start: Callable[[], StreamingQuery],
        *,
        restarts_max: int = 10,
        backoff_s: float = 1.0,
        backoff_max_s: float = 60.0,
        refill_after_s: float = 300.0,
    ) -> None:
        if restarts_max < 0:
            raise ValueError(f"restarts_max is {restarts_max}: it must be 0 or more")
        if not 0 <= backoff_s <= backoff_max_s:
            raise ValueError(
                f"backoff_s is {backoff_s}: it must be between 0 and backoff_max_s, {backoff_max_s}"
            )
        self._start = start
        self._restarts_max = restarts_max
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._refill_after_s = refill_after_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards the query and whether it may be restarted
        self._restarts = 0
        self._failure: BaseException | None = None
        self._session = SparkSession.getActiveSession()
        self._query = start()
        self._started_at = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, name="spark-bridge-supervisor", daemon=True
        )
        self._thread.start()

    @property
    def query(self) -> StreamingQuery:
        """The query that runs, or the last one that did."""
        with self._lock:
            return self._query

    @property
    def restarts(self) -> int:
        """Number of restarts of the query."""
        return self._restarts

    @property
    def is_active(self) -> bool:
        """True if the query runs or will be restarted."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the query for good, and return when it has ended. Idempotent."""
        with self._lock:
            self._stopping.set()
            query = self._query
        query.stop()
        self._thread.join()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return False if it has not come in time.

        A supervisor ends when its query ends without an exception (stop(), or a trigger that has an
        end), or after too many exceptions: then the last one is raised.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def _run(self) -> None:
        _make_active(self._session)
        left = self._restarts_max
        backoff_s = self._backoff_s
        failure = self._wait_for_failure()
        while failure is not None and not self._stopping.is_set():
            if time.monotonic() - self._started_at >= self._refill_after_s:
                left, backoff_s = self._restarts_max, self._backoff_s
            if left == 0:
                reason = first_line(failure)
                _log.error("the query failed and is not restarted any more: %s", reason)
                self._failure = failure
                return
            left -= 1
            _log.warning(
                "the query failed and is restarted in %g s (%d restarts left): %s",
                backoff_s,
                left,
                first_line(failure),
            )
            if self._stopping.wait(backoff_s):
                return
            backoff_s = min(backoff_s * 2, self._backoff_max_s)
            failure = self._restart() or self._wait_for_failure()

    def _restart(self) -> BaseException | None:
        """Restart the query, and return what prevented that, if anything did."""
        self._started_at = time.monotonic()
        try:
            query = self._start()
        except Exception as error:
            return error
        with self._lock:
            self._query = query
            self._restarts += 1
            stopped = self._stopping.is_set()
        if stopped:  # by somebody who knew the previous query
            query.stop()
        return None

    def _wait_for_failure(self) -> BaseException | None:
        """Wait, and return the exception that the query ended with; None if it just ended."""
        try:
            self._query.awaitTermination()
        except Exception as error:
            return error
        return None


#: The name by which programs call it.
supervise = Supervisor


def _make_active(session: SparkSession | None) -> None:
    """Make the session active in this thread: Spark looks there for a sink in Python."""
    jvm = getattr(session, "_jvm", None)  # a session of Spark Connect has none, and needs none
    if session is not None and jvm is not None:
        in_jvm = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")  # has dots
        in_jvm.setActiveSession(session._jsparkSession)


def first_line(error: BaseException) -> str:
    """Return the message of a Java exception without its stack."""
    return str(error).strip().partition("\n")[0]
