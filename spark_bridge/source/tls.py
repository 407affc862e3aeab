"""TLS to a bridge. Its certificate has to come from a trusted CA and to name the bridge."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from .errors import TlsError

#: OpenSSL's codes for a certificate of another host name, and of another IP address.
_WRONG_NAME = (62, 64)
_EXPIRED = 10

#: How OpenSSL calls bytes that are no TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")

_find_certificates = re.compile(
    r"-----BEGIN CERTIFICATE-----[\s\w+/=]+-----END CERTIFICATE-----", re.ASCII
).findall


class Trust(NamedTuple):
    """Whom to trust."""

    #: Certificates of CAs in PEM; None: those of the machine that connects.
    ca: str | None = None


def read_ca(path: str) -> str:
    """Return the certificates in a file. A ValueError says, after the path, what is wrong.

    The driver reads the file; tasks on other machines get what is in it.
    """
    try:
        found = _find_certificates(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    text = "\n".join(found)
    try:
        ssl.create_default_context(cadata=text or "-")
    except ssl.SSLError:
        raise ValueError("contains no certificate in the format PEM") from None
    return text


def encrypt(sock: socket.socket, address: str, host: str, trust: Trust) -> ssl.SSLSocket:
    """Speak TLS on a new connection from now on.

    Raises TlsError if that will never succeed, and OSError if it may succeed later.
    """
    context = ssl.create_default_context(cadata=trust.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise TlsError(_explain(error, address, host)) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise ConnectionResetError("it hung up in the TLS handshake") from error
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            reason = (
                f"what answers at {address} does not speak TLS: start the bridge with --tls-cert "
                "and --tls-key, or leave out the option tls"
            )
        else:
            words = str(error.reason or error).lower().replace("_", " ")
            reason = f"no TLS with the bridge at {address}: {words}"
        raise TlsError(reason) from error


def _explain(error: ssl.SSLCertVerificationError, address: str, host: str) -> str:
    if error.verify_code in _WRONG_NAME:
        return (
            f"the certificate of the bridge at {address} is not for {host}: connect by a name that "
            "it has, or give the bridge another one"
        )
    if error.verify_code == _EXPIRED:
        return f"the certificate of the bridge at {address} has expired: renew it"
    return (
        f"the certificate of the bridge at {address} is not trusted ({error.verify_message}): "
        "name the file of its CA by the option tlsCa"
    )
