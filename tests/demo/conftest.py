"""The demo is a command: its tests run it as those of the other commands do."""

from tests.cli.conftest import port, run

__all__ = ["port", "run"]
