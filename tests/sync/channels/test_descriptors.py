"""A process without descriptors left receives on the channels that it has, and opens no more."""

from __future__ import annotations

import threading

import pytest

import jsonbus
from jsonbus.errors import ChannelRefusedError
from tests.helpers import find_free_port, no_descriptors


def test_new_threads_receive_without_a_descriptor_to_spare() -> None:
    port = find_free_port()
    came: list[int] = []
    with jsonbus.Bus(name="here", port=port) as here, jsonbus.Bus(name="there", port=port) as there:
        binding = there.bind("news")
        channel = here.connect("there", "news", 30, retry=True)
        other = binding.accept(30)
        readers = [
            threading.Thread(target=lambda: came.append(channel.receive(30))) for _ in range(3)
        ]
        with no_descriptors():
            for reader in readers:
                reader.start()
            for number in range(3):
                other.send(number)
            for reader in readers:
                reader.join(30)
    assert sorted(came) == [0, 1, 2]


def test_calls_that_wait_in_line_fail_one_after_the_other_without_a_descriptor_to_spare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsonbus.frontend.channels.connector.DIALED_MAX", 2)
    port = find_free_port()
    with jsonbus.Bus(name="here", port=port) as here, jsonbus.Bus(name="there", port=port) as there:
        there.bind("news")
        here.connect("there", "news", 30, retry=True)
        with no_descriptors():
            channels = [here.connect("there", "news", 30, wait=False) for _ in range(7)]
            for channel in channels:
                with pytest.raises(ChannelRefusedError, match="no connection can be opened"):
                    channel.receive(30)
        assert here.connect("there", "news", 30).state == "open"
