"""Settings of a bus: defaults, `JSONBUS_*` environment variables, keywords.

A keyword beats an environment variable, which beats the default. `classic` changes only the
defaults. This is the one reader of environment variables: a bus opened by a program and one opened
by a command understand the same ones.

The mode follows from other settings: `master=True` means mode master, `subs_share_delay` means
mode delayed. Where both were said in the same place (both keywords, both environment variables)
and do not agree, that is an error. Where a keyword disagrees with an environment variable, the
keyword wins, and takes with it what the environment said about the mode it replaces.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

from .errors import ConfigError

#: How nodes share their subscription lists.
Mode = Literal["basic", "master", "delayed"]

#: The path of a key file, or the object that it holds, as JSON is parsed.
KeyFile = str | os.PathLike[str] | Mapping[str, Any]

MODES: Final[tuple[Mode, ...]] = get_args(Mode)

#: The defaults of the first implementation, whose nodes understand one message per datagram.
CLASSIC: Final[BusSettings] = {"group": "224.1.2.3", "port": 2416, "ttl": 10, "batching": False}

ENVIRONMENT_PREFIX: Final = "JSONBUS_"


class BusSettings(TypedDict, total=False):
    """The keywords of `Bus` and `AsyncBus`; None is the same as leaving one out.

    `BusConfig` says what each means, and has the defaults. `classic` changes the defaults to those
    of the first implementation.
    """

    group: str | None
    port: int | None
    interface: str | Sequence[str] | None
    ttl: int | None
    mode: Mode | None
    master: bool | None
    subs_share_delay: float | None
    name: str | None
    reliable: bool | None
    workers: int | None
    datagram_bytes_max: int | None
    value_bytes_max: int | None
    nan_as_null: bool | None
    receive_buffer_bytes: int | None
    batching: bool | None
    rate_limit: float | str | None
    key_file: KeyFile | None
    classic: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BusConfig:
    """The settings of a bus: `Bus.config`. Made by `load`; raises ConfigError for wrong values."""

    #: The multicast group, an IPv4 address; nodes of one bus have the same group and port.
    group: str = "239.255.24.16"
    port: int = 2416
    #: Network interfaces, by name or address; "auto" is that of the default route.
    interface: tuple[str, ...] = ("auto",)
    #: Routers that a datagram may pass, plus one: 1 stays on the local network.
    ttl: int = 1
    #: How nodes learn of subscriptions. basic: not at all, everything is sent. master: one node
    #: answers newcomers. delayed: the node with the shortest random delay does.
    mode: Mode = "delayed"
    #: Whether this node answers newcomers in mode master.
    master: bool = False
    #: The delay in mode delayed, in milliseconds; None draws a random one each time.
    subs_share_delay: float | None = None
    #: For people; None: made from host and process.
    name: str | None = None
    #: Whether messages are reliable, unless `publish` says otherwise.
    reliable: bool = False
    #: How many handlers may run at once. None: 1 with threads, so that a program needs no locks;
    #: 100 with asyncio, where only handlers that wait run side by side.
    workers: int | None = None
    #: None: 1,400, which fits an Ethernet frame also through a tunnel; more on loopback.
    datagram_bytes_max: int | None = None
    #: The largest value, as JSON. One that is larger than a datagram travels in several.
    value_bytes_max: int = 16 * 1024 * 1024
    #: Whether NaN and the infinities, which JSON lacks, are sent as null; else they are refused.
    nan_as_null: bool = False
    #: The receive buffer to ask the kernel for; `stats` shows how much it gave.
    receive_buffer_bytes: int = 4 * 1024 * 1024
    #: Whether several messages may share a datagram.
    batching: bool = True
    #: The most bytes sent per second; as a keyword also text, such as "10M". None: unlimited.
    rate_limit: float | None = None
    #: The keys of a sealed bus; `jsonbus keygen` makes them. None: everybody may read and write.
    key_file: KeyFile | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        _check_group(self.group)
        _check_whole("port", self.port, 1, 65_535)
        _check_interface(self.interface)
        _check_whole("ttl", self.ttl, 0, 255)
        if self.mode not in MODES:
            raise ConfigError(f"mode must be basic, master or delayed, not {_shown(self.mode)}")
        _check_flag("master", self.master)
        if self.subs_share_delay is not None:
            what = "a number of milliseconds, 0 or more"
            _check_number("subs_share_delay", self.subs_share_delay, 0, what)
        _check_agreement(self.mode, self.master, self.subs_share_delay)
        if self.name is not None:
            _check_name(self.name)
        _check_flag("reliable", self.reliable)
        if self.workers is not None:
            _check_whole("workers", self.workers, 1, 256)
        if self.datagram_bytes_max is not None:
            # Less could not hold the sums of a subscription list; more, UDP cannot carry. Sealing
            # adds 46 bytes.
            least = 1_200 if self.key_file is None else 1_246
            _check_whole("datagram_bytes_max", self.datagram_bytes_max, least, 65_507)
        _check_whole("value_bytes_max", self.value_bytes_max, 1_000, 1 << 26)
        _check_flag("nan_as_null", self.nan_as_null)
        _check_whole("receive_buffer_bytes", self.receive_buffer_bytes, 65_536, 1 << 30)
        _check_flag("batching", self.batching)
        if self.rate_limit is not None:
            what = f"{_RATE_TEXT}, and at least {_RATE_MIN}"
            _check_number("rate_limit", self.rate_limit, _RATE_MIN, what)
        _check_key_file(self.key_file)


def load(**settings: Unpack[BusSettings]) -> BusConfig:
    """Make a configuration from keywords and environment variables; raises ConfigError."""
    unknown = sorted(settings.keys() - _READERS.keys())
    if unknown:
        raise TypeError(f"no such setting: {', '.join(unknown)}")
    keywords = {key: value for key, value in settings.items() if value is not None}
    environment = _read_environment(os.environ)
    classic = keywords.pop("classic", environment.pop("classic", False))
    _check_flag("classic", classic)
    merged: dict[str, Any] = dict(CLASSIC) if classic else {}
    for layer in (environment, keywords):
        _imply_mode(layer)
        mode = layer.get("mode")
        if mode is not None and mode != "master":
            merged.pop("master", None)
        if mode is not None and mode != "delayed":
            merged.pop("subs_share_delay", None)
        merged.update(layer)
    if "interface" in merged:
        merged["interface"] = _as_tuple(merged["interface"])
    if isinstance(rate := merged.get("rate_limit"), str):
        with contextlib.suppress(ValueError):  # BusConfig says what is wrong with the text
            merged["rate_limit"] = read_bytes(rate)
    return BusConfig(**merged)


def environment_variable(setting: str) -> str:
    """Return the name of the environment variable for a setting: JSONBUS_GROUP for "group"."""
    return ENVIRONMENT_PREFIX + setting.upper()


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting, (read, what) in _READERS.items():
        variable = environment_variable(setting)
        text = environ.get(variable, "").strip()
        if not text:
            continue
        try:
            found[setting] = read(text)
        except ValueError:
            raise ConfigError(f"{variable} must be {what}, not {_shown(text)}") from None
    return found


def _imply_mode(layer: dict[str, Any]) -> None:
    """Add the mode that the layer's other settings mean; raises ConfigError if they disagree."""
    implied = None
    if layer.get("master") is True:
        implied = "master"
    elif "subs_share_delay" in layer:
        implied = "delayed"
    if implied is not None:
        mode = layer.setdefault("mode", implied)
        _check_agreement(mode, layer.get("master", False), layer.get("subs_share_delay"))


def _read_flag(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)


def read_bytes(text: str) -> float:
    """Read a number of bytes, such as 2500, 2.5k, 10M, 1G, by thousands; raises ValueError."""
    text = text.strip()
    unit = _RATE_UNITS.get(text[-1:].lower())
    return float(text) if unit is None else float(text[:-1]) * unit


def _read_names(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


_TEXT: Final = "text"
_WHOLE: Final = "a whole number"
_NUMBER: Final = "a number"
_FLAG: Final = "1 or 0"
_RATE_TEXT: Final = "bytes per second, such as 500k, 10M or 1G"

_RATE_UNITS: Final = {"k": 1e3, "m": 1e6, "g": 1e9}

#: A node has to announce itself and its subscriptions now and then. With less, that alone would
#: take longer than others wait for it.
_RATE_MIN: Final = 1_000

#: How a setting is read from an environment variable, and what to say if it cannot be.
_READERS: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    "group": (str, _TEXT),
    "port": (int, _WHOLE),
    "interface": (_read_names, _TEXT),
    "ttl": (int, _WHOLE),
    "mode": (str, _TEXT),
    "master": (_read_flag, _FLAG),
    "subs_share_delay": (float, _NUMBER),
    "name": (str, _TEXT),
    "reliable": (_read_flag, _FLAG),
    "workers": (int, _WHOLE),
    "datagram_bytes_max": (int, _WHOLE),
    "value_bytes_max": (int, _WHOLE),
    "nan_as_null": (_read_flag, _FLAG),
    "receive_buffer_bytes": (int, _WHOLE),
    "batching": (_read_flag, _FLAG),
    "rate_limit": (read_bytes, _RATE_TEXT),
    "key_file": (str, _TEXT),
    "classic": (_read_flag, _FLAG),
}


def _as_tuple(interface: object) -> object:
    if isinstance(interface, str):
        return (interface,)
    return tuple(interface) if isinstance(interface, Sequence) else interface


def _check_group(group: object) -> None:
    # Asked of the socket module, which opening a bus needs anyway, rather than of ipaddress.
    try:
        is_group = (
            isinstance(group, str) and 224 <= socket.inet_pton(socket.AF_INET, group)[0] <= 239
        )
    except (OSError, ValueError):
        is_group = False
    if not is_group:
        raise ConfigError(
            "group must be an IPv4 multicast address, 224.0.0.0 to 239.255.255.255, "
            f"not {_shown(group)}"
        )


def _check_interface(interface: object) -> None:
    if (
        not isinstance(interface, tuple)
        or not interface
        or not all(isinstance(each, str) and each.strip() for each in interface)
    ):
        raise ConfigError(
            f'interface must be "auto", a name or an address, or several, not {_shown(interface)}'
        )


def _check_whole(setting: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(
            f"{setting} must be a whole number from {least} to {most}, not {_shown(value)}"
        )


def _check_flag(setting: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{setting} must be true or false, not {_shown(value)}")


def _check_number(setting: str, value: object, least: float, what: str) -> None:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not least <= value < math.inf
    ):
        raise ConfigError(f"{setting} must be {what}, not {_shown(value)}")


def _check_agreement(mode: object, master: object, subs_share_delay: object) -> None:
    if master is True and mode != "master":
        raise ConfigError(f"a master shares in mode master, not {mode}: leave out one of the two")
    if subs_share_delay is not None and mode != "delayed":
        raise ConfigError(
            f"a share delay has a meaning only in mode delayed, not {mode}: "
            "leave out one of the two"
        )


def _check_key_file(key_file: object) -> None:
    is_path = isinstance(key_file, str | os.PathLike)
    is_text = isinstance(key_file, str) and key_file.lstrip().startswith("{")
    if is_text or not (is_path or isinstance(key_file, Mapping | None)):
        # It may have a secret, so it is not shown.
        raise ConfigError(
            "key_file must be the path of a key file, or the object that such a file holds"
        )


def _check_name(name: object) -> None:
    if (
        not isinstance(name, str)
        or not name.strip()
        or any(unicodedata.category(char) in ("Cc", "Cs") for char in name)
        or len(name.encode()) > 255
    ):
        raise ConfigError(
            f"name must be 1 to 255 bytes of text without control characters, not {_shown(name)}"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
