"""One POST: where the connection goes, what is read of the answer, and whom TLS trusts."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from jsonbus.gateway.webhooks.post import (
    NO_TLS,
    NotDeliveredError,
    PostConnection,
    make_tls_context,
)
from jsonbus.gateway.webhooks.targets import Address, Targets
from tests.gateway.receiver import Answer, Receiver, run, until
from tests.gateway.webhooks.parts import gateway, names


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
    connection = PostConnection(address, tls)
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
    connection = PostConnection(address, NO_TLS)
    assert connection.is_for(Address("https", "a.example", 443, "/y"))
    assert not connection.is_for(Address("https", "b.example", 443, "/x"))
    assert not connection.is_for(Address("http", "a.example", 443, "/x"))
    assert not connection.is_for(Address("https", "a.example", 444, "/x"))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    async def main() -> None:
        with Receiver() as receiver, Receiver() as other:
            receiver.script(Answer(status, headers={"Location": other.url}))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
            assert len(receiver.requests) == 2
            assert other.connections == 0

    run(main())


def test_an_answer_of_any_length_is_enough_but_is_not_read_whole() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.script(Answer(endless=True), Answer(body=b"x" * 60_000))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                for number in range(3):
                    await parts.publish(number)
                    await parts.until_delivered()
                # The endless one is cut off; the long one is read, and its connection kept.
                await until(lambda: receiver.open_connections == 1)
            assert receiver.messages == [0, 1, 2]
            assert [each.connection for each in receiver.requests] == [1, 2, 2]
            assert receiver.bytes_sent < 50_000_000  # what the sockets' buffers hold, at most

    run(main())


def test_the_connection_goes_to_the_checked_address_and_the_host_header_is_the_name() -> None:
    async def main() -> None:
        targets = Targets(
            ["127.0.0.1"], is_loopback_gateway=False, look_up=names(hook=["127.0.0.1"])
        )
        with Receiver() as receiver:
            async with gateway(targets=targets) as parts:
                url = f"http://hook.example:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                await parts.publish(1)
                await parts.until_delivered()
            assert receiver.requests[0].headers["host"] == f"hook.example:{receiver.port}"

    run(main())


def test_a_name_with_several_addresses_is_delivered_to_at_the_one_that_answers() -> None:
    async def main() -> None:
        look_up = names(hook=["127.0.0.77", "127.0.0.78", "127.0.0.1"])
        targets = Targets(is_loopback_gateway=True, look_up=look_up)
        with Receiver() as receiver:
            async with gateway(targets=targets) as parts:
                url = f"http://hook.example:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                for number in range(3):
                    await parts.publish(number)
                    await parts.until_delivered()
                assert parts.view("bob").attempts_failed == 0
            assert receiver.messages == [0, 1, 2]
            assert receiver.connections == 1

    run(main())


def test_localhost_is_delivered_to_whichever_of_its_addresses_listens() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                url = f"http://localhost:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                await parts.publish(1)
                await parts.until_delivered()
            assert receiver.requests[0].headers["host"] == f"localhost:{receiver.port}"

    run(main())


def test_an_ipv6_address_is_delivered_to() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    async def main() -> None:
        with Receiver(host="::1") as receiver:
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
            assert receiver.requests[0].headers["host"] == f"[::1]:{receiver.port}"

    run(main())


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with Receiver() as receiver, Receiver() as proxy:
            for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
            assert proxy.connections == 0

    run(main())
