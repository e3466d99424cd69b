"""TLS for connections to brokers: certificates and keys from PEM files or PEM texts, and what a broker has to show."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from typing import TYPE_CHECKING, Final

from barnabas.client.option_reader import SettingsError
from barnabas.client.security import Pem, TlsSettings, store_remedy
from barnabas.net.frames import AuthenticationError, ConnectError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_PEM_START: Final = b"-----BEGIN "
_PEM_BLOCK: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)([^-]*)(-----END [A-Z0-9 ]+-----)")
_PEM_LINE: Final = 64
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_LOST: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a broker that is just stopping does to a handshake, other than refuse it."""


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """What a connection needs to know. Files are read here, so that renewed ones are found by the next connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[each] for each in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.check_hostname = settings.verifies_host_name and settings.verifies_certificate
    context.verify_mode = ssl.CERT_REQUIRED if settings.verifies_certificate else ssl.CERT_NONE
    if settings.ca is None:
        context.load_default_certs()
    else:
        _load_authorities(context, settings.ca)
    if settings.certificate is not None and settings.key is not None:
        _load_identity(context, settings.certificate, settings.key, settings.key_password)
    return context


def secure(plain: socket.socket, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Shake hands with the broker of this name."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationError(
            f"the certificate of {host} was rejected: {error.verify_message} "
            "(ssl.ca.location names the trusted authorities, ssl.endpoint.identification.algorithm says whether the "
            "host name is checked)"
        ) from error
    except OSError as error:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _LOST):
            raise AuthenticationError(f"TLS handshake with {host} failed: {refusal(error)}") from error
        raise ConnectError(
            f"TLS handshake with {host} was interrupted: {error} (does its listener speak TLS?)"
        ) from error


def refusal(error: ssl.SSLError) -> str:
    """What the other side has against us, in words."""
    reason = error.reason or str(error)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return f"its listener does not speak TLS: security.protocol does not fit it ({reason})"
    if "ALERT" in reason:
        return f"it refuses: {reason} (does it want a certificate? ssl.certificate.location and ssl.key.location)"
    return reason


def _load_authorities(context: ssl.SSLContext, ca: Pem) -> None:
    if ca.location is not None and os.path.isdir(ca.location):
        context.load_verify_locations(capath=ca.location)
        return
    with _file_of(ca) as path:
        try:
            context.load_verify_locations(cafile=path)
        except ssl.SSLError as error:
            raise SettingsError(ca.option, f"has no certificates that can be read: {error.reason}") from error


def _load_identity(context: ssl.SSLContext, certificate: Pem, key: Pem, password: str | None) -> None:
    def give_password() -> str:
        # OpenSSL would otherwise ask whoever sits at the terminal.
        if password is None:
            raise SettingsError("ssl.key.password", f"is missing: the key of {key.option} is encrypted")
        return password

    with _file_of(certificate) as certificate_path, _file_of(key) as key_path:
        try:
            context.load_cert_chain(certificate_path, key_path, give_password)
        except ssl.SSLError as error:
            problem = "is not the key of the certificate" if error.reason == "KEY_VALUES_MISMATCH" else "cannot be read"
            wrong_password = " (is ssl.key.password right?)" if password is not None else ""
            raise SettingsError(
                key.option, f"{problem}, or {certificate.option} cannot: {error.reason or error}{wrong_password}"
            ) from error


@contextlib.contextmanager
def _file_of(pem: Pem) -> Iterator[str]:
    """A path that OpenSSL can read. A text gets one in memory where that is possible, so that keys are on no disk."""
    if pem.location is not None:
        _check_file(pem.option, pem.location)
        yield pem.location
        return
    text = as_lines(pem.text or "").encode()
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("pem"), "wb", buffering=0) as file:
            file.write(text)
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="pem") as directory:  # which only this user can enter
        path = os.path.join(directory, "pem")
        with open(path, "wb") as file:
            file.write(text)
        yield path


def _check_file(option: str, location: str) -> None:
    try:
        with open(location, "rb") as file:
            is_pem = _PEM_START in file.read()
    except OSError as error:
        raise SettingsError(option, f"is {location}, which cannot be read here: {error.strerror}") from error
    if not is_pem:
        raise SettingsError(option, f"is {location}, which is no PEM file: {store_remedy(option, location)}")


def as_lines(text: str) -> str:
    """PEM with the line breaks that it needs: in a properties file or an environment variable it often has none."""
    text = text.replace("\\n", "\n")
    if "\n" in text.strip():
        return text
    return _PEM_BLOCK.sub(lambda block: "\n".join(["", block[1], *_lines(block[2]), block[3], ""]), text)


def _lines(base64: str) -> list[str]:
    joined = "".join(base64.split())
    return [joined[start : start + _PEM_LINE] for start in range(0, len(joined), _PEM_LINE)]
