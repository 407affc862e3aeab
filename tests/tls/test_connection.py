"""One connection: bytes and ends in both directions, pausing, and what is no TLS."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from jsonbus.tls import port as tls_port
from jsonbus.tls.certificate import ServerCertificate
from jsonbus.tls.connection import CutError, TlsConnection
from jsonbus.tls.port import TlsPort
from tests.aio.running import asynctest, until
from tests.certificates import Authority

PLAIN_ANSWER = b"this port speaks TLS\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Inside(asyncio.Protocol):
    """The protocol of the port; notes what it is told."""

    def __init__(self) -> None:
        self.received = b""
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.keeps_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsConnection)
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.calls.append("end")
        return self.keeps_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append("lost")
        self.error = error


class Served:
    def __init__(self, authority: Authority) -> None:
        self.trusted = authority.client()
        self.port = TlsPort(ServerCertificate(*authority.issue()), PLAIN_ANSWER)
        self.inside: list[Inside] = []
        self.address: tuple[str, int] = "127.0.0.1", 0

    def make(self) -> Inside:
        self.inside.append(Inside())
        return self.inside[-1]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connected = await asyncio.open_connection(*self.address, ssl=self.trusted)
        assert await until(lambda: self.inside[-1].calls)
        return connected

    def figures(self, *names: str) -> list[int]:
        stats = self.port.stats()
        return [stats[f"tls_{name}"] for name in names]


@asynccontextmanager
async def serving(authority: Authority) -> AsyncIterator[Served]:
    served = Served(authority)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(served.port.wrap(served.make), "127.0.0.1", 0)
    served.address = server.sockets[0].getsockname()[:2]
    try:
        yield served
    finally:
        server.close()
        served.port.close()
        for each in served.inside:
            if each.calls:
                each.transport.abort()
        await asyncio.sleep(0)


class HandClient:
    """A client whose bytes the test moves itself: to cut, hold back and spoil them."""

    def __init__(self, served: Served) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = served.trusted.wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost"
        )
        self._address = served.address

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def shake_hands(self, piece_bytes: int = 1 << 16) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(self.taken(), piece_bytes)
                await self.receive()
            else:
                await self.send(self.taken(), piece_bytes)
                return

    def taken(self) -> bytes:
        """What TLS wants to send."""
        return self._outgoing.read()

    async def send(self, data: bytes, piece_bytes: int = 1 << 16) -> None:
        for start in range(0, len(data), piece_bytes):
            self._writer.write(data[start : start + piece_bytes])
            await self._writer.drain()
            await asyncio.sleep(0)

    async def receive(self) -> bool:
        """Take what comes; False at the end of the socket."""
        async with asyncio.timeout(30):
            data = await self._reader.read(1 << 16)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return bool(data)

    def cut(self) -> None:
        """End the socket's direction, without a word of TLS."""
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


@asynctest
async def test_what_is_sent_arrives_in_both_directions(authority: Authority) -> None:
    async with serving(authority) as served:
        reader, writer = await served.connect()
        inside = served.inside[0]
        text = bytes(range(256)) * 4_096  # a megabyte, in many records
        writer.write(text)
        assert await until(lambda: len(inside.received) >= len(text))
        assert inside.received == text
        inside.transport.write(memoryview(text))
        assert await reader.readexactly(len(text)) == text
        assert served.figures("handshakes", "handshakes_waiting") == [1, 0]
        assert inside.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert inside.transport.get_extra_info("sslcontext") is not None
        assert inside.transport.get_extra_info("peername")[0] == "127.0.0.1"
        writer.close()


@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000])
def test_where_the_bytes_are_cut_makes_no_difference(
    authority: Authority, piece_bytes: int
) -> None:
    async def scenario() -> None:
        async with serving(authority) as served:
            client = HandClient(served)
            await client.connect()
            await client.shake_hands(piece_bytes)
            client.tls.write(b"x" * 3_000)
            client.tls.write(b"y")
            await client.send(client.taken(), piece_bytes)
            assert await until(lambda: served.inside[0].received == b"x" * 3_000 + b"y")
            client.close()

    asyncio.run(scenario())


@asynctest
async def test_data_that_comes_with_the_end_of_the_handshake_comes_after_the_beginning(
    authority: Authority,
) -> None:
    async with serving(authority) as served:
        client = HandClient(served)
        await client.connect()
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        await client.send(client.taken())
        await client.receive()
        client.tls.do_handshake()
        client.tls.write(b"at once")
        await client.send(client.taken())  # in one piece
        assert await until(lambda: served.inside[0].received == b"at once")
        assert served.inside[0].calls == ["made"]
        client.close()


@asynctest
async def test_each_direction_ends_alone(authority: Authority) -> None:
    async with serving(authority) as served:
        client = HandClient(served)
        await client.connect()
        await client.shake_hands()
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()  # says its end, and waits for ours
        await client.send(client.taken())
        inside = served.inside[0]
        assert await until(lambda: inside.calls == ["made", "end"])
        inside.transport.write(b"the last word")
        inside.transport.write_eof()
        inside.transport.write(b"too late")
        while await client.receive():
            pass
        assert client.tls.read(100) == b"the last word"
        client.tls.unwrap()  # our end was said, it is no cut
        client.close()
        assert await until(lambda: inside.calls == ["made", "end", "lost"])
        assert inside.error is None


@asynctest
async def test_who_has_ended_hears_the_other_end_and_drops_what_comes_before_it(
    authority: Authority,
) -> None:
    async with serving(authority) as served:
        client = HandClient(served)
        await client.connect()
        await client.shake_hands()
        inside = served.inside[0]
        inside.keeps_open = False
        assert await until(lambda: inside.calls == ["made"])
        inside.transport.write_eof()
        client.tls.write(b"not read any more")
        await client.send(client.taken())
        client.cut()
        assert await until(lambda: inside.calls == ["made", "end", "lost"])
        assert inside.received == b""
        client.close()


@asynctest
async def test_a_cut_is_told_from_an_end(authority: Authority) -> None:
    async with serving(authority) as served:
        client = HandClient(served)
        await client.connect()
        await client.shake_hands()
        client.tls.write(b"whole ")
        whole = client.taken()
        client.tls.write(b"half")
        await client.send(whole + client.taken()[:-1])
        client.cut()
        inside = served.inside[0]
        assert await until(lambda: inside.calls == ["made", "lost"])
        assert inside.received == b"whole "
        assert isinstance(inside.error, CutError)
        client.close()


@pytest.mark.parametrize("position", [0, 3, 5, -1])
def test_one_wrong_bit_ends_the_connection_and_nothing_of_it_is_delivered(
    authority: Authority, position: int
) -> None:
    async def scenario() -> None:
        async with serving(authority) as served:
            client = HandClient(served)
            await client.connect()
            await client.shake_hands()
            client.tls.write(b"publish door open\n")
            forged = bytearray(client.taken())
            forged[position] ^= 1
            await client.send(bytes(forged) + b"x" * 300)
            inside = served.inside[0]
            assert await until(lambda: inside.calls == ["made", "lost"])
            assert inside.received == b""
            assert isinstance(inside.error, ssl.SSLError)
            client.close()

    asyncio.run(scenario())


@asynctest
async def test_nothing_is_delivered_while_reading_is_paused(authority: Authority) -> None:
    async with serving(authority) as served:
        reader, writer = await served.connect()
        inside = served.inside[0]
        inside.data_received = lambda data: (  # type: ignore[method-assign]
            Inside.data_received(inside, data),
            inside.transport.pause_reading(),
        )[0]
        writer.write(b"x" * 100_000)  # several records, most of them in one piece
        taken = 0
        while taken < 100_000:
            assert await until(lambda seen=taken: len(inside.received) > seen)
            assert len(inside.received) - taken <= 16_384  # a record
            assert not inside.transport.is_reading()
            taken = len(inside.received)
            inside.transport.resume_reading()
        writer.close()


@asynctest
async def test_writing_pauses_at_the_first_byte_that_the_socket_refuses(
    authority: Authority,
) -> None:
    async with serving(authority) as served:
        reader, writer = await served.connect()
        writer.transport.pause_reading()
        inside = served.inside[0]
        inside.transport.set_write_buffer_limits(high=0)
        sent = 0
        while "pause" not in inside.calls:
            inside.transport.write(b"x" * 65_536)
            sent += 65_536
            assert sent < 1 << 28
        # No more than the rest of one write waits here.
        assert 0 < inside.transport.get_write_buffer_size() < 70_000
        writer.transport.resume_reading()
        assert len(await reader.readexactly(sent)) == sent
        assert await until(lambda: inside.calls[-1] == "resume")
        assert inside.calls == ["made", "pause", "resume"]
        writer.close()


@asynctest
async def test_another_protocol_may_take_the_connection_over(authority: Authority) -> None:
    async with serving(authority) as served:
        _, writer = await served.connect()
        first, second = served.inside[0], Inside()
        first.data_received = lambda data: first.transport.set_protocol(second)  # type: ignore
        writer.write(b"switch")
        await writer.drain()
        assert await until(lambda: first.transport.get_protocol() is second)
        writer.write(b"new")
        assert await until(lambda: second.received == b"new")
        writer.close()
        assert await until(lambda: "lost" in second.calls or "end" in second.calls)


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"subscribe a\n", b"\x00"]
)
def test_a_client_without_tls_is_told_so_and_counted(authority: Authority, words: bytes) -> None:
    async def scenario() -> None:
        async with serving(authority) as served:
            reader, writer = await asyncio.open_connection(*served.address)
            writer.write(words)
            assert await reader.read() == PLAIN_ANSWER
            writer.close()
            assert served.figures("plain_clients", "handshakes_failed") == [1, 0]
            assert served.inside[0].calls == []
            _, writer = await served.connect()  # others are served
            writer.close()

    asyncio.run(scenario())


@asynctest
async def test_bytes_that_look_like_tls_and_are_none_harm_nobody(authority: Authority) -> None:
    dice = random.Random(1)
    async with serving(authority) as served:
        hello = HandClient(served)
        with pytest.raises(ssl.SSLWantReadError):
            hello.tls.do_handshake()
        good = hello.taken()
        for number in range(60):
            data = bytearray(good)
            for _ in range(dice.randrange(1, 4)):
                data[dice.randrange(1, len(data))] = dice.randrange(256)
            if number % 2:
                data[5:] = dice.randbytes(len(data) - 5)
            reader, writer = await asyncio.open_connection(*served.address)
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(30):
                with suppress(ConnectionError):
                    await reader.read()
            writer.close()
        assert await until(lambda: served.figures("handshakes_failed") == [60])
        assert served.figures("handshakes", "handshakes_waiting") == [0, 0]
        _, writer = await served.connect()
        writer.close()


@asynctest
async def test_who_only_looks_whether_the_port_is_open_is_not_counted(
    authority: Authority,
) -> None:
    async with serving(authority) as served:
        socket.create_connection(served.address).close()
        assert await until(lambda: len(served.inside) == 1)
        assert await until(lambda: served.figures("handshakes_waiting") == [0])
        assert sum(served.port.stats().values()) == 0


HALF_HANDSHAKES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda hello: b"",
    "one byte": lambda hello: hello[:1],
    "half of it": lambda hello: hello[: len(hello) // 2],
    "all of the first part": lambda hello: hello,
}


@pytest.mark.parametrize("part", HALF_HANDSHAKES.values(), ids=HALF_HANDSHAKES)
def test_a_handshake_that_never_ends_is_given_up(
    authority: Authority, part: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_port, "HANDSHAKE_S", 0.05)

    async def scenario() -> None:
        async with serving(authority) as served:
            client = HandClient(served)
            await client.connect()
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.do_handshake()
            sent = part(client.taken())
            await client.send(sent)
            while await client.receive():
                pass
            assert served.figures("handshakes_late", "handshakes_waiting") == [1, 0]
            assert served.inside[0].calls == []
            client.close()

    asyncio.run(scenario())


@asynctest
async def test_a_silent_client_that_may_wait_for_words_gets_some(
    authority: Authority,
) -> None:
    async with serving(authority) as served:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tls_port, "HANDSHAKE_S", 0.05)
            reader, writer = await asyncio.open_connection(*served.address)
            assert await reader.read() == PLAIN_ANSWER
            writer.close()
