"""Names to addresses, in threads that nobody waits for.

`loop.getaddrinfo` would use the loop's few default threads: some names whose server is silent
block all of them for ten seconds and more, other names' look-ups with them, and the program's end,
which waits for these threads. Here each look-up has a thread of its own, which a program that ends
leaves behind; a bound keeps a flood of names from becoming a flood of threads.
"""

from __future__ import annotations

import asyncio
import socket
import threading

#: Each waits for a name server that is silent; the others still find a thread.
THREADS_MAX = 64


class NameLookup:
    """Looks names up; to be called in one event loop."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._slots = asyncio.Semaphore(threads_max)
        self._running: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of a host, the best first; raises OSError if there are none.

        Who asks for a name that is being looked up gets the same answer.
        """
        while (future := self._running.get((host, port))) is None:
            await self._slots.acquire()
            if (host, port) in self._running:  # somebody else began while this one waited
                self._slots.release()
                continue
            self._start(host, port)
        # Shielded: one who gives up must not take the answer from the others.
        return list(await asyncio.shield(future))

    def _start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str]] = loop.create_future()
        self._running[host, port] = future

        def finish(result: list[str] | OSError) -> None:
            self._slots.release()
            del self._running[host, port]
            if isinstance(result, OSError):
                future.set_exception(result)
                future.exception()  # it is no news if all who asked gave up
            else:
                future.set_result(result)

        def look_up() -> None:
            result = _look_up(host, port)
            try:
                loop.call_soon_threadsafe(finish, result)
            except RuntimeError:
                pass  # the loop is closed: nobody waits

        try:
            threading.Thread(target=look_up, name="gateway-dns", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads
            finish(OSError(f"{host} cannot be looked up: {error}"))


def _look_up(host: str, port: int) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:  # a label that is too long for the codec behind getaddrinfo
        return OSError(f"{host} is not a host name")
    return [str(address[0]) for *_, address in found]
