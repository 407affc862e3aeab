"""Which urls a webhook may have, and where the connection goes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.webhooks.targets import ADDRESSES_MAX, Address, Targets, kind_of, parse_url

OPEN = Targets(is_loopback_gateway=False)
AT_HOME = Targets(is_loopback_gateway=True)
EVERYTHING = Targets(["*"], is_loopback_gateway=False)


class Names:
    """A name server: what each name means, one answer after the other; the last one stays."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = {name.replace("_", "."): answer for name, answer in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.answers.get(host.removesuffix("."))
        if answers is None:
            raise OSError(f"{host} is not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def resolve(targets: Targets, url: str) -> Address:
    return asyncio.run(targets.resolve(url))


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "target"),
    [
        ("http://example.org", "http", "example.org", 80, "/"),
        ("https://example.org/", "https", "example.org", 443, "/"),
        ("HTTP://EXAMPLE.ORG/Hook", "http", "example.org", 80, "/Hook"),
        ("http://example.org:8080/a?b=c&d=%20", "http", "example.org", 8080, "/a?b=c&d=%20"),
        ("http://example.org:/a", "http", "example.org", 80, "/a"),
        ("https://example.org:443?q", "https", "example.org", 443, "/?q"),
        ("http://example.org/a#part", "http", "example.org", 80, "/a"),
        ("http://example.org./a", "http", "example.org", 80, "/a"),
        ("http://example.org/h%C3%B6k/@x", "http", "example.org", 80, "/h%C3%B6k/@x"),
        ("http://example.org/hök", "http", "example.org", 80, "/h%C3%B6k"),
        ("http://bücher.example/", "http", "xn--bcher-kva.example", 80, "/"),
        ("http://xn--bcher-kva.example/", "http", "xn--bcher-kva.example", 80, "/"),
        ("http://my_service:9000/", "http", "my_service", 9000, "/"),
        ("http://93.184.216.34/", "http", "93.184.216.34", 80, "/"),
        ("http://[2606:2800:220:1:0248:1893:25C8:1946]:81/", "http",
         "2606:2800:220:1:248:1893:25c8:1946", 81, "/"),
        ("http://93。184。216。34/", "http", "93.184.216.34", 80, "/"),
        ("http://1password.example/", "http", "1password.example", 80, "/"),
    ],
)  # fmt: skip
def test_a_url_is_taken_apart(url: str, scheme: str, host: str, port: int, target: str) -> None:
    has_final_dot = "org./" in url
    assert parse_url(url) == Address(scheme, host, port, target, has_final_dot=has_final_dot)
    EVERYTHING.check(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "must begin with http"),
        ("example.org/hook", "must begin with http"),
        ("//example.org/hook", "must begin with http"),
        ("ftp://example.org/", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
        ("gopher://example.org:70/", "must begin with http"),
        ("javascript:alert(1)", "must begin with http"),
        ("http:/example.org/", "."),
        ("http:///hook", "no host"),
        ("http://:80/", "no host"),
        ("http://?q", "no host"),
        ("http://user@example.org/", "user name"),
        ("http://user:secret@example.org/", "user name"),
        ("http://@example.org/", "user name"),
        ("http://:@example.org/", "user name"),
        ("http://example.org:80@127.0.0.1/", "user name"),
        ("http://example.org\\@127.0.0.1/", "backslash"),
        ("http://example.org\\.evil.example/", "backslash"),
        ("http://example.org/a b", "spaces"),
        (" http://example.org/", "spaces"),
        ("http://example.org/\r\nX-Header: 1", "control characters"),
        ("http://example.org/\x00", "control characters"),
        ("http://example.org/\u2028", "control characters"),
        ("http://example.org/\ud800", "control characters"),
        ("http://example.org:0/", "port"),
        ("http://example.org:65536/", "port"),
        ("http://example.org:-1/", "port"),
        ("http://example.org:+80/", "port"),
        ("http://example.org:8_0/", "port"),
        ("http://example.org:٨٠/", "port"),
        ("http://example.org:http/", "."),
        ("http://example.org:80:80/", "."),
        ("http://2130706433/", "neither a host name nor an address"),
        ("http://0x7f000001/", "neither a host name nor an address"),
        ("http://0x7f.1/", "neither a host name nor an address"),
        ("http://127.1/", "neither a host name nor an address"),
        ("http://127.0.0.1./", "neither a host name nor an address"),
        ("http://0177.0.0.1/", "."),
        ("http://127.0.0.01/", "."),
        ("http://127.0.0.256/", "."),
        ("http://127.0.0.0x1/", "neither a host name nor an address"),
        ("http://127%2e0.0.1/", "not a host name"),
        ("http://１２７.0.0.1/", "."),
        ("http://ⓛocalhost/", "."),
        ("http://[fe80::1%25eth0]/", "."),
        ("http://[fe80::1%eth0]/", "."),
        ("http://[::1/", "."),
        ("http://::1/", "."),
        ("http://[::1]x/", "."),
        ("http://[127.0.0.1]/", "."),
        ("http://[v1.x]/", "."),
        ("http://a..b/", "not a host name"),
        ("http://.a/", "not a host name"),
        ("http://./", "not a host name"),
        ("http://-a.example/", "not a host name"),
        ("http://a*b/", "not a host name"),
        ("http://" + "a" * 64 + ".example/", "not a host name"),
        ("http://" + "a." * 130 + "example/", "not a host name"),
        ("http://example.org/" + "a" * 1_100, "1,119 characters, at most 1,024"),
    ],
)  # fmt: skip
def test_a_url_with_an_unclear_address_is_refused_by_every_rule(url: str, reason: str) -> None:
    for targets in (OPEN, AT_HOME, EVERYTHING):
        with pytest.raises(ValueError, match=reason):
            targets.check(url)
        with pytest.raises(ValueError, match=reason):
            resolve(targets, url)


@pytest.mark.parametrize(
    ("ip", "kind"),
    [
        ("93.184.216.34", "public"),
        ("2606:2800:220:1:248:1893:25c8:1946", "public"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.31.255.255", "private"),
        ("172.32.0.1", "public"),
        ("192.168.0.1", "private"),
        ("fd12::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fd00:ec2::254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("::ffff:192.0.0.192", "metadata"),
        ("192.0.0.1", "reserved"),
        ("192.0.0.254", "reserved"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("0.1.2.3", "reserved"),
        ("100.64.0.1", "shared"),
        ("100.128.0.1", "public"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("224.0.0.1", "multicast"),
        ("239.1.2.3", "multicast"),
        ("ff02::1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("2001:db8::1", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("fec0::1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:93.184.216.34", "public"),
        ("::ffff:169.254.169.254", "link-local"),
        ("2002:7f00:1::", "loopback"),
        ("2002:5db8:d822::1", "public"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b::5db8:d822", "public"),
    ],
)  # fmt: skip
def test_addresses_are_told_apart_and_either_gateway_takes_its_own(ip: str, kind: str) -> None:
    assert kind_of(ip_address(ip)) == kind
    url = f"http://[{ip}]/" if ":" in ip else f"http://{ip}/"
    for targets, allowed in [
        (OPEN, {"public"}),
        (AT_HOME, {"public", "loopback", "private"}),
        (EVERYTHING, {kind}),
    ]:
        if kind in allowed:
            targets.check(url)
            assert resolve(targets, url).ips == (ip_address(ip),)
        else:
            with pytest.raises(ValueError, match=f"{kind} address"):
                targets.check(url)
            with pytest.raises(ValueError, match=f"{kind} address"):
                resolve(targets, url)


@pytest.mark.parametrize(
    ("allow", "allowed", "refused"),
    [
        (["10.0.0.0/8"],
         ["http://10.9.8.7/", "http://ten.example/", "http://[::ffff:10.0.0.1]/"],
         ["http://93.184.216.34/", "http://192.168.0.1/", "http://127.0.0.1/", "http://web.example/"]),
        (["127.0.0.1", "::1"], ["http://127.0.0.1:81/", "http://[::1]/", "http://home.example/"],
         ["http://127.0.0.2/", "http://ten.example/"]),
        (["[::1]"], ["http://[::1]/"], ["http://127.0.0.1/"]),
        (["169.254.169.254"], ["http://169.254.169.254/"], ["http://169.254.1.1/"]),
        (["0.0.0.0/0"], ["http://127.0.0.1/", "http://web.example/"], ["http://[::1]/"]),
        (["ten.example"], ["http://ten.example/", "https://TEN.example.:8443/x"],
         ["http://10.0.0.1/", "http://web.example/", "http://a.ten.example/"]),
        (["home.example"], ["http://home.example/"], ["http://127.0.0.1/"]),
        (["*.example"], ["http://ten.example/", "http://home.example/", "http://web.example/"],
         ["http://example/", "http://meta.example/", "http://anexample/", "http://10.0.0.1/"]),
        (["meta.example", "169.254.0.0/16"], ["http://meta.example/"], ["http://web.example/"]),
        (["Bücher.example"], ["http://bücher.example/"], ["http://bucher.example/"]),
        (["*"], ["http://meta.example/", "http://0.0.0.0/", "http://224.0.0.1/"], []),
        (["10.0.0.0/8", "web.example"], ["http://web.example/", "http://10.1.1.1/"],
         ["http://home.example/"]),
    ],
)  # fmt: skip
def test_a_list_allows_what_it_names_and_nothing_else(
    allow: list[str], allowed: list[str], refused: list[str]
) -> None:
    names = Names(
        ten_example=[["10.0.0.1"]],
        home_example=[["127.0.0.1"]],
        meta_example=[["169.254.169.254"]],
        web_example=[["93.184.216.34"]],
        a_ten_example=[["10.0.0.1"]],
        anexample=[["93.184.216.34"]],
        example=[["93.184.216.34"]],
    )
    names.answers |= {"xn--bcher-kva.example": [["10.0.0.1"]], "bucher.example": [["10.0.0.1"]]}
    for is_loopback_gateway in (False, True):
        targets = Targets(allow, is_loopback_gateway=is_loopback_gateway, look_up=names)
        for url in allowed:
            targets.check(url)
            assert resolve(targets, url).ips
        for url in refused:
            with pytest.raises(ValueError, match="--allow-webhook"):
                resolve(targets, url)


@pytest.mark.parametrize(
    "entry",
    ["", "*.", "**", "*.*", "a b", "http://example.org", "example.org:80", "10.0.0.0/33",
     "10.0.0.0/", "2130706433", "127.1", "[::1", "a/b", "user@host", "exa*mple.org", ".example"],
)  # fmt: skip
def test_an_entry_that_names_nothing_is_an_error(entry: str) -> None:
    with pytest.raises(ValueError, match="cannot be allowed for webhooks"):
        Targets([entry], is_loopback_gateway=True)


def test_a_network_with_host_bits_is_an_error_that_names_the_right_one() -> None:
    with pytest.raises(ValueError, match="write 10.0.0.0/8"):
        Targets(["10.1.2.3/8"], is_loopback_gateway=True)


def test_names_that_cannot_be_allowed_are_refused_before_they_are_looked_up() -> None:
    names = Names(web_example=[["93.184.216.34"]])
    by_name = Targets(["*.example.org"], is_loopback_gateway=True, look_up=names)
    with pytest.raises(ValueError, match="web.example is not allowed"):
        by_name.check("http://web.example/")
    Targets(["10.0.0.0/8"], is_loopback_gateway=True).check("http://web.example/")
    assert names.asked == []


def test_a_name_that_turns_to_loopback_after_the_subscription_is_refused() -> None:
    names = Names(rebound_example=[["93.184.216.34"], ["127.0.0.1"]])
    targets = Targets(is_loopback_gateway=False, look_up=names)
    targets.check("http://rebound.example/")
    assert resolve(targets, "http://rebound.example/").ips == (ip_address("93.184.216.34"),)
    with pytest.raises(ValueError, match=r"rebound.example \(127.0.0.1\) is a loopback address"):
        resolve(targets, "http://rebound.example/")


def test_of_a_name_with_many_addresses_only_the_allowed_ones_are_used() -> None:
    many = [f"93.184.216.{number}" for number in range(20)]
    names = Names(mixed_example=[["127.0.0.1", "fe80::1%eth0", "::1", *many, many[0]]])
    targets = Targets(is_loopback_gateway=False, look_up=names)
    assert resolve(targets, "http://mixed.example/").ips == tuple(
        ip_address(each) for each in many[:ADDRESSES_MAX]
    )


def test_a_name_without_addresses_is_not_found_rather_than_refused() -> None:
    names = Names(empty_example=[[]], zoned_example=[["fe80::1%eth0"]])
    targets = Targets(is_loopback_gateway=False, look_up=names)
    for url in ("http://empty.example/", "http://zoned.example/", "http://unknown.example/"):
        with pytest.raises(OSError, match="example"):
            resolve(targets, url)


def test_a_name_with_a_final_dot_is_looked_up_with_it_and_called_without() -> None:
    names = Names(web_example=[["93.184.216.34"]])
    targets = Targets(["web.example"], is_loopback_gateway=False, look_up=names)
    address = resolve(targets, "http://Web.example.:81/")
    assert names.asked == ["web.example."]
    assert address.authority == "web.example:81"


def test_what_is_logged_of_an_address_holds_no_path_and_no_query() -> None:
    assert str(parse_url("https://example.org/secret?token=1")) == "https://example.org:443"
    assert str(parse_url("http://[::1]:81/secret")) == "http://[::1]:81"


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://example.org/", "example.org"),
        ("http://example.org:80/", "example.org"),
        ("http://example.org:443/", "example.org:443"),
        ("https://example.org:443/", "example.org"),
        ("http://[::1]/", "[::1]"),
        ("http://[::1]:81/", "[::1]:81"),
    ],
)
def test_the_host_header_has_the_port_unless_it_is_the_usual_one(url: str, authority: str) -> None:
    assert parse_url(url).authority == authority


@given(st.text(max_size=40) | st.text(alphabet="htp:/@[]%.#?\\127x0a-", max_size=30))
def test_any_text_is_a_url_or_a_value_error(text: str) -> None:
    for url in (text, "http://" + text):
        try:
            parse_url(url)
        except ValueError:
            continue


@pytest.mark.parametrize(
    "url",
    [
        "http://[fd00:ec2::254]/latest/meta-data",
        "http://168.63.129.16/machine",
        "http://192.0.0.192/opc/v1",
        "http://169\u3002254\u3002169\u3002254/",  # full stops of another script
        "http://169\uff0e254\uff0e169\uff0e254/",
    ],
)
def test_what_hands_out_secrets_is_refused_however_it_is_written(url: str) -> None:
    """Also by a gateway on loopback, which posts to private addresses."""
    with pytest.raises(ValueError, match=r"metadata|link-local|cannot be read|neither a host name"):
        Targets(is_loopback_gateway=True).check(url)
