"""--log-file: what a command that stays has to tell, in a file as well."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from ..command import note

#: The current file, and so many older ones beside it.
LOG_BYTES_MAX = 10_000_000
LOG_FILES_MAX = 5

#: Who tells of what nobody expected: exceptions that nobody caught, descriptors that ran out.
OTHER_LOGS = ("asyncio", "uvicorn")

Tell = Callable[[str], None]


@contextmanager
def log_to(path: Path | None) -> Iterator[Tell]:
    """Log to that file, too, if there is one; raises click.UsageError if it cannot be written.

    What it gives is `note` for standard error and the file: where a command began and ended is the
    first that is looked for in a log. The file has it also with -q.
    """
    if path is None:
        yield note
        return
    try:
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES_MAX, encoding="utf-8"
        )
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", style="%")
    )

    def tell(text: str) -> None:
        note(text)
        # Not by the logger: its lines go to standard error as well, where this has been told.
        handler.handle(logging.LogRecord("jsonbus", logging.INFO, __file__, 0, text, None, None))

    with ExitStack() as stack:
        stack.callback(handler.close)
        _add_handler(stack, "jsonbus", handler)
        for name in OTHER_LOGS:
            _add_handler(stack, name, handler)
            # On standard error Python itself shows it, but only while nobody else takes it.
            if logging.lastResort is not None:
                _add_handler(stack, name, logging.lastResort)
        yield tell


def _add_handler(stack: ExitStack, name: str, handler: logging.Handler) -> None:
    log = logging.getLogger(name)
    log.addHandler(handler)
    stack.callback(log.removeHandler, handler)
