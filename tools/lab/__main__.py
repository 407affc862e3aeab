"""A network of hosts in this machine, real nodes on them, and what they see of each other.

    sudo python3 -m tools.lab --hosts 3 --nodes-per-host 2 --loss 0.05 --mode delayed

Every host is a network namespace with one interface; a hub joins them and loses, delays, repeats
and reorders frames as the options say. Nodes are processes of the real command line. The lab shows
how long they take to find each other, publishes from a host as a late joiner, and shows how much
each node received; with --kill it ends a node without a goodbye and shows when the others notice.
It touches no interface of the machine, and leaves nothing behind, however it ends.

    sudo python3 -m tools.lab --promises --hosts 30 --minutes 5

checks all promises of the bus instead, under every fault that the lab can make; the head of
tools/lab/promises/__init__.py says how.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable

from tools._setup import find_python
from tools.lab.host import Host
from tools.lab.namespace import LabError, find_obstacle
from tools.lab.network import Lab
from tools.lab.process import Process
from tools.lab.promises import figures
from tools.lab.promises.run import Run
from tools.lab.shape import Shape

TIMEOUT_S = 60
QUIET_S = 3
TOPIC = "lab/tick"

# Lines that a node logs about another.
JOINED = re.compile(r"node '([^']+)' \(\w+\) joined")
GONE = re.compile(r"node '([^']+)' \(\w+\) expired")


def main() -> int:
    options = _parse_arguments()
    obstacle = find_obstacle()
    if obstacle is not None:
        print(f"no lab on this machine: {obstacle}", file=sys.stderr)
        return 1
    try:
        if options.promises:
            return keep_promises(options.hosts or 30, options)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        shape = Shape(options.loss, options.delay, options.jitter, options.repeat, options.reorder)
        with Lab(
            options.hosts or 3,
            shape,
            hub=options.hub,
            seed=options.seed,
            python=find_python(),
            is_sealed=options.sealed,
        ) as lab:
            return Session(lab, options, shape).run()
    except (LabError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def keep_promises(hosts: int, options: argparse.Namespace) -> int:
    """Check all promises on so many hosts; return the exit code."""
    seed = options.seed
    kind = "sealed, " if options.sealed else ""
    pace = f"{options.minutes:g} minutes, {options.rate} messages/s"
    print(f"{hosts} hosts, {kind}{pace}, seed {seed}")
    began_at = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began_at:6.1f} s  {text}", flush=True)

    python, is_sealed = find_python(), options.sealed
    with Lab(hosts, hub="relay", seed=seed, python=python, is_sealed=is_sealed) as lab:
        run = Run(lab, seed, options.rate, tell)
        run.go(60 * options.minutes)
        faults = figures.broken(run.record)
        table = figures.table(run.record, run.counts, lab.hub.relay_counts())
        print(figures.write(table, faults))
        if any(faults.values()):
            print(lab.report(), file=sys.stderr)
    return 1 if any(faults.values()) else 0


class Session:
    """One run: nodes start, meet, publish and perhaps die."""

    def __init__(self, lab: Lab, options: argparse.Namespace, shape: Shape) -> None:
        self._lab = lab
        self._options = options
        self._shape = shape
        self._nodes: dict[str, Process] = {}
        self._started_at = time.monotonic()

    def run(self) -> int:
        hub = f"a {self._lab.hub.kind}{', sealed' if self._options.sealed else ''}"
        print(f"{len(self._lab.hosts)} hosts on {hub}, {self._shape}, seed {self._options.seed}")
        self._start_nodes()
        is_good = self._meet() and self._publish() and (not self._options.kill or self._kill())
        if self._lab.hub.kind == "relay":
            counts = self._lab.hub.relay_counts()
            print(f"relay: {', '.join(f'{count:,} {what}' for what, count in counts.items())}")
        if not is_good:
            print(self._lab.report(), file=sys.stderr)
        if self._options.stay:
            self._stay()
        return 0 if is_good else 1

    def _start_nodes(self) -> None:
        for host in self._lab.hosts:
            for number in range(1, self._options.nodes_per_host + 1):
                name = f"{host.name}.{number}"
                self._nodes[name] = self._start_node(host, name, is_first=not self._nodes)
        self._tell(f"{len(self._nodes)} nodes started, mode {self._options.mode}")

    def _start_node(self, host: Host, name: str, is_first: bool) -> Process:
        mode = ["--mode", self._options.mode]
        if is_first and self._options.mode == "master":
            mode.append("--master")
        return host.start("node", "--name", name, "--sub", "lab/**", *mode)

    def _meet(self) -> bool:
        """Wait until every node knows every other; return whether that happened in time."""
        left = dict(self._nodes)

        def all_met() -> bool:
            for name in list(left):
                if self._nodes.keys() <= {name, *JOINED.findall(left[name].errors())}:
                    self._tell(f"{name} knows all others")
                    del left[name]
            return not left

        if not _wait_until(all_met):
            self._tell(f"still unaware of some: {', '.join(left)}")
            return False
        return True

    def _publish(self) -> bool:
        """Publish as a late joiner; return whether every node received what the shape allows."""
        count = self._options.messages
        arguments = ["pub", TOPIC, "1", "--count", str(count), "--rate", str(self._options.rate)]
        publisher = self._lab.hosts[-1].start(*arguments, "--mode", self._options.mode)
        if publisher.wait(count / self._options.rate + TIMEOUT_S) != 0:
            self._tell("the publisher failed")
            return False
        self._tell(f"{count} messages published by a late joiner on {self._lab.hosts[-1].name}")
        heard = self._wait_for_messages(count)
        for name in self._nodes:
            self._tell(f"{name} heard {heard[name]} of {count}")
        least = min(heard.values())
        return least == count or (least > 0 and self._shape.loss > 0)

    def _wait_for_messages(self, count: int) -> dict[str, int]:
        """Return how many messages each node received, once all have arrived or no more come."""
        before: dict[str, int] = {}
        while True:
            heard = {name: self._heard(name) for name in self._nodes}
            if heard == before or min(heard.values()) == count:
                return heard
            before = heard
            time.sleep(QUIET_S)

    def _kill(self) -> bool:
        """Kill the first node; return whether the others notice."""
        victim, process = next(iter(self._nodes.items()))
        process.kill()
        self._tell(f"{victim} killed")
        left = {name: each for name, each in self._nodes.items() if name != victim}

        def all_noticed() -> bool:
            for name in list(left):
                if victim in GONE.findall(left[name].errors()):
                    self._tell(f"{name} noticed")
                    del left[name]
            return not left

        return _wait_until(all_noticed)

    def _stay(self) -> None:
        print("the lab stays until Ctrl-C; to look around in a host:")
        for host in self._lab.hosts:
            print(f"  {host.name}: sudo nsenter -n -t {host.namespace.holder_id}")
        try:
            while True:
                time.sleep(3_600)
        except KeyboardInterrupt:
            print()

    def _heard(self, name: str) -> int:
        return len({(each["node"], each["sequence"]) for each in self._nodes[name].objects()})

    def _tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._started_at:6.1f} s  {text}", flush=True)


def _wait_until(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _parse_arguments() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.lab",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--hosts", type=_count, metavar="N", help="hosts [3; with --promises 30]")
    add("--nodes-per-host", type=_count, default=2, metavar="N", help="nodes on each host [2]")
    add("--mode", choices=("basic", "master", "delayed"), default="delayed", help="[delayed]")
    add("--loss", type=float, default=0.0, metavar="P", help="probability that a frame is lost")
    add("--delay", type=float, default=0.0, metavar="MS", help="delay of each frame")
    add("--jitter", type=float, default=0.0, metavar="MS", help="how far a delay may be off")
    add("--repeat", type=float, default=0.0, metavar="P", help="probability of a repetition")
    add("--reorder", type=float, default=0.0, metavar="P", help="probability to overtake")
    add("--hub", choices=("auto", "bridge", "relay"), default="auto", help="[auto]")
    add("--seed", type=int, default=1, metavar="N", help="of all dice [1]")
    add("--messages", type=_count, default=100, metavar="N", help="messages to publish [100]")
    add("--rate", type=_count, default=50, metavar="N", help="messages a second [50]")
    add("--kill", action="store_true", help="kill the first node and see who notices")
    add("--promises", action="store_true", help="check all promises, under all faults")
    add("--minutes", type=float, default=5.0, metavar="N", help="with --promises [5]")
    add("--sealed", action="store_true", help="on a sealed bus, with a key made for it")
    add("--stay", action="store_true", help="keep the hosts for a look around, until Ctrl-C")
    options = parser.parse_args()
    if options.promises and options.hosts == 1:
        parser.error("--promises needs a host that publishes and one that subscribes")
    return options


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("use 1 or more")
    return number


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
