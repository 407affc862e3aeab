"""A decentralized JSON publish/subscribe bus over UDP multicast.

    with jsonbus.Bus() as bus:
        bus.publish("sensors/kitchen", {"temp": 21.5})

Everything is imported at its first use: `import jsonbus` is quick, and a program that uses threads
never pays for asyncio, nor the other way round. From the network up:

transport/             sockets: multicast, interfaces, TCP; the same in memory for tests
core/                  the protocol, without socket, thread, clock or dice
sealed/                encryption, for a bus that has keys
frontend/              what both front ends have in common
sync/                  `Bus`: threads
aio/                   `AsyncBus`: asyncio
queues/                `TopicQueue` and `AsyncTopicQueue`
subscription_store.py  `SubscriptionStore`: the bus's own pattern matching
config.py              settings: defaults, environment, keywords
errors.py              every error
version.py             the version

On top of these public names:

survey/                what flows on the bus, measured for people
recording/             messages in files, and back onto a bus
gateway/               HTTP, webhooks, lines of text over TCP, metrics, dashboard
doctor/                why nothing arrives
sim/                   the core in a simulated world
demo/                  the product at work on one machine
cli/                   the command `jsonbus`
__main__.py            the same as `python -m jsonbus`
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from . import errors
from .errors import (
    BacklogFullError,
    ChannelClosedError,
    ChannelError,
    ChannelRefusedError,
    ChannelTimeoutError,
    ClosedError,
    ConfigError,
    DatagramError,
    ForkedError,
    InvalidTopicError,
    JsonBusError,
    LocalError,
    MessageTooLargeError,
    NobodyServesError,
    PayloadError,
    PayloadTooLargeError,
    QueueFullError,
    RecordingError,
    RemoteError,
    RequestFailedError,
    RequestTimeoutError,
    StoreError,
    TransportError,
)
from .version import __version__

if TYPE_CHECKING:
    from .aio.bus import AsyncBus
    from .aio.channel import Channel as AsyncChannel
    from .aio.channels import Binding as AsyncBinding
    from .aio.subscription import Subscription as AsyncSubscription
    from .aio.watch import Watch as AsyncWatch
    from .config import BusConfig, BusSettings, Mode
    from .core.mailbox import Overflow
    from .core.message import Message, Origin
    from .core.routing.matching import topic_matches
    from .core.rpc.requests import Request
    from .core.views import Explanation, NodeInfo
    from .core.wire.frames import Totals
    from .core.wire.topics import check_pattern, check_topic, translate_pattern
    from .frontend.requests import Pong
    from .frontend.watch import GapEvent, NodeEvent
    from .queues.tasks import AsyncTopicQueue
    from .queues.threads import TopicQueue
    from .subscription_store import SubscriptionStore
    from .sync.bus import Bus
    from .sync.channel import Channel
    from .sync.channels import Binding
    from .sync.subscription import Subscription
    from .sync.watch import Watch

__all__ = [
    "AsyncBinding",
    "AsyncBus",
    "AsyncChannel",
    "AsyncSubscription",
    "AsyncTopicQueue",
    "AsyncWatch",
    "BacklogFullError",
    "Binding",
    "Bus",
    "BusConfig",
    "BusSettings",
    "Channel",
    "ChannelClosedError",
    "ChannelError",
    "ChannelRefusedError",
    "ChannelTimeoutError",
    "ClosedError",
    "ConfigError",
    "DatagramError",
    "Explanation",
    "ForkedError",
    "GapEvent",
    "InvalidTopicError",
    "JsonBusError",
    "LocalError",
    "Message",
    "MessageTooLargeError",
    "Mode",
    "NobodyServesError",
    "NodeEvent",
    "NodeInfo",
    "Origin",
    "Overflow",
    "PayloadError",
    "PayloadTooLargeError",
    "Pong",
    "QueueFullError",
    "RecordingError",
    "RemoteError",
    "Request",
    "RequestFailedError",
    "RequestTimeoutError",
    "StoreError",
    "Subscription",
    "SubscriptionStore",
    "TopicQueue",
    "Totals",
    "TransportError",
    "Watch",
    "__version__",
    "check_pattern",
    "check_topic",
    "errors",
    "topic_matches",
    "translate_pattern",
]

#: A public name -> its module, and what it is called there, if not the same.
_HOMES = {
    "AsyncBinding": ".aio.channels:Binding",
    "AsyncBus": ".aio.bus",
    "AsyncChannel": ".aio.channel:Channel",
    "AsyncSubscription": ".aio.subscription:Subscription",
    "AsyncTopicQueue": ".queues.tasks",
    "AsyncWatch": ".aio.watch:Watch",
    "Binding": ".sync.channels",
    "Bus": ".sync.bus",
    "BusConfig": ".config",
    "BusSettings": ".config",
    "Channel": ".sync.channel",
    "Explanation": ".core.views",
    "GapEvent": ".frontend.watch",
    "Message": ".core.message",
    "Mode": ".config",
    "NodeEvent": ".frontend.watch",
    "NodeInfo": ".core.views",
    "Origin": ".core.message",
    "Overflow": ".core.mailbox",
    "Pong": ".frontend.requests",
    "Request": ".core.rpc.requests",
    "Subscription": ".sync.subscription",
    "SubscriptionStore": ".subscription_store",
    "TopicQueue": ".queues.threads",
    "Totals": ".core.wire.frames",
    "Watch": ".sync.watch",
    "check_pattern": ".core.wire.topics",
    "check_topic": ".core.wire.topics",
    "topic_matches": ".core.routing.matching",
    "translate_pattern": ".core.wire.topics",
}

# A library says nothing unless its user asks to hear it.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    try:
        home, _, inside = _HOMES[name].partition(":")
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value: object = getattr(importlib.import_module(home, __name__), inside or name)
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
