"""What a node is told at birth."""

from __future__ import annotations

from typing import NamedTuple

from jsonbus.core.limits import VALUE_BYTES_MAX
from jsonbus.core.wire.frames import UNTOLD, About


class NodeSettings(NamedTuple):
    """Settings of one node; `jsonbus.config` checks them where a user gives them."""

    node: str  # its id, unique for ever
    incarnation: int  # when it started, milliseconds since 1970
    name: str  # for people; several nodes may have the same
    mode: str = "delayed"  # basic, master or delayed
    is_master: bool = False  # mode master: this node answers
    share_delay_s: float | None = None  # mode delayed: fixed; None is random
    datagram_bytes_max: int = 1400
    value_bytes_max: int = VALUE_BYTES_MAX
    batching: bool = True
    receive_buffer_bytes: int | None = None  # what may wait for it, as the kernel counts, if told
    about: About = UNTOLD  # where it runs, and what
