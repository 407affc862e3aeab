"""Simulate a bus: the production core under a virtual clock, on a random network.

    python3 tools/simulate.py --nodes 1000 --loss 0.05 --mode delayed --seed 7
        nodes join a group of 1,000 one after the other: what each join costs, and the figures
    python3 tools/simulate.py --mass-start 1000
        1,000 nodes that know nothing start within a second
    python3 tools/simulate.py --seeds 10000 --jobs 2
        10,000 random histories, every invariant checked: 2,500 of each mode, in two processes
    python3 tools/simulate.py --seeds 10000 --channels
        the same, and all along nodes open channels to each other
    python3 tools/simulate.py --seeds 100 --sealed
        histories of a sealed bus, with an attacker on its network
    python3 tools/simulate.py --seeds 40 --family large
        histories of 50 to 200 nodes, of which whole groups are cut off; --family long: an hour of
        simulated time each, with restarts every few seconds
    python3 tools/simulate.py --seconds 60 --seed 123456
        as many as begin within a minute, from that seed on
    python3 tools/simulate.py --seeds 1 --seed 17 --mode mixed --trace
        one history again, every step of it
    python3 tools/simulate.py --shrink --seed 17 --mode mixed
        a broken history cut down to a short scenario, as a test to paste into test_stories.py;
        with --channels if it had them, with --seconds 60 the shortest that a minute finds
    python3 tools/simulate.py --table
        the table of jsonbus/core/README.md: half an hour, nearly all of it for 10,000 nodes

The same arguments give the same run, to the last datagram. Exit code 1: an invariant broke.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from _setup import ROOT, set_up

sys.path.insert(0, str(ROOT))

try:
    from simulate_histories import Batch, run_and_report, run_history

    from jsonbus.sim.experiments import (
        TABLE_HEADER,
        Join,
        LateJoins,
        measure_late_joins,
        measure_mass_start,
    )
    from jsonbus.sim.plan import FAMILIES, MODES, draw_plan
    from jsonbus.sim.report import TRACE_HEADER, TRACE_LEGEND, Trace, markdown_table
    from jsonbus.sim.shrink import Shrinker, record, to_python
except ModuleNotFoundError:  # run by a Python without the dependencies: fetch them once
    if __name__ != "__main__":
        raise
    sys.exit(subprocess.run([str(set_up()), *sys.argv]).returncode)

TABLE_JOINS = {10: 200, 100: 100, 1_000: 20, 10_000: 3}
TABLE_LOSSES = (0.0, 0.01, 0.05)

JOINS_LEGEND = """\
    time        virtual seconds at which the node joined
    shares      full lists sent in answer, however many datagrams each took
    repairs     lists of what still differed
    datagrams   of all shares, repairs and announcements
    complete    milliseconds from the first announcement until the joiner's list was the group's
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    if options.table:
        return _run_table(options)
    if options.shrink:
        return _run_shrinker(options)
    if options.seeds or options.seconds:
        return _run_histories(options)
    if options.mass_start:
        return _run_mass_start(options)
    return _run_joins(options)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="nodes of the group (100)")
    parser.add_argument("--loss", type=float, metavar="P", help="share of datagrams lost (0)")
    parser.add_argument("--mode", choices=MODES, help="(delayed; of histories: all in turn)")
    parser.add_argument("--seed", type=int, default=0, help="the (first) seed (0)")
    parser.add_argument("--joins", type=int, default=10, metavar="N", help="late joins (10)")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="run N random histories in all: the modes take turns"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="run histories, cut, for so long"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (one per processor)")
    parser.add_argument(
        "--family", choices=FAMILIES, help="few nodes, many, or few for an hour (small)"
    )
    parser.add_argument("--channels", action="store_true", help="histories with channels, too")
    parser.add_argument("--sealed", action="store_true", help="of a sealed bus, with an attacker")
    parser.add_argument("--mass-start", type=int, metavar="N", help="start N nodes within 1 s")
    parser.add_argument("--table", action="store_true", help="the README's table, in Markdown")
    parser.add_argument("--trace", action="store_true", help="print every step of a history")
    parser.add_argument("--shrink", action="store_true", help="cut a broken history down")
    options = parser.parse_args(arguments)
    if options.loss is not None and not 0 <= options.loss < 1:
        parser.error("--loss is a share from 0 up to, but not including, 1")
    if options.shrink and options.mode is None:
        parser.error("--shrink needs --mode")
    has_histories = options.seeds or options.seconds or options.shrink
    if options.family and not has_histories:
        parser.error("--family is for histories: it needs --seeds, --seconds or --shrink")
    options.family = options.family or "small"
    if (options.channels or options.sealed) and options.family != "small":
        parser.error("--channels and --sealed are for histories of the family small")
    if options.channels and options.sealed:
        parser.error("--channels and --sealed are for different histories")
    if options.mode in ("basic", "mixed") and not has_histories:
        parser.error(f"nobody waits for lists in mode {options.mode}: it is for histories")
    return options


def _run_joins(options: argparse.Namespace) -> int:
    nodes, loss, mode = options.nodes or 100, options.loss or 0.0, options.mode or "delayed"
    print(f"{options.joins} late joins, {nodes:,} nodes, mode {mode}, {loss:.1%} of datagrams")
    print(f"lost, one-way delay 0.1 to 5 ms, seed {options.seed}\n\n{JOINS_LEGEND}")
    print(f"{'time':>8} {'shares':>8} {'repairs':>8} {'datagrams':>10} {'complete':>9}")
    started_at = time.monotonic()
    result = measure_late_joins(nodes, loss, options.joins, options.seed, mode, _print_join)
    took_s = time.monotonic() - started_at
    print(f"\n{markdown_table(TABLE_HEADER, [result.row()])}\n")
    print("\n".join(result.tally.rows()))
    print(f"\nsimulated in {took_s:.1f} s")
    return 0


def _print_join(join: Join) -> None:
    complete = "unserved" if join.complete_s is None else f"{1000 * join.complete_s:.1f}"
    print(
        f"{join.at:>8.3f} {join.shares:>8} {join.repairs:>8} {join.datagrams:>10} {complete:>9}",
        flush=True,
    )


def _run_mass_start(options: argparse.Namespace) -> int:
    nodes, loss, mode = options.mass_start, options.loss or 0.0, options.mode or "delayed"
    print(f"{nodes:,} nodes start within 1 s, mode {mode}, {loss:.1%} lost, seed {options.seed}\n")
    result = measure_mass_start(nodes, loss, options.seed, mode)
    print(f"shares                {result.tally.shares:,}")
    print(f"repairs               {result.tally.repairs:,}")
    print(f"all lists complete    {_seconds(result.agreed_s)}")
    print(f"all nodes sure        {_seconds(result.sure_s)}\n")
    print("\n".join(result.tally.rows()))
    return 0


def _run_histories(options: argparse.Namespace) -> int:
    batch = Batch(
        first_seed=options.seed,
        modes=(options.mode,) if options.mode else MODES,
        count=options.seeds,
        seconds=options.seconds,
        nodes=options.nodes,
        loss=options.loss,
        has_channels=options.channels,
        family=options.family,
        is_sealed=options.sealed,
    )
    if options.trace:
        return _trace_histories(batch)
    jobs = options.jobs or os.cpu_count() or 1
    return run_and_report(batch, min(jobs, batch.count or jobs))


def _trace_histories(batch: Batch) -> int:
    """Print every step, one history after the other; stop at the first that breaks."""
    for number in range(batch.count or 1):
        plan = batch.plan(number)
        print(f"{plan}\n\n{TRACE_LEGEND}\n{TRACE_HEADER}")
        outcome = run_history(plan, (Trace(print),))
        if outcome.promise:
            print(f"broken: {outcome.detail}\nrepeat: {plan.command}")
            return 1
    print("no invariant broken")
    return 0


def _run_shrinker(options: argparse.Namespace) -> int:
    plan = draw_plan(
        options.seed,
        options.mode,
        options.nodes,
        options.loss,
        has_channels=options.channels,
        family=options.family,
        is_sealed=options.sealed,
    )
    broken = record(plan)
    if broken is None:
        print("no invariant broken: there is nothing to cut")
        return 0
    print(f"# {len(broken.steps)} steps: {textwrap.shorten(broken.story, 300)}", file=sys.stderr)
    shrinker = Shrinker(broken, _progress)
    try:
        with _interrupted_after(options.seconds):
            shrinker.shrink()
        ended = "nothing more can be left out"
    except KeyboardInterrupt:
        ended = "the shortest so far"
    _progress("")
    best = shrinker.best
    print(f"# {len(best.steps)} steps, {ended}", file=sys.stderr)
    print(_formatted(to_python(best)), end="")
    return 1


@contextmanager
def _interrupted_after(seconds: float | None) -> Iterator[None]:
    """Do as if somebody pressed Ctrl-C then."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _formatted(source: str) -> str:
    """Return it as the project formats its sources, if the formatter is installed."""
    command = [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename=story.py"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, cwd=ROOT)
    return result.stdout if result.returncode == 0 else source


def _run_table(options: argparse.Namespace) -> int:
    rows: list[LateJoins] = []
    for nodes, joins in TABLE_JOINS.items():
        if options.nodes and nodes > options.nodes:
            break
        for loss in TABLE_LOSSES:
            _progress(f"{nodes:,} nodes, {loss:.0%} lost")
            rows.append(measure_late_joins(nodes, loss, joins, options.seed))
    _progress("")
    print(markdown_table(TABLE_HEADER, [row.row() for row in rows]))
    return 0


def _seconds(at: float | None) -> str:
    return "not within a minute" if at is None else f"{at:.2f} s after the first start"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
