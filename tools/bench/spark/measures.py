"""The measures of the Spark side with their targets, and the table of spark_bridge/README.md."""

from __future__ import annotations

from tools.bench.measures import Measure, Target
from tools.bench.report import Row

OURS = "jsonbus"

MEASURES: dict[str, Measure] = {
    "flow-rate": Measure(
        "rows per second into the sink noop, ten columns, 600,000 rows a batch",
        "rows/s",
        ("rate source",),
        {OURS: Target(1.0, is_at_least=True)},
    ),
    "flow-cpu": Measure(
        "CPU of Spark and its Python per million rows",
        "s",
        ("rate source",),
        {OURS: Target(5.0, is_ratio=False)},
    ),
    "flow-per-cpu": Measure(
        "rows per CPU second of all processes, the bridge included",
        "rows",
        ("JSON files", "socket source"),
        {OURS: Target(4.0, is_at_least=True)},
    ),
    "flow-bridge": Measure(
        "CPU of the bridge per million rows read",
        "s",
        targets={"bridge": Target(0.2, is_ratio=False)},
    ),
    "parquet": Measure(
        "rows per second into Parquet",
        "rows/s",
        ("into noop",),
        {"into Parquet": Target(0.45, is_at_least=True)},
    ),
    "trigger": Measure("a batch of 20 rows, median", "ms", ("rate source",), {OURS: Target(1.3)}),
    "latency-p50": Measure(
        "from publish to foreachBatch at 1,000 messages/s, median",
        "ms",
        ("socket source",),
        {OURS: Target(1.25)},
    ),
    "latency-p95": Measure(
        "from publish to foreachBatch at 1,000 messages/s, 95th percentile",
        "ms",
        ("socket source",),
    ),
    "latency-p99": Measure(
        "from publish to foreachBatch at 1,000 messages/s, 99th percentile",
        "ms",
        ("socket source",),
    ),
    "idle": Measure(
        "CPU with nothing to do, as a share of a core",
        "of a core",
        targets={"the query": Target(0.03, is_ratio=False)},
    ),
    "recorder-rate": Measure(
        "messages recorded per second, flood from one process",
        "messages/s",
        ("bare subscriber",),
        {"bridge": Target(0.7, is_at_least=True)},
    ),
    "recorder-cpu": Measure("CPU per message of who receives", "µs", ("bare subscriber",)),
    "range-cpu": Measure(
        "CPU of the bridge to send 100,000 rows",
        "ms",
        ("start of a small log",),
        target=Target(1.2),
    ),
    "range-time": Measure(
        "time to read 100,000 rows", "ms", ("start of a small log",), target=Target(1.2)
    ),
}

#: What the README shows of them: the measure, the row of ours, and the row beside it.
SHOWN = (
    ("flow-rate", OURS, "rate source"),
    ("flow-cpu", OURS, "rate source"),
    ("flow-per-cpu", OURS, "JSON files"),
    ("flow-per-cpu", OURS, "socket source"),
    ("flow-bridge", "bridge", None),
    ("parquet", "into Parquet", "into noop"),
    ("trigger", OURS, "rate source"),
    ("latency-p50", OURS, "socket source"),
    ("latency-p99", OURS, "socket source"),
    ("idle", "the query", None),
    ("recorder-rate", "bridge", "bare subscriber"),
    ("recorder-cpu", "bridge", "bare subscriber"),
    ("range-cpu", "end of a log 100 times larger", "start of a small log"),
)
TABLE = "the Spark side"
TABLE_HEADER = ("measure", "bridge and source", "beside it", "that is", "ratio", "to reach")


def make_readme_table(rows: dict[str, list[Row]], measures: dict[str, Measure] = MEASURES) -> str:
    """The main figures between the README's markers; only of what was measured."""
    lines = [f"<!-- table: {TABLE} -->", f"| {' | '.join(TABLE_HEADER)} |"]
    lines.append("|---|" + "---:|" * (len(TABLE_HEADER) - 1))
    for name, ours, beside in SHOWN:
        found = {row.name: row for row in rows.get(name, [])}
        if ours not in found:
            continue
        row, other = found[ours], found.get(beside or "")
        ratio = row.ratio(beside) if beside else None
        unit = measures[name].unit
        lines.append(
            f"| {measures[name].title} | {figure(row.median)} {unit}"
            f" | {f'{figure(other.median)} {unit}' if other else ''} | {beside or ''}"
            f" | {'' if ratio is None else f'{ratio:.2f}'} | {_reached(row, beside)} |"
        )
    return "\n".join([*lines, "<!-- end of table -->"])


def figure(value: float) -> str:
    """With as many digits as are worth something."""
    if abs(value) >= 10_000:
        return f"{round(value, -3):,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 0.1 else f"{value:.2f}"


def _reached(row: Row, beside: str | None) -> str:
    """The target, and whether it was; only beside the row that it is about."""
    if row.target is None or row.is_met is None:
        return ""
    if row.target.is_ratio and (row.target.floor or next(iter(row.ratios))) != beside:
        return ""
    return f"{row.target} {'✓' if row.is_met else '✗'}"
