"""Every error of jsonbus, on one screen.

JsonBusError
  LocalError                   the caller is wrong
    InvalidTopicError            also a ValueError
    PayloadError                 also a ValueError: the value is not JSON
      PayloadTooLargeError
    ConfigError                  also a ValueError: settings that contradict each other
    ClosedError                  the bus, subscription or queue was closed
    ForkedError                  a bus was used in a process forked after it was opened
  RemoteError                  another node is wrong
    DatagramError                counted and reported, never raised from publish()
    RequestFailedError           a handler of serve() raised on the other side
  NobodyServesError            a request to a topic that no known node serves
  RequestTimeoutError          also a TimeoutError
  TransportError               interface missing, group not joined, send refused
  QueueFullError               a subscription with overflow="error" lost messages
  ChannelError                 about a channel to another node
    ChannelRefusedError          it could not be opened; `reason` says why
    ChannelClosedError           it was closed, here or there, or lost
    ChannelTimeoutError          also a TimeoutError
    MessageTooLargeError         also a ValueError: the channel goes on without the message
  BacklogFullError             the gateway keeps no more messages for a webhook
  StoreError                   the gateway's store cannot be opened, read or written
  RecordingError               a recording cannot be written, or is none

Facts are attributes; the text is one sentence with the value, the limit and what to do.
"""

from __future__ import annotations


class JsonBusError(Exception):
    """Base class of every error that jsonbus raises deliberately."""


class LocalError(JsonBusError):
    """The caller asked for something that cannot be done."""


class InvalidTopicError(LocalError, ValueError):
    """A topic or a pattern breaks the rules for names."""

    def __init__(self, topic: object, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        shown = repr(self.topic)
        if len(shown) > 80:
            shown = shown[:77] + "…"
        return f"{shown} is not valid here: {self.reason}"


class PayloadError(LocalError, ValueError):
    """A value cannot be written as JSON."""


class PayloadTooLargeError(PayloadError):
    """A value is larger than one may be: `value_bytes_max`, or a datagram for a request."""

    def __init__(self, topic: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(topic, size_bytes, limit_bytes)
        self.topic = topic
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"the value for {self.topic!r} takes {self.size_bytes:,} bytes, at most "
            f"{self.limit_bytes:,} are allowed: send less, or split the value"
        )


class ConfigError(LocalError, ValueError):
    """Settings are wrong or contradict each other."""


class ClosedError(LocalError):
    """The bus, subscription or queue was closed before the call."""


class ForkedError(LocalError):
    """A bus was used in a process forked after it was opened."""


class RemoteError(JsonBusError):
    """Another node did something wrong."""


class DatagramError(RemoteError):
    """A datagram that cannot be understood; `cause` is one of CAUSES."""

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(cause, detail)
        self.cause = cause
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}" if self.detail else self.cause


class RequestFailedError(RemoteError):
    """The node that served a request failed while doing so."""

    def __init__(self, topic: str, node: str, reason: str) -> None:
        super().__init__(topic, node, reason)
        self.topic = topic
        self.node = node
        self.reason = reason

    def __str__(self) -> str:
        return f"node {self.node} failed to serve {self.topic!r}: {self.reason}"


class NobodyServesError(JsonBusError):
    """No known node serves the topic of a request."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"nobody serves {self.topic!r}: start a node that does, or wait for one"


class RequestTimeoutError(JsonBusError, TimeoutError):
    """A node serves the topic, but no reply came in time."""

    def __init__(self, topic: str, timeout_s: float) -> None:
        super().__init__(topic, timeout_s)
        self.topic = topic
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"no reply to {self.topic!r} within {self.timeout_s:g} s"


class TransportError(JsonBusError):
    """The network refused: interface missing, group not joined, send failed."""


class QueueFullError(JsonBusError):
    """A subscription with overflow="error" lost messages because its reader was slow."""

    def __init__(self, pattern: str, dropped: int) -> None:
        super().__init__(pattern, dropped)
        self.pattern = pattern
        self.dropped = dropped

    def __str__(self) -> str:
        return (
            f"the subscription to {self.pattern!r} lost {self.dropped:,} messages: read faster, "
            "or give it a larger maxsize"
        )


class ChannelError(JsonBusError):
    """A channel failed. `node` is the other node, as the caller named it or as it names itself."""

    def __init__(self, node: str, port: str, *facts: object) -> None:
        super().__init__(node, port, *facts)
        self.node = node
        self.port = port


class ChannelRefusedError(ChannelError):
    """A channel could not be opened; `reason` is one of

    unknown     no node has that name or id
    ambiguous   several have it: `nodes` are their ids
    unbound     nothing is bound to the port
    taken       the port is exclusive and in use
    gone        the node was there, but does not answer
    version     the node speaks another version of the protocol
    busy        the node has as many channels, or callers that wait, as it takes
    """

    def __init__(
        self, node: str, port: str, reason: str, detail: str = "", nodes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(node, port, reason, detail, nodes)
        self.reason = reason
        self.detail = detail
        self.nodes = nodes

    def __str__(self) -> str:
        return _REFUSALS.get(self.reason, "{node} refused a channel to {port!r}{detail}").format(
            node=self.node,
            port=self.port,
            detail=f" ({self.detail})" if self.detail else "",
            nodes=", ".join(self.nodes),
        )


_REFUSALS = {
    "unknown": "there is no node {node!r}: `jsonbus nodes` lists the nodes",
    "ambiguous": "several nodes are called {node!r}: connect to one of the ids {nodes}",
    "unbound": "nothing is bound to port {port!r} of {node}: bind it there first, or use retry",
    "taken": "port {port!r} of {node} is exclusive, and taken: try again when it is free",
    "gone": "{node} does not answer{detail}: it left, cannot be reached, or is before 0.5.0",
    "version": "{node} speaks another version of the channel protocol{detail}: update the older",
    "busy": "{node} takes no more channels to {port!r} now: try again later",
}


class ChannelClosedError(ChannelError):
    """The channel was closed; `is_lost` unless one of the two sides closed it deliberately.

    `is_closed_here` if this side did, before it heard that the other had.
    """

    def __init__(
        self,
        node: str,
        port: str,
        reason: str,
        *,
        is_lost: bool = False,
        is_closed_here: bool = False,
    ) -> None:
        super().__init__(node, port, reason)
        self.reason = reason
        self.is_lost = is_lost
        self.is_closed_here = is_closed_here

    def __str__(self) -> str:
        return f"the channel to {self.node} ({self.port!r}) is closed: {self.reason}"


class ChannelTimeoutError(ChannelError, TimeoutError):
    """An operation on a channel did not finish in time."""

    def __init__(self, node: str, port: str, what: str, timeout_s: float) -> None:
        super().__init__(node, port, what, timeout_s)
        # TimeoutError would take the first two arguments for a system error and forget the others:
        # then it could not be raised again, nor travel to another process.
        self.args = (node, port, what, timeout_s)
        self.what = what
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"{self.what} within {self.timeout_s:g} s ({self.node}, {self.port!r})"


class MessageTooLargeError(ChannelError, ValueError):
    """A message of a channel is larger than the receiving side accepts."""

    def __init__(self, node: str, port: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(node, port, size_bytes, limit_bytes)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"a message on the channel to {self.node} ({self.port!r}) has {self.size_bytes:,} "
            f"bytes, at most {self.limit_bytes:,} are taken: send it in pieces"
        )


class BacklogFullError(JsonBusError):
    """A message or subscription was not accepted, because too much already waits for webhooks."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"try again later: {self.detail}"


class StoreError(JsonBusError):
    """The gateway's store on disk cannot be opened, read or written."""


class RecordingError(JsonBusError):
    """A recording cannot be written or read; `path` is its file, `reason` what is wrong with
    it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"
