"""The command `jsonbus-pipeline`, as it is installed: it says what is missing where Spark is.

The package `pipeline` itself cannot be imported without Spark.
"""

from __future__ import annotations

import importlib.util
import sys


def main() -> int:
    """Run the pipeline, or exit with the extra to install."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"the pipeline needs {module}: python3 -m pip install 'jsonbus[spark]'")
    from .pipeline.command import main as run

    return run()
