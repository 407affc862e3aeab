"""What channels of both front ends share, with real sockets on loopback."""

from __future__ import annotations

import copy
import pickle

import pytest

from jsonbus.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelRefusedError,
    ChannelTimeoutError,
    MessageTooLargeError,
)


@pytest.mark.parametrize(
    "error",
    [
        ChannelRefusedError("desk", "p", "ambiguous", "", ("a", "b")),
        ChannelClosedError("desk", "p", "it broke", is_lost=True),
        ChannelTimeoutError("desk", "p", "no message came", 0.5),
        MessageTooLargeError("desk", "p", 11, 10),
    ],
)
def test_an_error_of_a_channel_can_be_copied_whole(error: ChannelError) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))
