"""`python -m spark_bridge.pipeline`: the same as `jsonbus-pipeline`."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
