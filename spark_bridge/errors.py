"""Every error of the bridge's bus half.

BridgeError
  LogError                   the log on disk is not what it should be
    LogCorruptError            bytes that a checksum does not confirm, where they must be right
    LogLockedError             another bridge has the directory
    LogWriteError              the disk did not take what was to be appended; also an OSError
      LogFullError               it has no room
  OffsetOutOfRangeError      an offset that the log no longer has, or does not have yet
  StoreError                 the sink's file cannot be used
    StoreFullError             no room on the disk; also an OSError
  RequestError               a client asked for something that cannot be done; closes nothing
    AccessError                no token, or a wrong one
    BusyError                  not now: try again later
    TooLargeError              never: more than may be staged, or than a message may have
  ProtocolError              bytes on the port that are no request; closes the connection
"""

from __future__ import annotations

import os


class BridgeError(Exception):
    """Base of every error that the bridge raises on purpose."""


class LogError(BridgeError):
    """The log on disk is not what it should be."""


class LogCorruptError(LogError):
    """Bytes that a checksum does not confirm, and that are not the torn end of a file."""


class LogLockedError(LogError):
    """Another bridge has the directory."""


class LogWriteError(LogError, OSError):
    """The disk did not take what was to be appended: nothing of it is kept."""

    def __init__(self, message: str, partitions: tuple[int, ...]) -> None:
        super().__init__(message)
        #: Those that were not appended to. All others of the same call were.
        self.partitions = partitions


class LogFullError(LogWriteError):
    """The disk has no room: what was to be appended was not. It may be appended later."""


class StoreError(BridgeError):
    """The file with the staged batches cannot be read or written."""


class StoreFullError(StoreError, OSError):
    """The disk has no room: what was to be staged or noted was not."""


class OffsetOutOfRangeError(BridgeError):
    """An offset below the first one that is kept, or beyond the last one that is on disk."""

    def __init__(self, partition: int, offset: int, first: int, end: int) -> None:
        super().__init__(partition, offset, first, end)
        self.partition = partition
        self.offset = offset
        #: The offsets that can be read: first … end - 1.
        self.first = first
        self.end = end

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of partition {self.partition} is not in the log, "
            f"which has {self.first} to {self.end}"
        )


class RequestError(BridgeError):
    """A client asked for something that cannot be done."""


class AccessError(RequestError):
    """A client showed no token, or a wrong one."""


class BusyError(RequestError):
    """The request cannot be granted now, but later."""


class TooLargeError(RequestError):
    """A client sent more than is allowed."""


class ProtocolError(BridgeError):
    """A client sent bytes that are no request."""


def explain(error: OSError) -> str:
    """The system's own words, without what Python adds to some of them."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)  # names of hosts have numbers of their own, below 0
