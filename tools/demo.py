"""Run the demonstration: make `.venv`, install jsonbus, run `jsonbus demo`.

Arguments are passed on; `python3 tools/demo.py --help` shows them. With `--bus`, Spark is neither
needed nor installed.
"""

from __future__ import annotations

import subprocess
import sys

from _setup import ROOT, set_up


def main() -> int:
    needs_spark = not {"--bus", "--help", "-h"} & set(sys.argv[1:])
    python = set_up(extras=("spark",) if needs_spark else ())
    return subprocess.run(
        [str(python), "-m", "jsonbus", "demo", *sys.argv[1:]], cwd=ROOT
    ).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
