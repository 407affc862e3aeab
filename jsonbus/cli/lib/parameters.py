"""Options in a short form, their types, and addresses as text."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from jsonbus.config import read_bytes

from .names import PATTERN, TOPIC

#: What a command says once that others on the network can reach, and that has no TLS.
READABLE_ON_THE_WAY = (
    "what travels to and from these ports is not encrypted, tokens included: use --tls-cert and"
    " --tls-key"
)

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


class Figure(click.FloatRange):
    """A finite number in a range; "nan" and "inf" are refused."""

    name = "number"  # click says "is not a valid float range"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number in a range."""

    name = "whole number"


def read_size(text: str) -> int:
    """Return a number of bytes, written with k, M or G."""
    try:
        size = int(read_bytes(text))
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise click.BadParameter(f"{text!r} is not a number of bytes: use 64k, 500M, 20G")
    return size


#: Word that stands for the value in the help -> the type of such values.
TYPES: dict[str, Any] = {
    "N": Whole(min=1),
    "SECONDS": Figure(min=0),
    "MS": Figure(min=0),
    "HOURS": Figure(min=0),
    "PER_SECOND": Figure(min=0, min_open=True),
    "SIZE": read_size,
    "PORT": Whole(0, 65_535),
    "PATTERN": PATTERN,
    "LEVELS": TOPIC,
    "FILE": click.Path(dir_okay=False, path_type=Path),
    "FOLDER": click.Path(file_okay=False, path_type=Path),
}


def option(
    form: str,
    help: str,
    default: Any = None,
    bounds: tuple[float, float] | None = None,
    **more: Any,
) -> Decorator:
    """Add an option; its default is shown.

    `form` is what the help shows, such as "-c --count N", and the name of the parameter if it is
    another one. The word for the value decides its type, within `bounds`, unless `type` is given.
    """
    words = form.split()
    for word in filter(str.isupper, words):
        kind: Any = TYPES.get(word)
        more = {"metavar": word, "type": kind if bounds is None else type(kind)(*bounds), **more}
    if default is not None:
        more = {"default": default, "show_default": True, **more}
    names = [word for word in words if not word.isupper()]
    return click.option(*names, help=help, **more)


def repeated(form: str, help: str) -> Decorator:
    """Add an option that may be given several times."""
    return option(form, help, multiple=True)


def flag(form: str, help: str) -> Decorator:
    return option(form, help, is_flag=True)


def tls_options(function: Function) -> Function:
    """Add the options of a command that serves TLS."""
    key = option("--tls-key FILE", "The private key of that certificate (PEM, no password).")
    cert = option(
        "--tls-cert FILE",
        "Speak TLS, with this certificate and those that lead to its CA (PEM). Read again when it"
        " changes.",
    )
    return cert(key(function))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
