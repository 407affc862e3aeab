"""Options, the order of parts, and the report of the larger benchmarks.

Samples become tables: medians, spread, ratios, and whether the targets are met. A ratio is taken
within each repetition, to the floor of that repetition; then the median counts. On a busy machine
both sides of it are hit by the same troubles.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools._setup import say
from tools.bench.child import RunError
from tools.bench.measures import Measure, Sample, Target

#: Further columns, by the key in a sample's `extra`.
COLUMNS = {
    "publisher_us": "publisher µs",
    "subscriber_us": "each subscriber µs",
    "wall_us": "wall µs",
    "switches": "each subscriber's waits",
    "mb_s": "MB/s",
    "sender_us": "sender's CPU µs",
    "receiver_us": "receiver's CPU µs",
    "sender_mb": "sender's peak MB",
    "receiver_mb": "receiver's peak MB",
    "floor_us": "a dict and orjson µs",
    "bare_ms": "bare receiver ms",
    "datagrams_s": "datagrams/s",
    "jvm_s": "JVM",
    "driver_s": "driver",
    "workers_s": "Python workers",
    "bridge_s": "bridge",
    "cpu_ms": "CPU ms",
    "lost": "lost",
    "dropped": "dropped",
    "kernel_drops": "kernel drops",
}

#: The same for columns of words.
TEXTS = {"means": "datagrams", "commonest": "the commonest"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    name: str
    values: list[float]
    ratios: dict[str, list[float]]  # by floor
    target: Target | None
    extra: dict[str, float]  # medians
    received: str | None
    texts: dict[str, str]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def ratio(self, floor: str) -> float | None:
        ratios = self.ratios.get(floor)
        return statistics.median(ratios) if ratios else None

    @property
    def is_met(self) -> bool | None:
        """None: there is nothing to meet, or nothing to compare with."""
        if self.target is None:
            return None
        if not self.target.is_ratio:
            return self.target.is_met_by(self.median)
        ratio = self.target_ratio
        return None if ratio is None else self.target.is_met_by(ratio)

    @property
    def target_ratio(self) -> float | None:
        """What the target is about, if it is about a ratio."""
        if self.target is None or not self.target.is_ratio:
            return None
        return self.ratio(self.target.floor or next(iter(self.ratios)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "row": self.name,
            "median": self.median,
            "least": min(self.values),
            "most": max(self.values),
            "values": self.values,
            "ratios": {floor: self.ratio(floor) for floor in self.ratios},
            "target": str(self.target) if self.target else None,
            "is_met": self.is_met,
            "received": self.received,
            **self.extra,
            **self.texts,
        }


def make_rows(samples: Sequence[Sample], measures: dict[str, Measure]) -> dict[str, list[Row]]:
    """Return the rows of each measure, in the order in which they were first measured."""
    grouped: dict[str, dict[str, list[Sample]]] = {}
    for sample in samples:
        grouped.setdefault(sample.measure, {}).setdefault(sample.row, []).append(sample)
    return {
        measure: [_make_row(measures[measure], name, rows) for name in rows]
        for measure, rows in grouped.items()
    }


def as_dict(rows: dict[str, list[Row]], measures: dict[str, Measure]) -> dict[str, Any]:
    """Return everything, for `--json`."""
    return {
        name: {
            "title": measures[name].title,
            "unit": measures[name].unit,
            "rows": [row.as_dict() for row in rows[name]],
        }
        for name in rows
    }


def make_table(measure: Measure, rows: list[Row]) -> str:
    """Return one measure as a Markdown table, aligned for a terminal."""
    floors = [floor for floor in measure.floors if any(row.name == floor for row in rows)]
    columns = [key for key in COLUMNS if any(key in row.extra for row in rows)]
    has_received = any(row.received for row in rows)
    has_targets = any(row.target for row in rows)
    texts = [key for key in TEXTS if any(key in row.texts for row in rows)]
    header = ["", measure.unit, "min – max", *(COLUMNS[key] for key in columns)]
    header += ["received"] * has_received + [f"× {floor}" for floor in floors]
    header += ["target", ""] * has_targets + [TEXTS[key] for key in texts]
    lines = [header]
    for row in rows:
        line = [row.name, _number(row.median), f"{_number(min(row.values))} – "]
        line[-1] += _number(max(row.values))
        line += [_number(row.extra[key]) if key in row.extra else "" for key in columns]
        line += [row.received or ""] * has_received
        for floor in floors:
            ratio = row.ratio(floor)
            line.append("" if ratio is None else f"{ratio:.2f}")
        if has_targets:
            line += [str(row.target or ""), _MARKS[row.is_met]]
        line += [row.texts.get(key, "") for key in texts]
        lines.append(line)
    return f"### {measure.title}\n\n{markdown(lines)}"


def make_summary(rows: dict[str, list[Row]], measures: dict[str, Measure]) -> str:
    """Return a table of all targets. If all rows share a target, the worst row is shown."""
    lines = [["target", "", "measured", "at most or least", ""]]
    for name, measure in measures.items():
        judged = [row for row in rows.get(name, []) if row.is_met is not None]
        if measure.target is not None and judged:
            judged = [max(judged, key=lambda row: row.median)]
        for row in judged:
            assert row.target is not None
            ratio = row.target_ratio
            shown = f"{_number(row.median)} {measure.unit}"
            if ratio is not None:
                shown = f"{ratio:.2f} × that of {row.target.floor or measure.floors[0]}"
            lines.append([measure.title, row.name, shown, str(row.target), _MARKS[row.is_met]])
    return f"### Targets\n\n{markdown(lines)}" if len(lines) > 1 else ""


_MARKS = {True: "✓", False: "✗", None: ""}


def _make_row(measure: Measure, name: str, rows: dict[str, list[Sample]]) -> Row:
    samples = rows[name]
    values = [sample.value for sample in samples]
    ratios = {}
    for floor in measure.floors:
        pairs = zip(values, (each.value for each in rows.get(floor, [])), strict=False)
        ratios[floor] = [value / of_floor for value, of_floor in pairs if of_floor > 0]
    extra = {
        key: statistics.median(sample.extra[key] for sample in samples)
        for key in COLUMNS
        if all(key in sample.extra for sample in samples)
    }
    received = None
    if all("received" in sample.extra for sample in samples):
        got = sum(sample.extra["received"] for sample in samples)
        sent = sum(sample.extra["sent"] for sample in samples)
        received = "all" if got == sent else f"{got:,} of {sent:,}"
    texts = {key: str(samples[-1].extra[key]) for key in TEXTS if samples[-1].extra.get(key)}
    return Row(name, values, ratios, measure.target_of(name), extra, received, texts)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def markdown(lines: list[list[str]]) -> str:
    """Return lines, the first of which is the header, as a table aligned for a terminal."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]

    def write(line: list[str]) -> str:
        # Words to the left, figures to the right.
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return f"| {' | '.join(cells)} |"

    rule = [f"{'-' * (widths[0] + 2)}", *(f"{'-' * (width + 1)}:" for width in widths[1:])]
    return "\n".join([write(lines[0]), f"|{'|'.join(rule)}|", *map(write, lines[1:])])


def make_parser(name: str, text: str, parts: Collection[str]) -> argparse.ArgumentParser:
    """A parser with `--only`, `--quick`, `--here` and `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"python3 -m tools.bench {name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ",".join(parts)
    add = parser.add_argument
    add("--only", metavar="NAMES", default=names, help=f"some of {names}")
    add("--quick", action="store_true", help="one repetition, little of everything")
    add("--here", action="store_true", help="no network namespace")
    add("--json", metavar="FILE", type=Path, help="all figures, as JSON")
    return parser


def parse(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    known: dict[str, Collection[str]],
    at_least: dict[str, int],
) -> argparse.Namespace:
    """Parse; lists must have `known` names, and numbers must reach `at_least`."""
    options = parser.parse_args(arguments)
    for option, names in known.items():
        chosen = [each for each in getattr(options, option).split(",") if each]
        setattr(options, option, chosen)
        for name in chosen:
            if name not in names:
                parser.error(f"--{option} knows {','.join(names)}, not {name!r}")
    for option, least in at_least.items():
        value = getattr(options, option)
        if value is not None and value < least:
            parser.error(f"--{option} is at least {least}")
    return options


def run_parts(
    names: Iterable[str], measure: Callable[[str], Iterable[Sample]]
) -> list[Sample] | None:
    """Measure one part after the other; None if one failed. Ctrl-C keeps what was measured."""
    samples: list[Sample] = []
    try:
        for name in names:
            samples.extend(measure(name))
    except RunError as error:
        say(f"failed: {error}")
        return None
    except KeyboardInterrupt:
        say("interrupted: what was measured follows")
    return samples


def make_report(
    facts: dict[str, str], samples: Sequence[Sample], measures: dict[str, Measure]
) -> str:
    """The facts that figures depend on, a table for each measure, and the targets."""
    rows = make_rows(samples, measures)
    parts = [", ".join(f"{name} {fact}" for name, fact in facts.items())]
    parts += [make_table(measures[name], rows[name]) for name in rows]
    parts.append(make_summary(rows, measures))
    return "\n\n".join(part for part in parts if part)


def write_json(
    path: Path | None,
    rows: dict[str, list[Row]],
    measures: dict[str, Measure],
    **facts: dict[str, str],
) -> None:
    """Write all figures, if a file was named."""
    if path is not None:
        result = {**facts, "measures": as_dict(rows, measures)}
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
