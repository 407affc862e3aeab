"""`python -m jsonbus` is the same as `jsonbus`."""

from __future__ import annotations

from jsonbus.cli.main import main

if __name__ == "__main__":
    main()
