"""What an application sees of a bus with threads."""

from __future__ import annotations

import os
import threading

import pytest

import jsonbus
from jsonbus.errors import ConfigError, TransportError
from jsonbus.transport import MemoryNetwork
from tests.helpers import find_free_port, no_descriptors, wait_until
from tests.sync.conftest import OpenBus


def test_a_decorated_function_is_a_handler_and_stays_itself(open_bus: OpenBus) -> None:
    bus = open_bus()
    rung = threading.Event()

    @bus.on("alarm/**")
    def alarm(message: jsonbus.Message) -> str:
        rung.set()
        return message.topic

    bus.publish("alarm/fire", None)
    assert rung.wait(30)
    assert callable(alarm)


def test_flushing_gives_up_when_the_time_is_over(network: MemoryNetwork) -> None:
    transport = network.open()
    with jsonbus.Bus.over(transport, mode="basic") as bus:
        assert bus.flush(timeout=30)
        transport.is_jammed = True
        publisher = threading.Thread(target=bus.publish, args=("x", 1))
        publisher.start()
        assert wait_until(lambda: not bus.flush(timeout=0))
        transport.is_jammed = False
        assert bus.flush(timeout=30)
        publisher.join()


def test_wrong_settings_and_a_missing_interface_open_nothing() -> None:
    with pytest.raises(ConfigError):
        jsonbus.Bus(port=0)
    with pytest.raises(TypeError):
        jsonbus.Bus(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TransportError):
        jsonbus.Bus(interface="no-such-interface")


def test_a_system_without_a_thread_left_opens_nothing(
    network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    transport = network.open()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(TransportError, match="new thread"):
            jsonbus.Bus.over(transport)
    with pytest.raises(TransportError, match="closed"):
        transport.send((b"{}",))


def test_a_system_with_too_few_descriptors_left_opens_nothing_and_keeps_none() -> None:
    port = find_free_port()
    jsonbus.Bus(port=port, interface="lo").close()  # what the first one loads stays
    before = len(os.listdir("/proc/self/fd"))
    for left in range(20):
        try:
            with no_descriptors(left):
                jsonbus.Bus(port=port, interface="lo").close()
            break
        except TransportError as error:
            assert "open files" in str(error)
        assert len(os.listdir("/proc/self/fd")) == before
    assert left > 4


def test_an_async_handler_is_refused(open_bus: OpenBus) -> None:
    async def handler(message: jsonbus.Message) -> None: ...

    with pytest.raises(ConfigError, match="AsyncBus"):
        open_bus().subscribe("x", handler)
    with pytest.raises(ConfigError, match="AsyncBus"):
        open_bus().serve("x", handler)


def test_a_bus_has_a_name_an_id_its_settings_and_a_readable_form(open_bus: OpenBus) -> None:
    bus, other = open_bus(name="kitchen", mode="basic"), open_bus()
    assert bus.name == "kitchen"
    assert bus.config.mode == "basic"
    assert repr(bus).startswith(f"<Bus kitchen 239.255.24.16:{bus.config.port} ")
    assert bus.id != other.id
    assert other.name
    subscription = bus.subscribe("a/*")
    assert repr(subscription) == "<Subscription a/* 0 pending>"
