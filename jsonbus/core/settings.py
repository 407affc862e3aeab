"""NodeSettings: the settings that a node is created with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jsonbus.core.limits import VALUE_BYTES_MAX
from jsonbus.core.wire.frames import ABOUT_UNKNOWN, About


class NodeSettings(NamedTuple):
    """Settings of one node; `jsonbus.config` checks those that a user gives."""

    node: str  # its id, unique for all time
    incarnation: int  # when it started, milliseconds since 1970
    name: str  # for people; need not be unique
    mode: str = "delayed"  # basic, master or delayed
    is_master: bool = False  # mode master: this node is the master
    share_delay_s: float | None = None  # mode delayed: fixed; None: random
    datagram_bytes_max: int = 1400
    value_bytes_max: int = VALUE_BYTES_MAX
    batching: bool = True
    nan_as_null: bool = False
    receive_buffer_bytes: int | None = None  # as the kernel counts; None: unknown
    about: About = ABOUT_UNKNOWN  # its host, software and channel port
    carries: Callable[[str], bool] | None = None  # whether a topic belongs on the bus; None: all do
