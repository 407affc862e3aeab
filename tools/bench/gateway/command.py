"""Measure the gateway: what durability costs a publish, and what a message costs on its way.

    python3 -m tools.bench gateway              five minutes
    python3 -m tools.bench gateway --quick      once, with little
    python3 -m tools.bench gateway --part bus   that part alone; may be given several times
    python3 -m tools.bench gateway --json gateway.json

Everything runs on loopback, clients, webhook and other nodes as processes beside the gateway. What
is compared runs alternately in each repetition; medians of all, ratios within a repetition.

  publish   32 connections, each publishes and waits for the answer: to a topic without a webhook,
            to one with a webhook whose backlog is in memory, and to one with it on disk.
  http      the same with a hub that returns at once: what HTTP alone costs, by kind of request.
  text      a message to 1,000 text clients, against a bare asyncio server that repeats lines; the
            next one when all have it.
  bus       20,000 messages a second of another node, for text clients, event streams and a webhook,
            against a bare subscriber: a program that gets the same messages from the bus by itself,
            in batches, and counts them. CPU is that of the gateway, or of the program, for each
            message that arrived, whatever the number of clients: that of 100 clients is for 100
            deliveries. The ratio to bare compares these figures within a repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import fastapi  # noqa: F401 - whether it is there

from tools._setup import say
from tools.bench.child import RunError
from tools.bench.gateway.clients import TOPIC, make_requests
from tools.bench.gateway.stage import (
    HTTP,
    LOAD,
    NODES,
    Helper,
    RunningGateway,
    free_port,
    publish,
    running,
    running_gateway,
)

Figures = dict[str, dict[str, float]]

CONNECTIONS = 32
CLIENTS = 1_000
RATE = 20_000
#: How many clients of each kind get what comes from the bus.
FOLLOWERS = (1, 100)
STORES = ("no webhook", "in memory", "on disk")
PARTS = ("publish", "http", "text", "bus")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.bench gateway", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="once, with little")
    parser.add_argument("--part", choices=PARTS, action="append", help="that part alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args(arguments)
    repetitions, seconds, lines = (1, 2.0, 20) if options.quick else (5, 3.0, 100)
    measures: dict[str, Callable[[], Figures]] = {
        "publish": lambda: measure_publish(seconds),
        "http": lambda: measure_http(seconds / 2),
        "text": lambda: measure_text(lines),
        "bus": lambda: measure_bus(int(RATE * seconds / 2)),
    }
    parts = options.part or PARTS
    results: list[dict[str, Figures]] = []
    try:
        for number in range(repetitions):
            say(f"repetition {number + 1} of {repetitions}")
            results.append({part: measures[part]() for part in PARTS if part in parts})
    except RunError as error:
        say(f"failed: {error}")
        return 1
    print(make_report(results))
    if options.json:
        options.json.write_text(json.dumps({"results": results}, indent=2) + "\n")
    return 0


def measure_publish(seconds: float, stores: Sequence[str] = STORES) -> Figures:
    figures: Figures = {}
    for kind in stores:
        with tempfile.TemporaryDirectory(prefix="jsonbus-bench-", dir=".") as folder:
            where = ["--data-dir", folder] if kind == "on disk" else ["--in-memory"]
            with (
                running_gateway(*where) as gateway,
                running(LOAD, "receive", TOPIC) as receiver,
            ):
                if kind != "no webhook":
                    _add_webhook(gateway, receiver)
                cpu_s = gateway.cpu_s
                load = publish(gateway.http, "query", CONNECTIONS, seconds)
                receiver.settle()  # what was acknowledged is to be delivered, which costs, too
                figures[kind] = _rate(load, gateway.cpu_s - cpu_s)
    return figures


def measure_http(seconds: float) -> Figures:
    figures: Figures = {}
    with running(HTTP) as server:
        for kind in make_requests(server.greeting):
            cpu_s = server.cpu_s
            load = publish(server.greeting, kind, CONNECTIONS, seconds)
            figures[kind] = _rate(load, server.cpu_s - cpu_s)
    return figures


def measure_text(lines: int, clients: int = CLIENTS) -> Figures:
    with running_gateway("--in-memory") as gateway:
        through = _talk(gateway, gateway.text, TOPIC, clients, lines)
    with running(LOAD, "repeat") as repeater:
        bare = _talk(repeater, f"127.0.0.1:{repeater.greeting}", "", clients, lines)
    return {"gateway": through, "bare": bare}


def _talk(
    server: RunningGateway | Helper, address: str, topic: str, clients: int, lines: int
) -> dict[str, float]:
    with running(LOAD, "talk", address, topic, clients, lines) as listeners:
        cpu_s = server.cpu_s
        got = listeners.count()
        return {"cpu_us": 1e6 * (server.cpu_s - cpu_s) / got}


def measure_bus(messages: int, followers: Sequence[int] = FOLLOWERS) -> Figures:
    figures: Figures = {"bare subscriber": _flood_subscriber(messages)}
    for clients in followers:
        for kind, name in (("text", "text client"), ("events", "event stream")):
            row = f"{clients} {name}{'s' if clients > 1 else ''}"
            figures[row] = _flood_readers(messages, kind, clients)
    figures["webhook in memory"] = _flood_webhook(messages)
    return figures


def _flood_subscriber(messages: int) -> dict[str, float]:
    port = free_port()
    with running(NODES, "subscribe", port, TOPIC) as subscriber:
        return _flood(port, subscriber, subscriber, messages)


def _flood_readers(messages: int, kind: str, clients: int) -> dict[str, float]:
    with running_gateway("--in-memory") as gateway:
        address = gateway.text if kind == "text" else gateway.http
        with running(LOAD, "read", address, kind, TOPIC, clients) as readers:
            return _flood(gateway.bus_port, gateway, readers, messages, clients)


def _flood_webhook(messages: int) -> dict[str, float]:
    with running_gateway("--in-memory") as gateway, running(LOAD, "receive", TOPIC) as receiver:
        _add_webhook(gateway, receiver)
        return _flood(gateway.bus_port, gateway, receiver, messages)


def _flood(
    port: int, measured: RunningGateway | Helper, sink: Helper, messages: int, copies: int = 1
) -> dict[str, float]:
    """Publish from another node; what came out, and what it took the one in between."""
    with running(NODES, "flood", port, TOPIC, RATE) as flood:
        cpu_s = measured.cpu_s
        flood.ask("publish", count=messages)
        arrived = sink.settle() / copies
        cpu_s = measured.cpu_s - cpu_s
    if not arrived:
        raise RunError("nothing arrived")
    return {"cpu_us": 1e6 * cpu_s / arrived, "arrived": arrived / messages}


def _add_webhook(gateway: RunningGateway, receiver: Helper) -> None:
    url = f"http://127.0.0.1:{receiver.greeting}/"
    gateway.ask("subscribe", topic=TOPIC, subscriberName="bench", url=url)


def _rate(load: dict[str, float], cpu_s: float) -> dict[str, float]:
    return {
        "per_s": load["acknowledged"] / load["seconds"],
        "cpu_us": 1e6 * cpu_s / load["acknowledged"],
        "p50_ms": load["p50_ms"],
        "p99_ms": load["p99_ms"],
    }


def make_report(results: list[dict[str, Figures]]) -> str:
    """Tables of the parts that were measured."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"{len(results)} repetitions, medians"
    ]
    tables = {"publish": _show_rates, "http": _show_rates, "text": _show_text, "bus": _show_bus}
    for part, show in tables.items():
        if part in results[0]:
            lines += ["", *show(part, [each[part] for each in results])]
    return "\n".join(lines)


def _show_rates(part: str, results: list[Figures]) -> list[str]:
    title = f"{part}, {CONNECTIONS} connections"
    lines = [f"{title:<28} answers/s   CPU µs each   p50 ms   p99 ms"]
    for row in results[0]:
        lines.append(
            f"  {row:<24} {_median(results, row, 'per_s'):>11,.0f} "
            f"{_median(results, row, 'cpu_us'):>13.0f} {_median(results, row, 'p50_ms'):>8.1f} "
            f"{_median(results, row, 'p99_ms'):>8.1f}"
        )
    if part == "publish":
        rates = _ratio(results, "on disk", "in memory", "per_s")
        costs = _ratio(results, "on disk", "in memory", "cpu_us")
        lines.append(f"  {'on disk / in memory':<24} {rates:>11.2f} {costs:>13.2f}")
    return lines


def _show_text(part: str, results: list[Figures]) -> list[str]:
    return [
        f"{part}, one line to {CLIENTS:,} clients: CPU µs per client",
        f"  {'gateway':<24} {_median(results, 'gateway', 'cpu_us'):>11.2f}",
        f"  {'bare asyncio server':<24} {_median(results, 'bare', 'cpu_us'):>11.2f}",
        f"  {'ratio':<24} {_ratio(results, 'gateway', 'bare', 'cpu_us'):>11.2f}",
    ]


def _show_bus(part: str, results: list[Figures]) -> list[str]:
    title = f"from the {part}, {RATE:,}/s"
    bare, *_ = results[0]
    lines = [f"{title:<28}   arrived  CPU µs/message  to bare"]
    for row in results[0]:
        lines.append(
            f"  {row:<24} {100 * _median(results, row, 'arrived'):>9.1f} % "
            f"{_median(results, row, 'cpu_us'):>15.1f} {_ratio(results, row, bare, 'cpu_us'):>8.1f}"
        )
    return lines


def _median(results: list[Figures], row: str, name: str) -> float:
    return statistics.median(each[row][name] for each in results)


def _ratio(results: list[Figures], row: str, to: str, name: str) -> float:
    return statistics.median(each[row][name] / each[to][name] for each in results)
