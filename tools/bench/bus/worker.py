"""A publisher or subscriber of one system, as a process: started by run.py with a Spec."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tools.bench.bus.flow import Tally, open_slots
from tools.bench.bus.spec import Spec
from tools.bench.worker import read_commands, run, write_answer

if TYPE_CHECKING:
    from tools.bench.bus.publish import Publisher
    from tools.bench.bus.publish_tasks import AsyncPublisher


class Subscriber(Protocol):
    def run(self, ready: Callable[[], None]) -> None:
        """Subscribe, call `ready`, and handle messages until `stop`."""

    def stop(self) -> None:
        """From another thread."""

    def stats(self) -> dict[str, int]:
        """Once `run` has returned."""


def main() -> None:
    spec = Spec.from_json(sys.argv[1])
    if spec.role == "subscriber":
        _run_subscriber(spec)
        return
    publisher = _module_of(spec.system).make_publisher(spec)
    if hasattr(publisher, "open"):
        import asyncio

        asyncio.run(_run_async_publisher(publisher))
    else:
        _run_publisher(publisher)


def _module_of(system: str) -> Any:
    # Imported on demand: a subscriber's memory is measured, and must be that of its system alone.
    if system == "jsonbus-aio":
        from tools.bench.bus import jsonbus_tasks

        return jsonbus_tasks
    if system.startswith("jsonbus"):
        from tools.bench.bus import jsonbus_threads

        return jsonbus_threads
    if system.startswith(("raw", "bare")):
        from tools.bench.bus import floor

        return floor
    from tools.bench.bus import peers

    return peers


def _run_publisher(publisher: Publisher) -> None:
    write_answer({"ready": True})
    for command in read_commands():
        ask = command.pop("ask")
        if ask == "close":
            publisher.close()
            write_answer({"stats": publisher.stats()})
            return
        if ask == "means":
            write_answer({"means": publisher.means()})
        else:
            write_answer(getattr(publisher, ask)(**command))


async def _run_async_publisher(publisher: AsyncPublisher) -> None:
    import asyncio

    await publisher.open()
    write_answer({"ready": True})
    commands = read_commands()
    while (command := await asyncio.to_thread(next, commands, None)) is not None:
        ask = command.pop("ask")
        if ask == "close":
            await publisher.close()
            write_answer({"stats": publisher.stats()})
            return
        if ask == "means":
            write_answer({"means": publisher.means()})
        else:
            write_answer(await getattr(publisher, ask)(**command))


def _run_subscriber(spec: Spec) -> None:
    slots = open_slots(spec.slots_fd, spec.subscribers)
    tally = Tally(
        slots, spec.index, spec.window, has_stamps=spec.has_stamps, handler_us=spec.handler_us
    )
    if spec.switch_interval_s is not None:
        sys.setswitchinterval(spec.switch_interval_s)
    subscriber: Subscriber = _module_of(spec.system).make_subscriber(spec, tally)
    threading.Thread(target=_obey, args=(subscriber, tally), daemon=True).start()
    if spec.is_busy:
        _run_beside_work(subscriber)
    else:
        subscriber.run(_tell_ready)
    write_answer({"stats": subscriber.stats(), **tally.report()})


def _run_beside_work(subscriber: Subscriber) -> None:
    """Handle messages while the main thread computes, as in a program with work of its own."""
    thread = threading.Thread(target=subscriber.run, args=(_tell_ready,))
    thread.start()
    total = 0
    while thread.is_alive():
        for number in range(1000):
            total += number * number


def _tell_ready() -> None:
    write_answer({"ready": True})


def _obey(subscriber: Subscriber, tally: Tally) -> None:
    for command in read_commands():
        if command["ask"] == "begin":
            tally.begin(command["expected"])
            write_answer({})
        elif command["ask"] == "report":
            write_answer(tally.report())
        else:
            subscriber.stop()
            return


if __name__ == "__main__":
    run(main)
