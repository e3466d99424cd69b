"""The mechanisms of SASL, by the examples of their RFCs and against brokers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

import pytest

from barnabas.client import sasl
from barnabas.client.broker_connection import AuthenticationError
from barnabas.client.option_reader import SettingsError
from barnabas.client.security import SaslSettings

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.client.sasl import Exchange

BROKER = "broker:9092"
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def reply(exchange: Exchange, message: bytes) -> bytes:
    """What the client says to this; empty where it is satisfied."""
    try:
        return exchange.send(message)
    except StopIteration:
        return b""


def test_scram_with_sha_1_is_as_in_rfc_5802() -> None:
    exchange = sasl.scram("sha1", "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL", BROKER)
    assert next(exchange) == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    assert (
        reply(exchange, b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
        == b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    assert reply(exchange, b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") == b""


def test_scram_with_sha_256_is_as_in_rfc_7677() -> None:
    exchange = sasl.scram("sha256", "user", "pencil", NONCE, BROKER)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert reply(exchange, SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert reply(exchange, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""


def test_scram_with_sha_512_proves_what_a_broker_with_the_stored_keys_expects() -> None:
    salt, first = b"salt of the user", "n=a=2Cb=3Dc,r=nonce"
    server_first = f"r=nonce+more,s={base64.b64encode(salt).decode()},i=8192"
    exchange = sasl.scram("sha512", "a,b=c", "pässword", "nonce", BROKER)
    assert next(exchange) == f"n,,{first}".encode()
    final, _, proof = reply(exchange, server_first.encode()).decode().rpartition(",p=")

    salted = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), salt, 8192)
    stored_key = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signed = f"{first},{server_first},{final}".encode()
    mask = hmac.digest(stored_key, signed, "sha512")
    shown_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), mask, strict=True))
    assert hashlib.sha512(shown_key).digest() == stored_key

    signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
    assert reply(exchange, b"v=" + base64.b64encode(signature)) == b""


@pytest.mark.parametrize(
    ("server_first", "problem"),
    [
        (b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"4096", b"1000001"), "1000001 iterations"),
        (SERVER_FIRST.replace(b"4096", b"many"), "many iterations"),
        (SERVER_FIRST.replace(b"W22", b"!22"), "not base64"),
        (b"hello", "SCRAM does not have"),
        (b"", "SCRAM does not have"),
        (b"\xff\xfe", "no text"),
    ],
)
def test_scram_goes_no_further_with_a_broker_that_makes_no_sense(server_first: bytes, problem: str) -> None:
    exchange = sasl.scram("sha256", "user", "pencil", NONCE, BROKER)
    next(exchange)
    with pytest.raises(AuthenticationError, match=f"^broker:9092 .*{problem}"):
        exchange.send(server_first)


@pytest.mark.parametrize(
    ("server_final", "problem"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not know the password of user 'user'"),
        (b"v=", "does not know the password"),
        (b"x=y", "does not know the password"),
        (b"e=invalid-proof", "refuses user 'user': invalid-proof"),
    ],
)
def test_scram_trusts_no_broker_that_does_not_know_the_password(server_final: bytes, problem: str) -> None:
    exchange = sasl.scram("sha256", "user", "pencil", NONCE, BROKER)
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=problem) as caught:
        exchange.send(server_final)
    assert "pencil" not in str(caught.value)


def test_each_login_by_scram_has_a_nonce_of_its_own() -> None:
    settings = SaslSettings("SCRAM-SHA-256", username="user", password="pencil")
    assert next(sasl.exchange_of(settings, BROKER)) != next(sasl.exchange_of(settings, BROKER))


def test_plain_sends_user_and_password() -> None:
    exchange = sasl.exchange_of(SaslSettings("PLAIN", username="tim", password="tanstaaftanstaaf"), BROKER)
    assert next(exchange) == b"\0tim\0tanstaaftanstaaf"
    assert reply(exchange, b"") == b""


def test_a_token_is_sent_with_its_extensions() -> None:
    settings = SaslSettings("OAUTHBEARER", token="vF9dft4qmT", extensions=(("pool", "p"),))
    exchange = sasl.exchange_of(settings, BROKER)
    assert next(exchange) == b"n,,\x01auth=Bearer vF9dft4qmT\x01pool=p\x01\x01"
    assert reply(exchange, b"") == b""


def test_a_refused_token_is_acknowledged_so_that_the_broker_says_why() -> None:
    exchange = sasl.oauthbearer("vF9dft4qmT", (), BROKER)
    next(exchange)
    assert reply(exchange, b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match=r"broker:9092 refuses the token .*invalid_token") as caught:
        exchange.send(b"")
    assert "vF9dft4qmT" not in str(caught.value)


def test_a_token_in_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = SaslSettings("OAUTHBEARER", token_file=str(file))
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert f"Bearer {token}\x01".encode() in next(sasl.exchange_of(settings, BROKER))


@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff"])
def test_a_file_without_a_token_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=str(file)):
        sasl.exchange_of(SaslSettings("OAUTHBEARER", token_file=str(file)), BROKER)
