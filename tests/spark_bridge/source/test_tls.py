"""Spark's end of TLS: whom it trusts, and what it says when it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jsonbus.tls.certificate import ServerCertificate
from spark_bridge.source.client import Endpoint
from spark_bridge.source.errors import OptionError, RefusedError, SourceError, TlsError
from spark_bridge.source.options import parse_options
from spark_bridge.source.sink_options import parse_sink_options
from spark_bridge.source.tls import Trust, read_ca
from tests.certificates import Authority
from tests.spark_bridge.served_log import ServedLog
from tests.spark_bridge.source.spark_query import Query
from tests.spark_bridge.source.test_client import scripted

OpenLog = Callable[..., ServedLog]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def serve(open_log: OpenLog, authority: Authority) -> Callable[..., ServedLog]:
    def serve_one(*names: str, is_expired: bool = False) -> ServedLog:
        files = authority.issue(*names, is_expired=is_expired)
        return open_log(certificate=ServerCertificate(*files))

    return serve_one


def ask(address: str, trust: Trust | None) -> object:
    return Endpoint(address, None, 1.0, trust).ask({"op": "poll"})["end"]


def test_a_query_reads_over_tls(
    serve: Callable[..., ServedLog], authority: Authority, query: Callable[..., Query]
) -> None:
    served = serve()
    served.publish(range(5_000))
    reading = query(served, tls="true", tlsCa=str(authority.path))
    reading.plan()
    assert [int(row[1]) for row in reading.run()] == list(range(5_000))
    served.publish(range(5_000, 5_010))
    reading.plan()
    assert len(reading.run()) in (10, 5_010)
    assert served.stats()["tls_plain_clients"] == 0


def test_an_idle_connection_is_used_again_and_a_dead_one_is_not(
    serve: Callable[..., ServedLog], authority: Authority
) -> None:
    served, trust = serve(), Trust(read_ca(str(authority.path)))
    for _ in range(3):
        assert ask(served.address, trust) == [0, 0]
    assert served.stats()["tls_handshakes"] == 1
    served.stop()
    served.start()
    assert ask(served.address, trust) == [0, 0]
    assert served.stats()["tls_handshakes"] == 1


@pytest.mark.parametrize(
    ("names", "is_expired", "reason"),
    [
        (("elsewhere.example",), False, "is not for 127.0.0.1: connect by a name that it has"),
        (("10.0.0.1",), False, "is not for 127.0.0.1: connect by a name that it has"),
        ((), True, "has expired: renew it"),
    ],
)
def test_a_certificate_of_another_name_or_time_is_refused(
    serve: Callable[..., ServedLog],
    authority: Authority,
    names: tuple[str, ...],
    is_expired: bool,
    reason: str,
) -> None:
    served = serve(*names, is_expired=is_expired)
    with pytest.raises(TlsError, match=rf"certificate of the bridge at {served.address} {reason}"):
        ask(served.address, Trust(read_ca(str(authority.path))))


@pytest.mark.parametrize("has_ca", [True, False])
def test_a_certificate_of_another_authority_is_refused(
    serve: Callable[..., ServedLog], tmp_path: Path, has_ca: bool
) -> None:
    served = serve()
    other = Authority(tmp_path, "other")
    trust = Trust(read_ca(str(other.path)) if has_ca else None)
    with pytest.raises(TlsError, match=r"is not trusted \(.*\): name the file of its CA by the op"):
        ask(served.address, trust)


def test_a_host_is_checked_by_its_name(
    serve: Callable[..., ServedLog], authority: Authority
) -> None:
    served = serve("localhost")
    trust = Trust(read_ca(str(authority.path)))
    assert ask(served.address.replace("127.0.0.1", "localhost"), trust) == [0, 0]


def test_a_bridge_without_tls_is_told_in_one_sentence(
    served: ServedLog, authority: Authority
) -> None:
    with pytest.raises(TlsError, match=f"what answers at {served.address} does not speak TLS: st"):
        ask(served.address, Trust(read_ca(str(authority.path))))


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0" * 100,
        b"220 hello\r\n",
    ],
)
def test_what_speaks_no_tls_is_told_so_whatever_it_is(authority: Authority, words: bytes) -> None:
    with scripted(words) as address, pytest.raises(TlsError, match="TLS") as raised:
        ask(address, Trust(read_ca(str(authority.path))))
    assert "does not speak TLS" in str(raised.value)


def test_who_hangs_up_in_the_handshake_is_tried_again_until_the_timeout(
    served: ServedLog, authority: Authority
) -> None:
    with scripted() as address, pytest.raises(SourceError, match="no bridge at"):
        ask(address, Trust(read_ca(str(authority.path))))


def test_a_query_without_tls_is_told_that_the_bridge_speaks_it(
    serve: Callable[..., ServedLog],
) -> None:
    served = serve()
    with pytest.raises(RefusedError, match="it speaks TLS: set the option tls to true"):
        ask(served.address, None)


def test_options_of_source_and_sink(authority: Authority) -> None:
    given = {"tls": "true", "tlsCa": str(authority.path)}
    trust = Trust(authority.path.read_text().strip())
    for parsed in (parse_options(given, frozenset()), parse_sink_options(given)):
        assert [each.trust for each in parsed.endpoints] == [trust]
    assert parse_sink_options({"tls": "true"}).endpoints[0].trust == Trust(None)
    assert parse_sink_options({"tls": "false"}).endpoints[0].trust is None


@pytest.mark.parametrize(
    "parse", [lambda given: parse_options(given, frozenset()), parse_sink_options]
)
def test_options_that_cannot_be(
    parse: Callable[[dict[str, str]], object], authority: Authority, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate\n")
    for given, reason in (
        ({"tls": "maybe"}, "option tls: 'maybe' is neither false nor true"),
        ({"tlsCa": str(authority.path)}, "option tlsCa: it needs the option tls"),
        ({"tls": "true", "tlsCa": "/nowhere/ca.pem"}, "option tlsCa: .* cannot be read: No such"),
        ({"tls": "true", "tlsCa": str(empty)}, "option tlsCa: .* contains no certificate"),
    ):
        with pytest.raises(OptionError, match=reason):
            parse(given)


def test_a_file_may_have_several_certificates_and_words(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    both = tmp_path / "both.pem"
    both.write_text(f"# erste: ü\n{first.path.read_text()}# second\n{second.path.read_text()}")
    assert read_ca(str(both)).count("BEGIN") == 2
