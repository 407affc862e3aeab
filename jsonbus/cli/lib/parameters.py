"""Types of options that several commands have, and addresses as text."""

from __future__ import annotations

import ipaddress
import math
from typing import Any

import click

from jsonbus.config import read_bytes


class Figure(click.FloatRange):
    """A finite number in a range; "nan" and "inf" are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def read_size(text: str) -> int:
    """Return a number of bytes, written with k, M or G."""
    try:
        size = int(read_bytes(text))
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise click.BadParameter(f"{text!r} is not a number of bytes: use 64k, 500M, 20G")
    return size


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
