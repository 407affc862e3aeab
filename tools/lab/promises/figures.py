"""The table at the end of a run, and the promises that were broken."""

from __future__ import annotations

from collections import Counter

from tools.lab.promises.judges import PROMISES
from tools.lab.promises.record import Record

#: How much is shown of a promise that is broken often.
SHOWN_MAX = 10


#: What is done to hosts and network, by the kind of the fault.
FAULTS = {
    "burst": "bursts of misfortune",
    "split": "splits of the network",
    "deaf": "hosts deaf",
    "link": "interfaces down",
    "stop": "processes stopped",
    "terminate": "restarts after SIGTERM",
    "kill": "restarts after SIGKILL",
}


def in_words(counts: Counter[str]) -> str:
    """Return how many faults of each kind there were."""
    return ", ".join(f"{counts[kind]} {what}" for kind, what in FAULTS.items() if counts[kind])


def broken(record: Record) -> dict[str, list[str]]:
    """Return what is broken of each promise, in words."""
    return {promise: list(judge(record)) for promise, judge in PROMISES.items()}


def table(record: Record, counts: Counter[str], relay: dict[str, int]) -> list[tuple[str, int]]:
    """Return the figures of a run, and what they count."""
    seen = {each.number for each in record.sightings if not each.is_repair}
    lives = record.lives.values()
    reliable = sum(record.life_of(each).is_reliable for each in record.publications)
    return [
        ("messages given to publishers", len(record.publications)),
        ("of them reliable", reliable),
        ("of them seen on the wire", len(seen)),
        ("published in calm", len(_in_calm(record))),
        ("deliveries", sum(len(life.deliveries) for life in lives)),
        ("gaps told", sum(len(life.gaps) for life in lives)),
        ("messages counted by them", sum(_count_missing(record))),
        ("datagrams sent", counts["datagrams"]),
        ("NAKs", counts["jsonbus.nak"]),
        ("datagrams of repairs", counts["jsonbus.repair"]),
        ("messages in them", sum(each.is_repair for each in record.sightings)),
        ("copies lost", relay["lost"]),
        ("copies kept from the other part", relay["cut"]),
        ("copies repeated", relay["repeated"]),
        ("copies delayed", relay["delayed"]),
        *((what, counts[kind]) for kind, what in FAULTS.items()),
        ("processes in all", len(record.lives)),
    ]


def _in_calm(record: Record) -> list[int]:
    return [
        each.number
        for each in record.publications
        if any(calm.since <= each.fed_at <= calm.until for calm in record.calms)
    ]


def _count_missing(record: Record) -> list[int]:
    return [gap.last - gap.first + 1 for life in record.subscribers for gap in life.gaps]


def write(figures: list[tuple[str, int]], faults: dict[str, list[str]]) -> str:
    """Return figures and promises as lines for people."""
    width = max(len(f"{count:,}") for _, count in figures)
    lines = [f"{count:>{width},}  {what}" for what, count in figures]
    for promise, found in faults.items():
        lines.append(f"{len(found):>{width},}  times broken: {promise}")
        lines += [f"{'':{width}}  - {each}" for each in found[:SHOWN_MAX]]
    return "\n".join(lines)
