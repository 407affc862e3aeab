"""A run: rounds of faults, settling and calm, and at the end the question whether all agree."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable

from tools.lab.host import Host
from tools.lab.network import Lab
from tools.lab.process import Process
from tools.lab.promises import figures, judges
from tools.lab.promises.cast import Actor
from tools.lab.promises.plan import CALM_S, TOPICS, Fault, Plan
from tools.lab.promises.record import Calm, Record, Sighting
from tools.lab.shape import Shape

#: A lease (7 s), a grace (4 s: to ask for a suspect, and to hear everybody once), and something for
#: a busy machine.
SETTLING_S = 13.0
#: How long a round should last: the faults get what settling and calm leave of it.
ROUND_S = 38.0
FAULTS_S_MIN = 2.0
TICK_S = 0.05
BURST_MAX = 8
#: How long a busy machine may take for what is a matter of milliseconds.
PATIENCE_S = 60.0
#: Hosts on which somebody asks who is there, at the end.
ASKED_HOSTS = 3

Tell = Callable[[str], None]


class Run:
    """The actors of a lab with the hub of kind relay, and all that happens to them."""

    def __init__(self, lab: Lab, seed: int, rate: float, tell: Tell) -> None:
        self.record = Record()
        self.counts: Counter[str] = Counter()
        self._lab = lab
        self._hosts = {host.name: host for host in lab.hosts}
        self._plan = Plan(seed, list(self._hosts))
        self._traffic = random.Random(f"{seed}/traffic")
        self._rate = rate
        self._tell = tell
        self._weather = Shape()
        self._deaf: set[str] = set()
        self._owed = 0.0  # messages that are due
        self._fed_at = time.time()
        self._tap = Tap(lab, self.record, self.counts)
        self._actors = {host.name: self._cast(index, host) for index, host in enumerate(lab.hosts)}
        self._publishers = [each for each in self._actors.values() if each.is_publisher]

    def go(self, seconds: float) -> None:
        """Do all rounds; they take that long, and what it takes to start and to find agreement."""
        rounds = max(1, round(seconds / ROUND_S))
        faults_s = max(FAULTS_S_MIN, seconds / rounds - SETTLING_S - CALM_S)
        for actor in self._actors.values():
            actor.start(() if actor.is_publisher else self._plan.patterns())
        self._wait_until_all_are_heard()
        for number in range(1, rounds + 1):
            before = self.counts.copy()
            self._suffer(self._plan.round(faults_s), faults_s)
            self._wait_until_all_are_heard()
            self._live(SETTLING_S)
            self._be_calm()
            done = figures.in_words(self.counts - before) or "no faults"
            self._tell(f"round {number} of {rounds}: {done}")
        self._agree()

    def _cast(self, index: int, host: Host) -> Actor:
        """Every second host has a publisher; every second of those is reliable."""
        role = ("sub", "pub")[index % 2]
        return Actor(host, self.record, role=role, is_reliable=index % 4 == 1)

    def _suffer(self, faults: list[Fault], seconds: float) -> None:
        """Do the faults of a round; none is left at its end."""
        began_at = time.monotonic()
        steps = [(each.begins_s, True, index) for index, each in enumerate(faults)]
        steps += [(each.ends_s, False, index) for index, each in enumerate(faults)]
        for at, begins, index in sorted(steps):
            self._live(began_at + at - time.monotonic())
            if begins:
                self.counts[faults[index].kind] += 1
            self._change(faults[index], begins=begins)
        self._live(began_at + seconds - time.monotonic())

    def _change(self, fault: Fault, *, begins: bool) -> None:
        """Let a fault begin or end."""
        match fault.kind:
            case "burst":
                self._weather = fault.shape if begins else Shape()
                self._shape()
            case "deaf":
                (self._deaf.update if begins else self._deaf.difference_update)(fault.hosts)
                self._shape()
            case "split":
                self._lab.hub.split(*([fault.hosts] if begins else []))
            case "link":
                self._hosts[fault.hosts[0]].set_link(not begins)
            case "stop":
                self._actors[fault.hosts[0]].set_frozen(begins)
            case "terminate" | "kill" if begins:
                self._actors[fault.hosts[0]].end(is_killed=fault.kind == "kill")
            case _:
                actor = self._actors[fault.hosts[0]]
                actor.start(() if actor.is_publisher else fault.patterns)

    def _shape(self) -> None:
        self._lab.hub.shape(self._weather)
        if self._deaf:
            self._lab.hub.shape(Shape(loss=1), *sorted(self._deaf))

    def _be_calm(self) -> None:
        """Publish undisturbed, and wait until everything has come."""
        since = time.time()
        self._live(CALM_S)
        calm = Calm(since, time.time())
        self.record.calms.append(calm)
        self._wait_until(lambda: not any(judges.missing_in(self.record, calm)))

    def _agree(self) -> None:
        """Wait in silence until all gaps are told and all lists are equal, and ask for them."""
        quiet_at = time.time()
        if not self._wait_until(lambda: self._tap.agree_since(quiet_at, self._actors)):
            self.record.unmet.append(f"the lists differ in the end: {self._tap.digests}")
        self._wait_until(lambda: not any(judges.reliable_is_exact(self.record)), pause_s=1.0)
        wanted = {each.life.name: sorted(each.life.patterns) for each in self._actors.values()}
        step = max(1, len(self._lab.hosts) // ASKED_HOSTS)
        for host in self._lab.hosts[::step][:ASKED_HOSTS]:
            found = {each["name"]: sorted(each["patterns"]) for each in host.run("nodes").objects()}
            if found != wanted:
                self.record.unmet.append(f"on {host.name} `jsonbus nodes` shows {found}")
        for actor in self._actors.values():
            actor.check()

    def _wait_until_all_are_heard(self) -> None:
        since = time.time()
        if not self._wait_until(lambda: self._tap.heard_since(since, self._actors), feeds=True):
            silent = sorted(name for name, at in self._tap.heard_at.items() if at < since)
            self.record.unmet.append(f"nothing was heard of {silent} for {PATIENCE_S:g} s")

    def _wait_until(
        self, condition: Callable[[], bool], *, feeds: bool = False, pause_s: float = TICK_S
    ) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self._live(pause_s, feeds=feeds)
        return True

    def _live(self, seconds: float, *, feeds: bool = True) -> None:
        """Let time pass: publishers are fed, and everybody's output is read."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(TICK_S, left_s))
            self._feed(feeds)
            self._tap.read()
            for actor in self._actors.values():
                actor.read()

    def _feed(self, is_on: bool) -> None:
        """Give publishers what is due, in bursts as programs publish."""
        now = time.time()
        self._owed += self._rate * (now - self._fed_at)
        self._fed_at = now
        if not is_on:
            self._owed = 0.0
        draw = self._traffic
        there = [each for each in self._publishers if not each.is_over]
        while self._owed >= 1 and there:
            publisher = draw.choice(there)
            for _ in range(draw.randint(1, BURST_MAX)):
                self._owed -= 1
                publisher.feed(draw.choice(TOPICS))


class Tap:
    """What tap.py has seen so far."""

    def __init__(self, lab: Lab, record: Record, counts: Counter[str]) -> None:
        ports = [host.name for host in lab.hosts]
        #: By host: when it was heard last, and what it said of its list, when.
        self.heard_at = dict.fromkeys(ports, 0.0)
        self.digests: dict[str, tuple[float, object]] = {}
        self._record = record
        self._counts = counts
        self._position = 0
        self._process: Process = lab.start_in_hub("tools.lab.promises.tap", *ports)
        assert self._process.wait_until(lambda p: p.lines(), PATIENCE_S), self._process.report()

    def read(self) -> None:
        """Read on."""
        assert self._process.returncode is None, self._process.report()
        lines, self._position = self._process.lines_since(self._position)
        for line in lines:
            facts = json.loads(line)
            at, port, topic = facts["at"], facts["port"], facts["topic"]
            if not port:
                continue
            self.heard_at[port] = at
            self._counts["datagrams"] += 1
            self._counts[topic] += topic in ("jsonbus.nak", "jsonbus.repair")
            if "digest" in facts:
                self.digests[port] = (at, facts["digest"])
            is_repair = topic == "jsonbus.repair"
            for number, of, sequence in facts.get("messages", ()):
                seen = Sighting(at, number, of, sequence, facts["node"], is_repair)
                self._record.sightings.append(seen)

    def heard_since(self, since: float, actors: dict[str, Actor]) -> bool:
        """Return whether all hosts were heard since then."""
        return all(self.heard_at[host] >= since for host in actors)

    def agree_since(self, since: float, actors: dict[str, Actor]) -> bool:
        """Return whether all hosts have told their lists since then, and the last are equal."""
        told = [self.digests.get(host, (0.0, None)) for host in actors]
        return all(at >= since for at, _ in told) and len({str(digest) for _, digest in told}) == 1
