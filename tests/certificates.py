"""Certificates for tests: an authority of their own, and what it issues.

authority = Authority(tmp_path)
good = authority.issue("localhost", "127.0.0.1")
jsonbus.tls.certificate.ServerCertificate(good.cert, good.key)
ssl.create_default_context(cafile=authority.path)
"""

from __future__ import annotations

import ipaddress
import itertools
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = timedelta(days=1)


class Files(NamedTuple):
    cert: Path
    key: Path


class Authority:
    """A CA; `path` is its certificate."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"test {name}")])
        self._numbers = itertools.count(1)
        self.path = folder / f"{name}.pem"
        made = self._sign(self._name, self._key, is_ca=True)
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, *names: str, is_expired: bool = False, password: bytes | None = None) -> Files:
        """A certificate for these host names and addresses; for localhost without any."""
        number = next(self._numbers)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"server {number}")])
        made = self._sign(subject, key, names or ("localhost", "127.0.0.1"), is_expired=is_expired)
        files = Files(self._folder / f"cert-{number}.pem", self._folder / f"key-{number}.pem")
        files.cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption()
                if password is None
                else serialization.BestAvailableEncryption(password),
            )
        )
        files.key.chmod(0o600)
        return files

    def client(self) -> ssl.SSLContext:
        """A context that trusts this authority alone."""
        return ssl.create_default_context(cafile=self.path)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        names: tuple[str, ...] = (),
        *,
        is_ca: bool = False,
        is_expired: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now - DAY if is_expired else now + DAY)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            # Newer clients insist on these two.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        if names:
            found = x509.SubjectAlternativeName([_general(each) for each in names])
            builder = builder.add_extension(found, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
