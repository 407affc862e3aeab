"""`--log-file`: writes the log of a command to a file, too."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from ..command import note

#: Size of a file, and the number of older files that are kept.
LOG_BYTES_MAX = 10_000_000
LOG_FILES_MAX = 5

#: Loggers of unexpected things: exceptions that nobody caught, no descriptors left.
OTHER_LOGS = ("asyncio", "uvicorn")

Tell = Callable[[str], None]


@contextmanager
def log_to(path: Path | None) -> Iterator[Tell]:
    """Log to that file, too, if it is given. Raises click.UsageError if it cannot be written.

    Yields a function like `note` that writes to standard error and to the file, because people look
    for the start and the end of a command in its log. The file has these lines even with -q.
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
        # Not through the logger: its lines go to standard error, too, where `note` wrote this.
        handler.handle(logging.LogRecord("jsonbus", logging.INFO, __file__, 0, text, None, None))

    with ExitStack() as stack:
        stack.callback(handler.close)
        _add_handler(stack, "jsonbus", handler)
        for name in OTHER_LOGS:
            _add_handler(stack, name, handler)
            # Python shows these on standard error, but only while they have no other handler.
            if logging.lastResort is not None:
                _add_handler(stack, name, logging.lastResort)
        yield tell


def _add_handler(stack: ExitStack, name: str, handler: logging.Handler) -> None:
    log = logging.getLogger(name)
    log.addHandler(handler)
    stack.callback(log.removeHandler, handler)
