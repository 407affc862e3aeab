"""A certificate from two files: what is refused, and how it is renewed."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jsonbus.errors import ConfigError
from jsonbus.tls import certificate
from jsonbus.tls.certificate import ServerCertificate, load_certificate
from tests.certificates import Authority, Files

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def serial_of(served: ServerCertificate, trusted: ssl.SSLContext) -> str:
    """The serial number of the certificate that a new client gets."""
    ours, theirs = socket.socketpair()
    ours.settimeout(TIMEOUT_S)
    theirs.settimeout(TIMEOUT_S)

    def serve() -> None:
        with served.context.wrap_socket(theirs, server_side=True) as connection:
            connection.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    try:
        with trusted.wrap_socket(ours, server_hostname="localhost") as connection:
            shown = connection.getpeercert()
            assert shown is not None
            assert connection.version() in ("TLSv1.2", "TLSv1.3")
            connection.sendall(b"x")
            return str(shown["serialNumber"])
    finally:
        server.join()


def test_neither_file_is_no_tls_and_one_alone_is_refused(authority: Authority) -> None:
    files = authority.issue()
    assert load_certificate(None, None) is None
    for cert, key in ((files.cert, None), (None, files.key)):
        with pytest.raises(ConfigError, match="give both --tls-cert and --tls-key"):
            load_certificate(cert, key)
    assert load_certificate(*files) is not None


def missing_certificate(files: Files) -> Files:
    files.cert.unlink()
    return files


def missing_key(files: Files) -> Files:
    files.key.unlink()
    return files


def swapped(files: Files) -> Files:
    files.cert.chmod(0o600)
    return Files(files.key, files.cert)


def public_key_file(files: Files) -> Files:
    files.key.chmod(0o604)
    return files


def garbage(files: Files) -> Files:
    text = files.cert.read_text().splitlines()
    files.cert.write_text("\n".join([text[0], "bm90IGEgY2VydGlmaWNhdGU=", text[-1], ""]))
    return files


def no_file(files: Files) -> Files:
    return Files(files.cert.parent, files.key)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            missing_certificate,
            r"the TLS certificate \S+ cannot be read: no such file or directory$",
        ),
        (missing_key, r"the TLS private key \S+ cannot be read: no such file or directory$"),
        (no_file, r"the TLS certificate \S+ cannot be read: is a directory$"),
        (swapped, r"contains no certificate in the format PEM"),
        (garbage, r"the TLS certificate in \S+ with the key in \S+ cannot be used: "),
        (public_key_file, r"everybody on this machine may use the private key .*`chmod 640 \S+`"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence(
    tmp_path: Path, spoil: Callable[[Files], Files], reason: str
) -> None:
    files = spoil(Authority(tmp_path).issue())
    with pytest.raises(ConfigError, match=reason) as raised:
        ServerCertificate(*files)
    assert "\n" not in str(raised.value)
    assert "_ssl.c" not in str(raised.value)


def test_the_key_of_another_certificate_is_refused(authority: Authority) -> None:
    one, other = authority.issue(), authority.issue()
    with pytest.raises(ConfigError, match="is not that of the certificate in"):
        ServerCertificate(one.cert, other.key)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(authority: Authority) -> None:
    files = authority.issue(password=b"hidden")
    with pytest.raises(ConfigError, match="is encrypted, .* by `openssl pkey -in"):
        ServerCertificate(*files)


def test_a_group_may_read_the_key(authority: Authority) -> None:
    files = authority.issue()
    files.key.chmod(0o640)
    ServerCertificate(*files)


def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    served = ServerCertificate(*authority.issue())
    assert served.context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_renewed_certificate_is_given_to_the_next_client(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate, "LOOK_S", 0.0)
    files, renewed = authority.issue(), authority.issue()
    served, trusted = ServerCertificate(*files), authority.client()
    first = serial_of(served, trusted)
    assert serial_of(served, trusted) == first
    os.replace(renewed.cert, files.cert)
    os.replace(renewed.key, files.key)
    assert serial_of(served, trusted) != first


def test_a_renewal_that_is_caught_halfway_leaves_the_last_certificate(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificate, "LOOK_S", 0.0)
    files, renewed = authority.issue(), authority.issue()
    served, trusted = ServerCertificate(*files), authority.client()
    first = serial_of(served, trusted)
    os.replace(renewed.cert, files.cert)
    with caplog.at_level(logging.INFO, "jsonbus.tls"):
        assert [serial_of(served, trusted) for _ in range(3)] == [first] * 3
    assert [each.levelname for each in caplog.records] == ["WARNING"]  # once
    assert "is not that of the certificate" in caplog.text
    os.replace(renewed.key, files.key)
    assert serial_of(served, trusted) != first


def test_the_files_are_not_looked_at_for_every_client(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = authority.issue()
    served, trusted = ServerCertificate(*files), authority.client()
    first = serial_of(served, trusted)
    files.cert.unlink()
    files.key.unlink()
    assert serial_of(served, trusted) == first
    monkeypatch.setattr(certificate, "LOOK_S", 0.0)
    assert serial_of(served, trusted) == first  # and what is gone is still served
