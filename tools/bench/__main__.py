"""Run a benchmark: `python3 -m tools.bench NAME`, in the folder of the project.

A Python that lacks what the benchmark needs starts it again with that of `.venv`, into which it
installs what is missing.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

from tools._setup import ROOT, set_up

#: By name: the module whose `main` runs it, the extras it needs, and what it measures.
BENCHMARKS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "bus": ("bus.command", (), "the bus from end to end, beside raw sockets and other systems"),
    "wire": ("wire.command", (), "the parts of the way from publish to handler, no network"),
    "channel": ("channel.command", (), "channels, beside asyncio's streams"),
    "gateway": ("gateway.command", ("gateway",), "HTTP, text clients and webhooks"),
    "recording": ("recording", ("mcap",), "recording, and the times of a replay"),
    "loss": ("loss", (), "delivery on a network that loses; needs root"),
    "spark": ("spark.command", ("spark",), "bridge and source, beside Spark's own sources"),
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in BENCHMARKS:
        print("usage: python3 -m tools.bench NAME [--quick] [--help]\n", file=sys.stderr)
        for name, (_, _, what) in BENCHMARKS.items():
            print(f"  {name:10} {what}", file=sys.stderr)
        return 0 if arguments in (["--help"], ["-h"]) else 2
    name, *given = arguments
    module, extras, _ = BENCHMARKS[name]
    try:
        benchmark = importlib.import_module(f"tools.bench.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "tools":
            raise
        python = _python_given(given) or str(set_up(extras))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([python, "-m", "tools.bench", *arguments], env=environment).returncode
    return int(benchmark.main(given))


def _python_given(arguments: list[str]) -> str | None:
    """The value of `--python`, which the benchmark of the bus has."""
    for name, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if name == "--python":
            return value
        if name.startswith("--python="):
            return name.partition("=")[2]
    return None


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
