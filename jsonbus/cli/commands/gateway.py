from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jsonbus.config import BusSettings

from .. import signals
from ..command import NodeCommand, need_modules
from ..lib.log_file import Tell, log_to
from ..lib.parameters import (
    READABLE_ON_THE_WAY,
    Whole,
    flag,
    option,
    repeated,
    show_address,
    tls_options,
)

if TYPE_CHECKING:
    from jsonbus.gateway.gateway import Gateway

HTTP_PORT = 7677
TEXT_PORT = 7676


def _read_host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        if text == "localhost":
            return "127.0.0.1"
        raise click.BadParameter(
            f"{text!r} is not an address: use one of this machine, or 0.0.0.0 for all of them"
        ) from None


@click.command(
    "gateway",
    cls=NodeCommand,
    epilog="""\b
Examples:
  jsonbus gateway                              HTTP on 127.0.0.1:7677, text on 127.0.0.1:7676
  jsonbus gateway 8080 --listen 0.0.0.0 --token-file tokens --data-dir /var/lib/jsonbus
  curl 'http://127.0.0.1:7677/publish?topic=door&message=open'
  nc 127.0.0.1 7676                            then: subscribe door
  jsonbus gateway --listen 0.0.0.0 --token-file tokens --tls-cert cert.pem --tls-key key.pem

\b
A token is SECRET, or RIGHTS=SECRET with publish, subscribe or admin (all), joined by +:
  --token publish=aZ09 --token publish+subscribe=bY18
""",
)
@click.argument("http_port", metavar="[PORT]", type=Whole(0, 65_535), default=HTTP_PORT)
@option(
    "--listen ADDRESS host",
    "Address to listen on; 0.0.0.0: reachable from everywhere.",
    "127.0.0.1",
    type=_read_host,
)
@option("--tcp-port PORT text_port", "Port for text clients; 0: any free port.", TEXT_PORT)
@flag("--no-tcp", "Do not serve text clients.")
@option(
    "--data-dir FOLDER",
    "Where webhooks and their backlog are kept [the current directory].",
    Path("."),
    show_default=False,
)
@flag("--in-memory", "Keep nothing on disk: webhooks end with the gateway.")
@repeated(
    "--token TOKEN tokens",
    "Secret that clients must send; may be repeated. Visible in the list of processes.",
)
@option(
    "--token-file FILE",
    "A file with one token per line; # begins a comment.",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="JSONBUS_GATEWAY_TOKEN_FILE",
    show_envvar=True,
)
@tls_options
@repeated(
    "--allow-webhook TARGET",
    "Where webhooks may go: a network, an address, a host, *.example.org, or *; may be"
    " repeated [public addresses; a gateway on loopback: also loopback and private ones].",
)
@repeated(
    "--allow-origin ORIGIN",
    "Let web pages of this origin use it, such as https://example.org; may be repeated.",
)
@repeated(
    "--allow-host NAME", "Host name by which clients reach a gateway on loopback; may be repeated."
)
@option("--handlers N", "Number of commands of text clients that run at once.", 5, (1, 1_000))
@option(
    "--buffer N",
    "Number of commands that wait; when it is full, no more is read from clients.",
    1_000,
    (1, 1_000_000),
)
@option(
    "--backlog N backlog_max",
    "Most messages kept for one webhook; more are refused.",
    10_000,
    (1, 10_000_000),
)
@option(
    "--total-backlog N total_backlog_max",
    "Most messages kept for all webhooks.",
    100_000,
    (1, 100_000_000),
)
@option("--max-body SIZE body_bytes_max", "Largest body of a request (k, M).", "1M")
@option(
    "--webhook-timeout SECONDS webhook_timeout_s",
    "Time limit of a delivery; then it is tried again.",
    10.0,
    (0.1, 600),
)
@option("--retry-max SECONDS retry_s_max", "Longest pause between two tries.", 60.0, (0.1, 86_400))
@flag("--no-dashboard", "Do not serve the live page at / (extra web).")
@option("--log-file FILE", "Log to this file, too; a new one every 10 MB, five old ones are kept.")
def command(
    settings: BusSettings,
    no_tcp: bool,
    in_memory: bool,
    tokens: tuple[str, ...],
    token_file: Path | None,
    no_dashboard: bool,
    log_file: Path | None,
    **options: Any,
) -> None:
    """Let HTTP and TCP clients use the bus, with durable webhooks.

    For programs that cannot join a multicast group. PORT is the HTTP port [7677]. When a publish is
    answered with 200, the message is on disk for every webhook that wants it, and is delivered
    until the webhook answers 200. Runs until Ctrl-C.
    """
    need_modules("gateway", ("fastapi", "httpx", "prometheus_client", "uvicorn"))
    _allow_many_clients()  # first: other limits depend on this one
    from jsonbus.gateway.gateway import Gateway, GatewayConfig

    if no_tcp:
        options["text_port"] = None
    if in_memory:
        options["data_dir"] = None
    given = _read_tokens(tokens, token_file)
    config = GatewayConfig(tokens=given, dashboard=not no_dashboard, **options)
    gateway = Gateway(config, **settings)
    with log_to(log_file) as tell:
        asyncio.run(_serve(gateway, tell))


async def _serve(gateway: Gateway, tell: Tell) -> None:
    """Serve until a signal comes, even while it opens; a second signal ends it at once."""
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()
    assert serving is not None
    caught: list[int] = []

    def end() -> None:
        for number in caught:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        serving.cancel()

    # A KeyboardInterrupt, raised wherever the loop is, could leave it in a broken state.
    for number in signals.NUMBERS:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            with suppress(NotImplementedError):  # Windows: the interrupt is raised after all
                loop.add_signal_handler(number, end)
                caught.append(number)
    signals.check()
    try:
        async with gateway:
            # What is loaded now stays, so the collector need not scan it again and again, which
            # was 5 % of the profile of a publish.
            gc.collect()
            gc.freeze()
            _introduce(gateway, tell)
            await loop.create_future()
    except asyncio.CancelledError:
        if not serving.cancelling():  # no signal: a bug
            raise
    tell("the gateway has ended")


def _allow_many_clients() -> None:
    """Raise the limit of descriptors: each client takes one, and 1,024 is a common default."""
    try:
        import resource
    except ImportError:
        return  # Windows has no such limit
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _introduce(gateway: Gateway, tell: Tell) -> None:
    scheme, kind = ("https", "text over TLS") if gateway.has_tls else ("http", "text")
    parts = [f"{scheme}://{show_address(*gateway.http_address)}"]
    if gateway.text_address is not None:
        parts.append(f"{kind} on {show_address(*gateway.text_address)}")
    tell(f"{gateway.bus.name} serves {', '.join(parts)}; Ctrl-C ends")
    if gateway.is_open_to_all:
        tell("anybody who reaches these ports can read and publish everything: use --token")
    if gateway.is_readable_on_the_way:
        tell(READABLE_ON_THE_WAY)


def _read_tokens(
    tokens: tuple[str, ...], token_file: Path | None
) -> list[tuple[str, frozenset[str]]]:
    from jsonbus.gateway.http.access import read_token

    given = list(tokens)
    if token_file is not None:
        try:
            lines = token_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{token_file} cannot be read: {error}") from error
        found = [line.strip() for line in lines]
        given += [line for line in found if line and not line.startswith("#")]
        if not given:
            raise click.UsageError(f"{token_file} contains no token: everybody would be let in")
    try:
        return [read_token(each) for each in given]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
