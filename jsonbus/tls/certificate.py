"""ServerCertificate: a certificate and its key from two files, read again when they change.

A renewal replaces the files one after the other, or moves a link. So whoever serves looks at them
again when a client connects, at most every LOOK_S: no timer, no signal, no restart. What is read is
a new context, which replaces the last one only if it is whole; otherwise the last one stays, a
warning says why, and the next change is read again. Loading a new pair into the context in use
would leave it without a key if the renewal were caught halfway.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from pathlib import Path

from ..errors import ConfigError

logger = logging.getLogger("jsonbus.tls")

#: Renewals come days before the old certificate expires.
LOOK_S = 10.0

#: Others, that is, neither the owner nor the group of the file.
_OTHERS = 0o007

_Signature = tuple[tuple[int, int, int] | None, ...]


class ServerCertificate:
    """The certificate of a server. `context` is for its connections, now and later.

    Raises ConfigError, in one sentence that names the file and never shows what is in it.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert = cert
        self._key = key
        self._seen = self._look()
        self._looked_at = time.monotonic()
        self._newest = _load(cert, key)
        self.context = _load(cert, key)
        self.context.sni_callback = self._choose

    def renew(self) -> None:
        """Use the files as they are now, if they have changed and are in order."""
        self._looked_at = time.monotonic()
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._newest = _load(self._cert, self._key)
        except ConfigError as error:
            logger.warning("new connections still get the last TLS certificate: %s", error)
        else:
            logger.info("new connections get the TLS certificate that %s has now", self._cert)

    def _choose(
        self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext
    ) -> None:
        """Called by `ssl` in each handshake, also if the client names no server."""
        if time.monotonic() - self._looked_at >= LOOK_S:
            self.renew()
        connection.context = self._newest

    def _look(self) -> _Signature:
        return tuple(_signature_of(each) for each in (self._cert, self._key))


def load_certificate(cert: Path | None, key: Path | None) -> ServerCertificate | None:
    """Return the certificate in these files, or None if there are none. Raises ConfigError."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise ConfigError(
            "a TLS certificate and its private key go together: give both --tls-cert and --tls-key"
        )
    return ServerCertificate(cert, key)


def _load(cert: Path, key: Path) -> ssl.SSLContext:
    _check(cert, b" CERTIFICATE-----", "certificate")
    _check(key, b" PRIVATE KEY-----", "private key")
    _check_secrecy(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could make us repeat the handshake, the costly part, as often as it likes.
    context.options |= ssl.OP_NO_RENEGOTIATION

    def refuse_password() -> str:  # otherwise OpenSSL would ask for it on the terminal
        raise ConfigError(
            f"the private key in {key} is encrypted, and nobody is there to type its password: "
            f"write it without, by `openssl pkey -in {key} -out FILE`"
        )

    try:
        context.load_cert_chain(cert, key, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"the private key in {key} is not that of the certificate in {cert}"
        else:
            words = str(error.reason or "not valid").lower().replace("_", " ")
            reason = f"the TLS certificate in {cert} with the key in {key} cannot be used: {words}"
        raise ConfigError(reason) from error
    except OSError as error:  # they were there a moment ago
        raise ConfigError(f"{cert} and {key} cannot be read: {_words_of(error)}") from error
    return context


def _check(path: Path, mark: bytes, what: str) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the TLS {what} {path} cannot be read: {_words_of(error)}") from error
    if mark not in content:
        raise ConfigError(f"{path} contains no {what} in the format PEM (-----BEGIN …-----)")


def _check_secrecy(key: Path) -> None:
    """Refuse a key that everybody on this machine may read, as ssh and PostgreSQL do.

    A warning would be read by nobody, and the key is as good as published. A group may read it:
    this is how Debian (`ssl-cert`) and containers give a key to a service.
    """
    if os.name == "posix" and key.stat().st_mode & _OTHERS:
        raise ConfigError(
            f"everybody on this machine may use the private key in {key}: `chmod 640 {key}`, or 600"
        )


def _signature_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _words_of(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
