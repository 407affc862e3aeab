"""Every error of the Spark half.

SourceError
  OptionError       an option, or the schema, that cannot be; also a ValueError
  UnreachableError  no bridge answers at an address; also a ConnectionError
  RefusedError      the bridge answers, and says no
  ProtocolError     something answers, but not as a bridge does
  TlsError          no TLS, or a certificate that is not trusted or not the bridge's
  CorruptBlockError bytes that a checksum does not confirm
  DataLossError     what a query was to read is no longer, or not yet, in the bridge's log
  MisfitError       a value that does not fit the schema, in the mode FAILFAST
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SourceError(Exception):
    """Base of every error that the Spark half raises on purpose."""


class OptionError(SourceError, ValueError):
    """An option, or the schema, that cannot be."""


class UnreachableError(SourceError, ConnectionError):
    """No bridge answers at an address."""


class RefusedError(SourceError):
    """The bridge answers, and says no."""

    def __init__(self, address: str, reply: Mapping[str, Any]) -> None:
        super().__init__(address, reply)
        self.address = address
        #: One of the codes in spark_bridge/wire.py.
        self.code = str(reply.get("error", "failed"))
        self.facts = dict(reply)

    def __str__(self) -> str:
        message = f"the bridge at {self.address} refused ({self.code}): {self.facts.get('message')}"
        if self.code == "bad_token":
            message += "; give the option `token` the value that the bridge was started with"
        return message


class ProtocolError(SourceError):
    """Something answers, but not as a bridge does."""


class TlsError(SourceError):
    """No TLS with what answers, or its certificate is not trusted or not the bridge's."""


class CorruptBlockError(SourceError):
    """Bytes that a checksum does not confirm."""


class DataLossError(SourceError):
    """Rows that a query needs are no longer, or not yet, in the bridge's log."""


class MisfitError(SourceError):
    """A value that does not fit the schema, in the mode FAILFAST."""
