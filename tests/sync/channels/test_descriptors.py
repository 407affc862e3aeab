"""A process without descriptors left receives on the channels that it has."""

from __future__ import annotations

import threading

import jsonbus
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
