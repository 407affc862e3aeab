"""TLS: the certificate must be for the name in the url, though the connection goes to an address.

What a POST looks like without TLS, and which answers count, is in test_webhooks.py.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from jsonbus.gateway.targets import Address, Targets
from jsonbus.gateway.webhook_post import (
    NO_TLS,
    ConnectionCounts,
    NotDeliveredError,
    PostConnection,
    make_tls_context,
)
from tests.gateway.receiver import Receiver, run, until
from tests.gateway.test_webhooks import gateway, names


class Certificate:
    """A certificate for hook.example and 127.0.0.1, signed by itself; names asked for by SNI."""

    def __init__(self, folder: Path) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("there is no openssl command to make a certificate with")
        self.path, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", "/CN=hook.example", "-keyout", key, "-out", self.path,
             "-addext", "subjectAltName=DNS:hook.example,IP:127.0.0.1"],
            check=True,
            capture_output=True,
        )  # fmt: skip
        self.asked: list[str | None] = []
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(self.path, key)
        self.server.sni_callback = lambda _socket, name, _context: self.asked.append(name)

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def certificate(made: Certificate) -> Certificate:
    made.asked.clear()
    return made


def make_targets() -> Targets:
    look_up = names(hook=["127.0.0.1"], other=["127.0.0.1"])
    return Targets(["127.0.0.1"], is_loopback_gateway=False, look_up=look_up)


async def post(url: str, tls: ssl.SSLContext) -> None:
    address = await make_targets().resolve(url)
    connection = PostConnection(address, tls, ConnectionCounts())
    try:
        async with asyncio.timeout(60):
            await connection.post(address, [], b"{}", 60.0)
    finally:
        await connection.close()


def test_https_asks_for_the_name_and_checks_the_certificate_against_it(
    certificate: Certificate,
) -> None:
    async def main() -> None:
        with Receiver(tls=certificate.server) as receiver:
            await post(f"https://hook.example:{receiver.port}/x?y", certificate.client())
            assert certificate.asked == ["hook.example"]
            [request] = receiver.requests
            assert request.headers["host"] == f"hook.example:{receiver.port}"
            assert request.target == "/x?y"

    run(main())


def test_https_to_an_address_checks_the_certificate_against_the_address(
    certificate: Certificate,
) -> None:
    async def main() -> None:
        with Receiver(tls=certificate.server) as receiver:
            await post(f"https://127.0.0.1:{receiver.port}/", certificate.client())
            assert certificate.asked == [None]

    run(main())


def test_a_certificate_for_another_name_is_not_accepted(certificate: Certificate) -> None:
    async def main() -> None:
        with Receiver(tls=certificate.server) as receiver:
            with pytest.raises(NotDeliveredError, match="certificate is not accepted: Hostname"):
                await post(f"https://other.example:{receiver.port}/", certificate.client())
            assert receiver.requests == []

    run(main())


@pytest.mark.parametrize("tls", [make_tls_context(), NO_TLS], ids=["default", "none"])
def test_a_certificate_of_an_unknown_authority_is_not_accepted(
    certificate: Certificate, tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        with Receiver(tls=certificate.server) as receiver:
            with pytest.raises(NotDeliveredError, match="certificate is not accepted: self"):
                await post(f"https://hook.example:{receiver.port}/", tls)
            assert receiver.requests == []

    run(main())


def test_a_server_without_tls_is_told_from_one_with_a_wrong_certificate(
    certificate: Certificate,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NotDeliveredError, match="TLS failed: WRONG_VERSION_NUMBER"):
            await post(f"https://hook.example:{port}/", certificate.client())
        server.close()
        await server.wait_closed()

    run(main())


def test_a_subscriber_that_moves_to_another_name_on_the_same_port_gets_a_new_connection(
    certificate: Certificate,
) -> None:
    async def main() -> None:
        with Receiver(tls=certificate.server) as receiver:
            async with gateway(targets=make_targets(), tls=certificate.client()) as parts:
                url = f"https://hook.example:{receiver.port}/"
                await parts.webhooks.subscribe("bob", "a", url)
                for number in range(3):
                    await parts.publish(number)
                    await parts.until_delivered()
                assert receiver.connections == 1
                # The connection was made with a certificate that is not for the other name.
                await parts.webhooks.subscribe("bob", "a", url.replace("hook", "other"))
                await parts.publish(3)
                await until(lambda: parts.view("bob").last_error)
                assert "certificate" in str(parts.view("bob").last_error)
                assert receiver.messages == [0, 1, 2]
                await parts.webhooks.subscribe("bob", "a", url)
                await parts.until_delivered()
                assert receiver.messages == [0, 1, 2, 3]

    run(main())


def test_a_connection_is_for_one_scheme_host_and_port() -> None:
    address = Address("https", "a.example", 443, "/x")
    connection = PostConnection(address, NO_TLS, ConnectionCounts())
    assert connection.is_for(Address("https", "a.example", 443, "/y"))
    assert not connection.is_for(Address("https", "b.example", 443, "/x"))
    assert not connection.is_for(Address("http", "a.example", 443, "/x"))
    assert not connection.is_for(Address("https", "a.example", 444, "/x"))
