"""A connection to a broker that is ready for requests: reached, encrypted, logged in, and asked what it speaks."""

from __future__ import annotations

import functools
import ssl
from typing import TYPE_CHECKING

from barnabas.client import sasl, tls
from barnabas.client.wire import AuthenticationError, Connection, ConnectionLostError

if TYPE_CHECKING:
    from barnabas.client.settings import Address, ClientSettings


def dial(settings: ClientSettings, address: Address, timeout_s: float) -> Connection:
    """Connect as the settings say. Whatever a step of it takes, it takes no longer than the timeout."""
    security = settings.security
    secure = None
    if security.tls is not None:
        secure = functools.partial(tls.secure, host=address.host, context=tls.client_context(security.tls))
    connection = Connection(
        address.host, address.port, client_id=settings.client_id, timeout_s=timeout_s, secure=secure
    )
    try:
        connection.versions()
        if security.sasl is not None:
            sasl.authenticate(connection, security.sasl)
    except ConnectionLostError as error:
        connection.close()
        # In TLS 1.3 a broker that wants another certificate says so after the handshake.
        if isinstance(error.__cause__, ssl.SSLError) and not isinstance(error.__cause__, ssl.SSLEOFError):
            raise AuthenticationError(f"no TLS with {address}: {tls.refusal(error.__cause__)}") from error
        raise
    except BaseException:
        connection.close()
        raise
    connection.timeout_s = settings.request_timeout_ms / 1000
    return connection
