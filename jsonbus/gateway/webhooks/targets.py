"""Targets: the addresses to which webhooks may be posted.

Theory of operation
-------------------
A client that subscribes a webhook makes this machine send requests. Without a rule they could reach
services that only this machine can reach: on loopback, on the private network, or the metadata
address of a cloud (169.254.169.254). So a url is checked twice:

- `check`, at the subscription: spelling, scheme, and the address if it is written as one.
- `resolve`, at the delivery: the name is looked up, each of its addresses is checked, and the
  connection goes to exactly those that passed. A name that is harmless when it is subscribed and
  means loopback later (DNS rebinding) gains nothing, since no other look-up comes in between.

The same parsed url serves the check and the request, so the two cannot read it differently.

What is allowed
---------------
    without a list                          public addresses; if the gateway itself listens on
                                            loopback only: loopback and private ones, too
    with a list, an address or network      those addresses, whatever their kind
    with a list, NAME or *.DOMAIN           that name, if it means a public, private, shared or
                                            loopback address: not link-local, metadata ...
    with a list, *                          everything
A list replaces what is allowed without one. Never allowed is the gateway itself, under any address
of this machine: it refuses deliveries (../http/origins.py), so such a webhook could only fail.
An IPv6 address that carries an IPv4 address (mapped, 6to4, NAT64) is treated like that one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import httpx

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Looks up a name for a port; raises OSError if it has no address.
LookUp = Callable[[str, int], Awaitable[Sequence[str]]]

URL_CHARACTERS_MAX = 1_024
#: Addresses of one name that are tried: they divide the time of an attempt.
ADDRESSES_MAX = 4

#: Threads that may wait for silent name servers at the same time.
LOOKUP_THREADS_MAX = 64

DEFAULT_PORTS = {"http": 80, "https": 443}
_PORTS = range(1, 65_536)


@dataclass(frozen=True, slots=True)
class Address:
    """The destination of the requests of one attempt."""

    scheme: str
    #: As in the url, but in lower case, in ASCII, without a final dot; IPv6 without brackets.
    host: str
    port: int
    #: Path and query, as they are sent.
    request_target: str
    #: The allowed addresses, in the order to try them. Connections go only here.
    ips: tuple[IpAddress, ...] = ()
    #: A name with a final dot is looked up with it: no search domain is added to it then.
    has_final_dot: bool = False

    @property
    def authority(self) -> str:
        """HOST or HOST:PORT, as a `Host` header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        """Return the part that may be logged: paths and queries of webhooks often hold secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Targets:
    """The rule for webhooks' addresses; see the head of this file.

    Raises ValueError for an entry of `allow` that is not a network, address, name, *.DOMAIN or *.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        *,
        is_loopback_gateway: bool,
        look_up: LookUp | None = None,
    ) -> None:
        self._is_loopback_gateway = is_loopback_gateway
        self._look_up: LookUp = NameLookup() if look_up is None else look_up
        self._has_list = bool(allow)
        self._allows_everything = "*" in allow
        self._networks: list[IpNetwork] = []
        self._names: set[str] = set()
        self._domains: tuple[str, ...] = ()  # each with its dot in front
        self._own_ports: frozenset[int] = frozenset()
        for entry in allow:
            if entry != "*":
                self._read_entry(entry)

    def refuse_own(self, ports: Iterable[int]) -> None:
        """Refuse these ports of this machine: the gateway listens there."""
        self._own_ports = frozenset(ports)

    def check(self, url: str) -> None:
        """Raise ValueError, with the reason, for a url that can never be delivered to."""
        address = parse_url(url)
        ip = _as_ip(address.host)
        if ip is not None:
            self._check_ip(address, ip)
        elif self._has_list and not self._networks and not self._is_named(address.host):
            raise ValueError(self._not_named(address.host))

    async def resolve(self, url: str) -> Address:
        """Return where to connect. Raises ValueError if it is refused, OSError if it is unknown."""
        address = parse_url(url)
        ip = _as_ip(address.host)
        if ip is not None:
            self._check_ip(address, ip)
            found = [ip]
        else:
            name = address.host + "." * address.has_final_dot
            found = self._choose(address, await self._look_up(name, address.port))
        return replace(address, ips=tuple(found))

    def _choose(self, address: Address, texts: Sequence[str]) -> list[IpAddress]:
        """Return the allowed addresses. Raises ValueError if all are refused, OSError if none."""
        refusal = None
        allowed: list[IpAddress] = []
        for text in texts:
            ip = _as_ip(text)
            if ip is None:
                continue  # with a zone ("fe80::1%eth0"), which a url cannot have either
            try:
                self._check_ip(address, ip)
            except ValueError as error:
                refusal = refusal or error
            else:
                allowed.append(ip)
        if allowed:
            return list(dict.fromkeys(allowed))[:ADDRESSES_MAX]
        if refusal is not None:
            raise refusal
        raise OSError(f"{address.host} has no address")

    def _check_ip(self, address: Address, ip: IpAddress) -> None:
        host = address.host
        if address.port in self._own_ports and _is_of_this_machine(ip):
            raise ValueError(f"{address} is this gateway, which takes no webhooks: {_LOOP}")
        if self._allows_everything:
            return
        carried = _carried_ipv4(ip)
        if any(each in network for each in (ip, carried) if each for network in self._networks):
            return
        kind = kind_of(ip)
        shown = host if host == str(ip) else f"{host} ({ip})"
        if self._is_named(host):
            if kind in ("public", "private", "shared", "loopback"):
                return
            raise ValueError(
                f"{shown} is a {kind} address, which an allowed name may not mean: "
                f"--allow-webhook {ip} allows it"
            )
        if self._has_list:
            raise ValueError(self._not_named(shown))
        if kind == "public" or (self._is_loopback_gateway and kind in ("loopback", "private")):
            return
        raise ValueError(
            f"{shown} is a {kind} address, to which this gateway does not post: "
            f"--allow-webhook {ip} allows it"
        )

    def _is_named(self, host: str) -> bool:
        return self._allows_everything or host in self._names or host.endswith(self._domains)

    def _not_named(self, shown: str) -> str:
        return f"{shown} is not allowed: --allow-webhook names the only addresses for webhooks"

    def _read_entry(self, entry: str) -> None:
        text = entry.strip()
        bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        try:
            self._networks.append(ipaddress.ip_network(bare))
            return
        except ValueError as error:
            if "host bits" in str(error):
                right = ipaddress.ip_network(bare, strict=False)
                raise ValueError(f"{entry!r} is not a network: write {right}") from None
        try:
            if text.startswith("*."):
                self._domains += ("." + _read_name(text[2:]),)
            else:
                self._names.add(_read_name(text))
        except ValueError:
            raise ValueError(
                f"{entry!r} cannot be allowed for webhooks: give a network "
                "(10.0.0.0/8), an address, a host name, *.DOMAIN, or * for all"
            ) from None


class NameLookup:
    """Looks host names up, each in a thread of its own. Use it in one event loop.

    `loop.getaddrinfo` would use the loop's few default threads: some names whose server is silent
    block all of them for ten seconds and more, the look-ups of other names with them, and the end
    of the program, which waits for these threads. A program that ends leaves ours behind; the
    bound keeps a flood of names from becoming a flood of threads.
    """

    def __init__(self, threads_max: int = LOOKUP_THREADS_MAX) -> None:
        self._slots = asyncio.Semaphore(threads_max)
        self._running: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, the best first. Raises OSError if there are none.

        Callers that ask for the same name at the same time share one look-up.
        """
        while (future := self._running.get((host, port))) is None:
            await self._slots.acquire()
            if (host, port) in self._running:  # another caller began while this one waited
                self._slots.release()
                continue
            self._start(host, port)
        # Shielded: a caller that is cancelled must not cancel the look-up of the others.
        return list(await asyncio.shield(future))

    def _start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str]] = loop.create_future()
        self._running[host, port] = future

        def finish(result: list[str] | OSError) -> None:
            self._slots.release()
            del self._running[host, port]
            if isinstance(result, OSError):
                future.set_exception(result)
                future.exception()  # no warning if every caller was cancelled
            else:
                future.set_result(result)

        def look_up() -> None:
            result = _find_addresses(host, port)
            try:
                loop.call_soon_threadsafe(finish, result)
            except RuntimeError:
                pass  # the loop is closed

        try:
            threading.Thread(target=look_up, name="gateway-dns", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            finish(OSError(f"{host} cannot be looked up: {error}"))


@lru_cache(maxsize=1_024)
def parse_url(url: str) -> Address:
    """Parse a webhook's url without a look-up. Raises ValueError with the reason."""
    if len(url) > URL_CHARACTERS_MAX:
        raise ValueError(
            f"the url has {len(url):,} characters, at most {URL_CHARACTERS_MAX:,} are allowed"
        )
    # Some programs read a backslash as a slash, so the end of the host would be ambiguous.
    if not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("the url has spaces, control characters or backslashes: encode them")
    try:
        parsed = httpx.URL(url)
        port = DEFAULT_PORTS.get(parsed.scheme, 1) if parsed.port is None else parsed.port
        target = parsed.raw_path.decode("ascii")
    except (httpx.InvalidURL, ValueError) as error:
        raise ValueError(f"the url cannot be read: {error}") from None
    if parsed.scheme not in DEFAULT_PORTS:
        raise ValueError("the url must begin with http:// or https://")
    authority = _AUTHORITY.match(url)
    if parsed.userinfo or authority is None or "@" in authority[0]:
        raise ValueError("the url must not have a user name or password")
    if not parsed.raw_host:
        raise ValueError("the url has no host")
    if not _HOST_AND_PORT.fullmatch(authority[1]) or port not in _PORTS:
        raise ValueError("the url's port must be a number between 1 and 65,535")
    text = parsed.raw_host.decode("ascii")
    return Address(parsed.scheme, _read_host(text), port, target, has_final_dot=text.endswith("."))


def kind_of(ip: IpAddress) -> str:
    """Return the kind of an address in a word: "public", or what makes it special."""
    carried = _carried_ipv4(ip)
    if carried is not None:
        return kind_of(carried)
    kinds = {
        "unspecified": ip.is_unspecified,
        "loopback": ip.is_loopback,
        "link-local": ip.is_link_local,
        "metadata": ip in _METADATA,
        "multicast": ip.is_multicast,
        "private": any(ip in network for network in _PRIVATE),
        "shared": ip in _SHARED,
        "reserved": ip in _SITE_LOCAL or ip in _PROTOCOLS or ip.is_reserved or not ip.is_global,
    }
    return next((kind for kind, is_it in kinds.items() if is_it), "public")


_LOOP = "a message would circulate for ever"
_PRIVATE = tuple(
    ipaddress.ip_network(each)
    for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
_SHARED = ipaddress.ip_network("100.64.0.0/10")
#: Where clouds hand out a machine's secrets, unless link-local: Amazon and Google over IPv6, Azure,
#: Oracle.
_METADATA = frozenset(
    ipaddress.ip_address(each)
    for each in ("fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "192.0.0.192")
)
#: For protocols; before 3.12.4 the standard library considered most of it public.
_PROTOCOLS = ipaddress.ip_network("192.0.0.0/24")
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")  # deprecated, but still private to some routers
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_AUTHORITY = re.compile(r"[^:/?#]+://([^/?#]*)")
#: int() would also take +80, 8_0 and the digits of other scripts for a port.
_HOST_AND_PORT = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{0,5})?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def _carried_ipv4(ip: IpAddress) -> ipaddress.IPv4Address | None:
    if ip.version == 4:
        return None
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour


def _is_of_this_machine(ip: IpAddress) -> bool:
    ip = _carried_ipv4(ip) or ip
    if ip.is_multicast:  # a socket can be bound to it anywhere
        return False
    # The system binds a socket only to an address of its interfaces, loopback and 0.0.0.0.
    try:
        with socket.socket(
            socket.AF_INET6 if ip.version == 6 else socket.AF_INET, socket.SOCK_DGRAM
        ) as probe:
            probe.bind((str(ip), 0))
    except OSError:
        return ip.is_loopback or ip.is_unspecified  # without IPv6
    return True


def _as_ip(text: str) -> IpAddress | None:
    """Return the address in its one strict spelling, or None."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _read_host(host: str) -> str:
    if ":" in host:
        if "%" in host:
            raise ValueError("the url's host has a zone, which is not allowed")
        return str(ipaddress.IPv6Address(host))
    return _read_name(host) if _as_ip(host) is None else host


def _read_name(name: str) -> str:
    """Return a host name in ASCII, lower case, without its final dot, or raise ValueError."""
    if not name.isascii():
        try:
            name = httpx.URL(scheme="http", host=name).raw_host.decode("ascii")
        except httpx.InvalidURL:
            raise ValueError(f"{name!r} is not a host name") from None
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{name[:80]!r} is not a host name")
    # Resolvers read 2130706433, 0x7f.1 and 127.1 as addresses, each in its own way.
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError(f"{name!r} is neither a host name nor an address written a.b.c.d")
    return name


def _find_addresses(host: str, port: int) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:  # a label is too long for the codec of getaddrinfo
        return OSError(f"{host} is not a host name")
    return [str(address[0]) for *_, address in found]
