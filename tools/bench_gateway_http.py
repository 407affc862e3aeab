"""Requests per second and CPU time per /publish of the gateway's HTTP side alone.

The hub is a stand-in that returns at once, so what is measured is HTTP: uvicorn, FastAPI's
routing and ours. A generator in a process of its own keeps `--connections` busy, one request at a
time each.

    python tools/bench_gateway_http.py [--seconds 3] [--connections 32] [--parser httptools|h11]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

GET = (
    b"GET /publish?topic=sensors%2Fkitchen&message=21.5 HTTP/1.1\r\nHost: localhost:8080\r\n"
    b"User-Agent: bench\r\nAccept: */*\r\n\r\n"
)
_BODY = b'{"topic":"sensors/kitchen","message":{"temp":21.5}}'
_FORM = b"topic=sensors%2Fkitchen&message=21.5"
POST = (
    b"POST /publish HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: bench\r\nAccept: */*\r\n"
    b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
)
REQUESTS = {
    "query": GET,
    "json": POST % (b"application/json", len(_BODY), _BODY),
    "form": POST % (b"application/x-www-form-urlencoded", len(_FORM), _FORM),
    "value": b"POST /v1/topics/sensors/kitchen HTTP/1.1\r\nHost: localhost:8080\r\n"
    b"Content-Type: application/json\r\nContent-Length: 13\r\n\r\n" + b'{"temp":21.5}',
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parser", choices=["httptools", "h11"], action="append")
    parser.add_argument("--request", choices=sorted(REQUESTS), action="append")
    parser.add_argument("--token", action="store_true", help="ask for a token")
    parser.add_argument("--load", metavar="PORT", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--profile", help="write a profile of the server to this file")
    options = parser.parse_args()
    if options.load is not None:
        asyncio.run(_load(options))
        return
    for kind in options.parser or ["httptools", "h11"]:
        for request in options.request or list(REQUESTS):
            rows = [asyncio.run(_measure(options, kind, request)) for _ in range(options.runs)]
            rates, costs = zip(*rows, strict=True)
            print(
                f"{kind:10} {request:6} {statistics.median(rates):8,.0f} requests/s "
                f"(of {options.runs}: {min(rates):,.0f} to {max(rates):,.0f}), "
                f"CPU {statistics.median(costs):5.1f} µs per request (least {min(costs):.1f})"
            )


async def _measure(options: argparse.Namespace, kind: str, request: str) -> tuple[float, float]:
    from jsonbus.gateway.http_server import HttpServer

    server = HttpServer(_make_app(options.token), parser=kind)
    await server.start()
    profile = _start_profile(options.profile)
    arguments = [
        *("--load", str(server.address[1]), "--seconds", str(options.seconds)),
        *("--connections", str(options.connections), "--request", request),
        *(["--token"] if options.token else []),
    ]
    began_at, requests = time.process_time(), server.stats()["requests"]
    load = await asyncio.create_subprocess_exec(
        sys.executable, __file__, *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await load.communicate()
    cpu_s = time.process_time() - began_at
    requests = server.stats()["requests"] - requests
    if profile is not None:
        profile.disable()
        profile.dump_stats(options.profile)
    await server.close()
    rate, wrong = output.split()
    assert wrong == b"0", f"{wrong.decode()} answers were not 200"
    return float(rate), cpu_s / requests * 1e6


def _start_profile(path: str | None) -> Any:
    if path is None:
        return None
    import cProfile

    profile = cProfile.Profile()
    profile.enable()
    return profile


def _make_app(has_token: bool) -> Any:
    from jsonbus.gateway.access import Access, read_token
    from jsonbus.gateway.app import make_app
    from jsonbus.gateway.event_streams import EventStreams
    from jsonbus.gateway.hub import Published
    from jsonbus.gateway.services import Services
    from jsonbus.gateway.visitors import Visitors

    done = Published(0, True)

    class Hub:
        async def publish(self, topic: str, value: Any, **options: Any) -> Published:
            return done

    hub: Any = Hub()
    return make_app(
        Services(
            hub=hub,
            webhooks=hub,
            event_streams=EventStreams(hub),
            subscribers=lambda: [],
            visitors=Visitors(is_loopback=True),
            stats=lambda: {},
            access=Access([read_token("publish=secret")] if has_token else []),
        )
    )


class _Connection(asyncio.Protocol):
    """Sends a request whenever the answer to the last one is complete."""

    answers = 0
    wrong = 0
    is_over = False

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._input = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._input += data
        end = self._input.find(b"\r\n\r\n")
        if end < 0:
            return
        start = self._input.index(b"content-length: ") + 16
        length = int(self._input[start : self._input.index(b"\r\n", start)])
        if len(self._input) < end + 4 + length:
            return
        _Connection.wrong += not self._input.startswith(b"HTTP/1.1 200")
        _Connection.answers += 1
        self._input = self._input[end + 4 + length :]
        if not _Connection.is_over:
            self._transport.write(self._request)


async def _load(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    request = REQUESTS[options.request[0]]
    if options.token:
        request = request.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer secret\r\n\r\n", 1)
    transports = []
    for _ in range(options.connections):
        transport, _ = await loop.create_connection(
            lambda: _Connection(request), "127.0.0.1", options.load
        )
        transports.append(transport)
    await asyncio.sleep(0.3)
    began_at, answers = time.perf_counter(), _Connection.answers
    await asyncio.sleep(options.seconds)
    rate = (_Connection.answers - answers) / (time.perf_counter() - began_at)
    _Connection.is_over = True
    print(rate, _Connection.wrong)
    for transport in transports:
        transport.close()


if __name__ == "__main__":
    main()
