"""A webhook may not lead back to a gateway; where it does anyway, a message ends there."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

import httpx
import pytest

from jsonbus.gateway.gateway import Gateway, GatewayConfig
from jsonbus.gateway.webhooks.targets import Targets
from tests.aio.running import asynctest, until
from tests.helpers import find_free_port

PORT = 7677


def interface_address() -> str | None:
    """An address of this machine that is not loopback. Connecting by UDP sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def own_targets(*names: str) -> Targets:
    async def look_up(host: str, port: int) -> list[str]:
        return list(names)

    targets = Targets(["*"], is_loopback_gateway=False, look_up=look_up)
    targets.refuse_own([PORT, 7676])
    return targets


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:7677/publish",
        "https://127.0.0.1:7677/publish",
        "http://127.1.2.3:7677/",
        "http://127.0.0.1:7676/",
        "http://0.0.0.0:7677/",
        "http://[::1]:7677/",
        "http://[::]:7677/",
        "http://[::ffff:127.0.0.1]:7677/",
    ],
)
def test_the_gateway_itself_is_refused_even_if_everything_is_allowed(url: str) -> None:
    with pytest.raises(ValueError, match="is this gateway, which takes no webhooks"):
        own_targets().check(url)


def test_an_address_of_an_interface_is_refused_with_the_gateways_port() -> None:
    address = interface_address()
    if address is None:
        pytest.skip("this machine has only loopback")
    with pytest.raises(ValueError, match="is this gateway"):
        own_targets().check(f"http://{address}:{PORT}/")
    own_targets().check(f"http://{address}:{PORT + 1}/")


@pytest.mark.parametrize("meaning", ["127.0.0.1", "::1"])
def test_a_name_of_this_machine_is_refused_when_it_is_looked_up(meaning: str) -> None:
    targets = own_targets(meaning)
    with pytest.raises(ValueError, match="is this gateway"):
        asyncio.run(targets.resolve(f"http://bus.example:{PORT}/"))
    assert asyncio.run(targets.resolve(f"http://bus.example:{PORT + 1}/")).ips


@pytest.mark.parametrize("host", ["192.0.2.7", "239.1.2.3", "[2001:db8::1]"])
def test_the_gateways_port_on_another_machine_is_allowed(host: str) -> None:
    own_targets().check(f"http://{host}:{PORT}/")


async def open_gateway(stack: AsyncExitStack, port: int) -> tuple[Gateway, httpx.AsyncClient]:
    """A gateway on the bus of this port, and a client."""
    gateway = Gateway(GatewayConfig(retry_s_max=0.1), port=port, interface="lo")
    await stack.enter_async_context(gateway)
    base = "http://{}:{}".format(*gateway.http_address)
    client = httpx.AsyncClient(base_url=base, timeout=30, trust_env=False)
    return gateway, await stack.enter_async_context(client)


@asynctest
async def test_a_gateway_refuses_its_own_addresses_for_webhooks() -> None:
    async with AsyncExitStack() as stack:
        gateway, client = await open_gateway(stack, find_free_port())
        assert gateway.text_address is not None
        port, text_port = gateway.http_address[1], gateway.text_address[1]
        for url in (
            f"http://127.0.0.1:{port}/publish",
            f"http://localhost:{port}/v1/topics/door",
            f"http://127.0.0.1:{text_port}/",
        ):
            answer = await client.get(
                "/subscribe", params={"topic": "door", "subscriberName": "n", "url": url}
            )
            assert answer.status_code == 400
            assert "is this gateway" in answer.json()["error"]
        assert (await client.get("/subscribers")).json() == {"subscribers": []}


@asynctest
async def test_between_two_gateways_that_point_at_each_other_a_message_goes_nowhere() -> None:
    async with AsyncExitStack() as stack:
        bus_port = find_free_port()
        (gateway, here), (_, there) = [await open_gateway(stack, bus_port) for _ in range(2)]
        for one, other in ((here, there), (there, here)):
            url = f"{other.base_url}/v1/topics/door"
            wish = {"topic": "door", "subscriberName": "loop", "url": url}
            assert (await one.get("/subscribe", params=wish)).status_code == 200

        assert (await here.get("/publish", params={"topic": "door", "message": "1"})).is_success
        assert await until(lambda: gateway.webhooks.stats()["attempts_failed"] >= 3)
        (view,) = (await here.get("/subscribers")).json()["subscribers"]
        assert view["last_error"] == (
            "the answer was 403, not 200: a gateway is there, and gateways take no webhooks"
        )
        assert view["backlog"] == 1  # what was published, and nothing that came back
