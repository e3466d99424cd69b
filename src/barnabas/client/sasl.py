"""SASL: a client says who it is, and, where the mechanism allows, the broker proves that it knows the password too.

A mechanism is a generator: it yields what the client sends and is sent what the broker answers, so that it needs no
connection to be tested. It ends when it is satisfied, and raises `AuthenticationError` when it is not.

PLAIN sends the password. SCRAM (RFC 5802, RFC 7677) proves that both sides know it and never sends it; Kafka uses it
without channel binding, and takes passwords as they are, without the preparation of RFC 4013. OAUTHBEARER (RFC 7628)
sends a token that a third party vouches for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from barnabas.client.option_reader import SettingsError
from barnabas.client.security import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, SaslSettings, is_token
from barnabas.net.frames import AuthenticationError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.client.broker_connection import Connection

Exchange = Generator[bytes, bytes, None]

SCRAM_HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
SCRAM_ITERATIONS_MIN: Final = 4_096
SCRAM_ITERATIONS_MAX: Final = 1_000_000
"""Each is a hash to compute: fewer than a password deserves, or more than a broker should be able to ask for."""

SESSION_USED: Final = 0.85
"""How much of the time for which a broker accepts a login is used: it ends connections that outlive it."""

_NONCE_BYTES: Final = 24
_SEPARATOR: Final = "\x01"
_TOKEN_FILE_BYTES_MAX: Final = 1 << 20


def authenticate(connection: Connection, settings: SaslSettings) -> None:
    """Log in. Afterwards the connection is as one that needs no login, for as long as the broker says."""
    where, mechanism = connection.address, settings.mechanism
    handshake: m.SaslHandshakeResponse = connection.send(m.SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code == Error.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationError(f"{where} does not take sasl.mechanism {mechanism}; what it takes: {offered}")
    if handshake.error_code != Error.NONE:
        raise AuthenticationError(
            f"{where} refuses a login by SASL (error {handshake.error_code}): does its listener use another protocol?"
        )
    exchange = exchange_of(settings, where)
    message = next(exchange)
    while True:
        response: m.SaslAuthenticateResponse = connection.send(m.SaslAuthenticateRequest(auth_bytes=message))
        if response.error_code != Error.NONE:
            who = f"user {settings.username!r}" if settings.username is not None else "the token"
            raise AuthenticationError(
                f"{where} refuses {who} by {mechanism}: {response.error_message or 'no reason given'}"
            )
        try:
            message = exchange.send(response.auth_bytes)
        except StopIteration:
            break
    if response.session_lifetime_ms > 0:
        connection.usable_until = time.monotonic() + response.session_lifetime_ms / 1000 * SESSION_USED


def exchange_of(settings: SaslSettings, broker: str) -> Exchange:
    """The mechanism that the settings name."""
    username, password = settings.username or "", settings.password or ""
    if settings.mechanism == PLAIN:
        return plain(username, password)
    if settings.mechanism == OAUTHBEARER:
        return oauthbearer(_token(settings), settings.extensions, broker)
    nonce = base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
    return scram(SCRAM_HASHES[settings.mechanism], username, password, nonce, broker)


def plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def oauthbearer(token: str, extensions: tuple[tuple[str, str], ...], broker: str) -> Exchange:
    fields = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions)]
    refusal = yield "".join(["n,,", _SEPARATOR, *(f"{each}{_SEPARATOR}" for each in fields), _SEPARATOR]).encode()
    if refusal:
        # A broker says what it dislikes, and fails the login when it hears that the client has understood.
        yield _SEPARATOR.encode()
        raise AuthenticationError(f"{broker} refuses the token by {OAUTHBEARER}: {refusal.decode(errors='replace')}")


def scram(hash_name: str, username: str, password: str, nonce: str, broker: str) -> Exchange:
    first_bare = f"n={_saslname(username)},r={nonce}"
    server_first = _text((yield f"n,,{first_bare}".encode()), broker)
    given = _attributes(server_first, broker)
    server_nonce, salt, iterations = given.get("r", ""), _bytes(given.get("s", ""), broker), given.get("i", "")
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise AuthenticationError(f"{broker} answered the login with a nonce that does not continue ours")
    if not iterations.isdigit() or not SCRAM_ITERATIONS_MIN <= int(iterations) <= SCRAM_ITERATIONS_MAX:
        raise AuthenticationError(
            f"{broker} asks for {iterations[:20]} iterations of the password's hash: "
            f"what is accepted is {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX}"
        )
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, int(iterations))
    final_bare = f"c={base64.b64encode(b'n,,').decode()},r={server_nonce}"
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    proof = _client_proof(hash_name, salted, signed)
    server_final = _attributes(
        _text((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()), broker), broker
    )
    if "e" in server_final:
        raise AuthenticationError(f"{broker} refuses user {username!r}: {server_final['e']}")
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    signature = _bytes(server_final.get("v", ""), broker)
    if not hmac.compare_digest(hmac.digest(server_key, signed, hash_name), signature):
        raise AuthenticationError(f"{broker} does not know the password of user {username!r}: is it who it says it is?")


def _client_proof(hash_name: str, salted: bytes, signed: bytes) -> bytes:
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    return bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))


def _saslname(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _attributes(message: str, broker: str) -> dict[str, str]:
    """The `name=value` parts of a message of SCRAM; names have one letter."""
    attributes = {}
    for part in message.split(","):
        name, equals, value = part.partition("=")
        if len(name) != 1 or not equals:
            raise AuthenticationError(f"{broker} sent a message in the login that SCRAM does not have")
        attributes[name] = value
    return attributes


def _text(message: bytes, broker: str) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError(f"{broker} sent a message in the login that is no text") from None


def _bytes(encoded: str, broker: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise AuthenticationError(
            f"{broker} sent a message in the login that is not base64 where it should be"
        ) from None


def _token(settings: SaslSettings) -> str:
    """The token, read anew for each login where it is in a file: something else keeps it fresh there."""
    if settings.token is not None:
        return settings.token
    option, file = "sasl.oauthbearer.token.endpoint.url", settings.token_file or ""
    try:
        with open(file, encoding="ascii") as opened:
            token = opened.read(_TOKEN_FILE_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(option, f"names {file}, which cannot be read: {error.__class__.__name__}") from error
    if not is_token(token):
        raise SettingsError(option, f"names {file}, in which there is no bearer token")
    return token
