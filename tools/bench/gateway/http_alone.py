"""The HTTP side of a gateway alone, a process: its hub returns at once.

    python3 -m tools.bench.gateway.http_alone [PROFILE]

Prints its address, and ends with its standard input; then it writes the profile, if a file is
named.
"""

from __future__ import annotations

import asyncio
import cProfile
import sys
from typing import Any

from jsonbus.gateway.http.access import Access
from jsonbus.gateway.http.app import make_app
from jsonbus.gateway.http.events import EventStreams
from jsonbus.gateway.http.origins import Origins
from jsonbus.gateway.http.server import HttpServer
from jsonbus.gateway.hub import Published
from jsonbus.gateway.services import Services
from tools.bench.worker import write_answer

_DONE = Published(0, True)


class StandIn:
    """A hub without a bus."""

    async def publish(self, topic: str, value: Any, **options: Any) -> Published:
        return _DONE


async def serve() -> None:
    hub: Any = StandIn()
    services = Services(
        hub=hub,
        webhooks=hub,
        event_streams=EventStreams(hub),
        subscribers=lambda: [],
        origins=Origins(is_loopback=True),
        stats=lambda: {},
        access=Access(),
    )
    server = HttpServer(make_app(services))
    await server.start()
    write_answer({"ready": "{}:{}".format(*server.address)})
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.close()


def main() -> None:
    profiles = sys.argv[1:]
    if not profiles:
        asyncio.run(serve())
        return
    with cProfile.Profile() as profile:
        asyncio.run(serve())
    profile.dump_stats(profiles[0])


if __name__ == "__main__":
    main()
