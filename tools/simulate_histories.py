"""Runs many random histories in processes side by side, and reports what broke.

Every history has a number: the modes take turns, then comes the next seed. The processes share a
counter and each takes the next number when it is free, so the histories begin in the same order
in every run, however many processes there are. A broken history ends alone; the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from jsonbus.sim.checkers import BrokenInvariantError, Checker
from jsonbus.sim.history import History
from jsonbus.sim.plan import Plan, draw_plan

PLAIN_PROGRESS_S = 15.0
#: The slowest small histories take some seconds; those with channels and a trace, some ten; the
#: slowest large and long ones take a minute, on a busy machine two.
STUCK_S = 600.0
SLOWEST = 10
SEEDS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Batch:
    """Which histories to run: at most `count` of them, and none that would begin too late."""

    first_seed: int
    modes: tuple[str, ...]
    count: int | None  # None: as many as `seconds` allow
    seconds: float | None = None
    nodes: int | None = None
    loss: float | None = None
    has_channels: bool = False
    family: str = "small"
    is_sealed: bool = False

    def plan(self, number: int) -> Plan:
        """Return the plan of the history with that number, from 0."""
        turn, mode = divmod(number, len(self.modes))
        return draw_plan(
            self.first_seed + turn,
            self.modes[mode],
            self.nodes,
            self.loss,
            has_channels=self.has_channels,
            family=self.family,
            is_sealed=self.is_sealed,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one history ended."""

    seed: int
    mode: str
    command: str
    cpu_s: float
    promise: str = ""  # the promise that it broke, or the exception that ended it
    detail: str = ""


class StuckError(Exception):
    """A history takes far too long: virtual time probably stands still."""


def run_history(plan: Plan, observers: tuple[Checker, ...] = ()) -> Outcome:
    began_s = time.process_time()
    promise = detail = ""
    try:
        with _at_most(STUCK_S):
            History(plan, observers).run()
    except BrokenInvariantError as broken:
        promise, detail = broken.invariant, str(broken)
    except Exception as error:
        promise, detail = f"failed: {type(error).__name__}", traceback.format_exc().rstrip()
    cpu_s = time.process_time() - began_s
    return Outcome(plan.seed, plan.mode, plan.command, cpu_s, promise, detail)


@contextmanager
def _at_most(cpu_s: float) -> Iterator[None]:
    """Raise StuckError in what takes more time of the processor."""

    def stop(*_: object) -> None:
        raise StuckError(f"not over after {cpu_s:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_batch(batch: Batch, jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes as they come. Closing the generator ends the processes."""
    counter = multiprocessing.Value("q", 0)
    ends_at = None if batch.seconds is None else time.monotonic() + batch.seconds
    if jobs == 1:
        yield from _take_turns(batch, counter, ends_at)
        return
    workers: dict[Any, multiprocessing.Process] = {}
    try:
        for _ in range(jobs):
            receiver, sender = multiprocessing.Pipe(duplex=False)
            arguments = (batch, counter, ends_at, sender, os.getpid())
            worker = multiprocessing.Process(target=_work, args=arguments, daemon=True)
            worker.start()
            sender.close()  # so that the end of the worker is the end of the pipe
            workers[receiver] = worker
        while workers:
            for receiver in wait(list(workers)):
                assert isinstance(receiver, Connection)
                try:
                    yield receiver.recv()
                except EOFError:
                    worker = workers.pop(receiver)
                    worker.join()
                    if worker.exitcode:
                        code = worker.exitcode
                        raise ChildProcessError(f"a process of the run ended with {code}") from None
    finally:
        for worker in workers.values():
            worker.terminate()
            worker.join()


def _work(
    batch: Batch, counter: Any, ends_at: float | None, sender: Connection, parent: int
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    for outcome in _take_turns(batch, counter, ends_at):
        if os.getppid() != parent:  # it was killed, and nobody else would end this one
            return
        sender.send(outcome)


def _take_turns(batch: Batch, counter: Any, ends_at: float | None) -> Iterator[Outcome]:
    while ends_at is None or time.monotonic() < ends_at:
        with counter.get_lock():
            number = counter.value
            counter.value += 1
        if batch.count is not None and number >= batch.count:
            return
        yield run_history(batch.plan(number))


class Report:
    """Collects outcomes, and says what is to be said about all of them."""

    def __init__(self, modes: tuple[str, ...]) -> None:
        self.outcomes: list[Outcome] = []
        self.broken: list[Outcome] = []
        self._modes = modes

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.promise:
            self.broken.append(outcome)

    def lines(self) -> Iterator[str]:
        yield f"{'mode':<8} {'histories':>9} {'broken':>7}  promise: seeds"
        counts = Counter(outcome.mode for outcome in self.outcomes)
        for mode in self._modes:
            seeds: dict[str, list[int]] = {}
            for outcome in self.broken:
                if outcome.mode == mode:
                    seeds.setdefault(outcome.promise, []).append(outcome.seed)
            broken = sum(map(len, seeds.values()))
            rows = [f"{promise}: {_shown(found)}" for promise, found in seeds.items()]
            yield f"{mode:<8} {counts[mode]:>9,} {broken:>7,}  {rows[0] if rows else ''}".rstrip()
            yield from (f"{'':<26}  {row}" for row in rows[1:])
        cpu_s = sum(outcome.cpu_s for outcome in self.outcomes)
        if cpu_s:
            yield f"\n{len(self.outcomes) / cpu_s:.1f} histories per second of one core"
        slowest = sorted(self.outcomes, key=lambda outcome: -outcome.cpu_s)[:SLOWEST]
        if len(self.outcomes) > SLOWEST:
            yield f"\n{'slowest':<8} {'seed':>12} {'seconds':>8}"
            for each in slowest:
                yield f"{each.mode:<8} {each.seed:>12} {each.cpu_s:>8.2f}"


def run_and_report(batch: Batch, jobs: int) -> int:
    """Run the histories, show how far they are, and report; return the exit code."""
    report = Report(batch.modes)
    outcomes = run_batch(batch, jobs)
    is_interrupted = False
    with _progress(batch) as show:
        try:
            for outcome in outcomes:
                report.add(outcome)
                if outcome.promise:
                    print(f"broken: {outcome.detail}\nrepeat: {outcome.command}", flush=True)
                show(report)
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            outcomes.close()
    count = len(report.outcomes)
    if is_interrupted:
        print(f"interrupted after {count:,} histories")
    print("\n".join(report.lines()))
    modes = ", ".join(batch.modes)
    fate = f"{len(report.broken):,} broken" if report.broken else "no invariant broken"
    print(f"\n{count:,} {'history' if count == 1 else 'histories'} ({modes}), {fate}")
    return 1 if report.broken else 130 if is_interrupted else 0


@contextmanager
def _progress(batch: Batch) -> Iterator[Callable[[Report], None]]:
    """Show how far the run is: a bar on a terminal, otherwise a line now and then."""
    began_at = time.monotonic()
    if sys.stdout.isatty():
        columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        with Progress(*columns, transient=True) as bar:
            task = bar.add_task("", total=1.0)

            def draw(report: Report) -> None:
                done = _share_done(batch, report, time.monotonic() - began_at)
                bar.update(task, completed=done, description=_tally(batch, report))

            yield draw
        return
    next_at = began_at + PLAIN_PROGRESS_S

    def write(report: Report) -> None:
        nonlocal next_at
        now = time.monotonic()
        if now >= next_at:
            next_at = now + PLAIN_PROGRESS_S
            took_s = now - began_at
            left_s = took_s / _share_done(batch, report, took_s) - took_s
            print(f"{_tally(batch, report)}, {left_s:.0f} s left", file=sys.stderr, flush=True)

    yield write


def _share_done(batch: Batch, report: Report, took_s: float) -> float:
    by_count = len(report.outcomes) / batch.count if batch.count else 0.0
    by_time = took_s / batch.seconds if batch.seconds else 0.0
    return min(1.0, max(by_count, by_time))


def _tally(batch: Batch, report: Report) -> str:
    total = f" of {batch.count:,}" if batch.count else ""
    return f"{len(report.outcomes):,}{total} histories, {len(report.broken):,} broken"


def _shown(seeds: list[int]) -> str:
    more = len(seeds) - SEEDS_SHOWN
    shown = ", ".join(map(str, sorted(seeds)[:SEEDS_SHOWN]))
    return f"{shown} and {more} more" if more > 0 else shown
