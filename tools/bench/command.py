"""What the larger benchmarks have in common: options, the order of their parts, the report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from tools._setup import say
from tools.bench.child import RunError
from tools.bench.measures import Measure, Sample
from tools.bench.report import Row, as_dict, make_rows, make_summary, make_table


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
