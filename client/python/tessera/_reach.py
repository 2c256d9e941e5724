"""Diagnoses failed connections to a server."""

from __future__ import annotations

import socket
import ssl

from tessera import errors

_CONNECT_TIMEOUT = 1.0  # timeout of an attempt, in seconds


def never_connected(text: str) -> bool:
    """Returns whether the message of an UNAVAILABLE gRPC call says that there was no connection."""
    return text.startswith("failed to connect to all addresses") or "DNS resolution failed" in text


def holds_certificates(pem: bytes) -> bool:
    """Returns whether `pem` is PEM text with at least one certificate."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=_text(pem))
    except (ValueError, ssl.SSLError):  # There is no certificate, or an invalid one.
        return False
    return True


def _text(pem: bytes) -> str:
    """Returns the PEM text without non-ASCII characters, which may stand between certificates."""
    return pem.decode("ascii", "ignore")


def _handshake(address: str, ca: bytes | None = None, name: str | None = None) -> bool | None:
    """Returns whether the server speaks TLS. If `ca` is given, the server's certificate must come
    from it and be for `name` or, without that, for the address.

    Returns None if there is no answer: no server listens, or it has just ended."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=_text(ca))
    context.set_alpn_protocols(["h2"])
    try:
        plain = socket.create_connection((host, int(port)), _CONNECT_TIMEOUT)
    except (OSError, ValueError):
        return None
    with plain:
        try:
            with context.wrap_socket(plain, server_hostname=name or host):
                return True
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return None
        except ssl.SSLError:
            return False
        except OSError:
            return None


def explain(address: str, ca: bytes | None, name: str | None) -> errors.Error | None:
    """Returns the error if the two sides do not agree on TLS. Returns None if they do agree, or if
    there is no response."""
    server = _handshake(address)
    if server is None:
        return None
    if server and ca is None:
        why = "speaks TLS, and was called in plain text: give ca=, or set TESSERA_CA_FILE"
    elif not server and ca is not None:
        why = (
            "does not speak TLS, and was called with it: leave out ca= and TESSERA_CA_FILE, "
            "or check the address"
        )
    elif ca is not None and _handshake(address, ca, name) is False:
        why = (
            "has a certificate that does not come from the authority in ca= (TESSERA_CA_FILE), or"
            " does not name this address"
        )
    else:  # The server has started meanwhile.
        return None
    return errors.FailedPreconditionError(f"{address} {why}", reason="TLS_MISMATCH")
