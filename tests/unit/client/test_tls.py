"""TLS with brokers whose certificates are right, wrong, or not there at all."""

from __future__ import annotations

import errno
import os
import ssl
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client import tls
from barnabas.client.cluster import Cluster
from barnabas.client.option_reader import SettingsError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from tests.certificates import PASSWORD, Authority, Identity
from tests.unit.client.brokers import FakeBroker, broker, knows, partitions_of, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.sign("client")


def server_context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


@pytest.fixture(scope="module")
def context(authority: Authority) -> ssl.SSLContext:
    return server_context(authority.sign("broker"))


@pytest.fixture
def secured(context: ssl.SSLContext) -> Iterator[FakeBroker]:
    with broker({}, context=context) as node:
        node.answers[ApiKey.METADATA] = knows({1: node}, {"t": {0: 1}})
        yield node


@pytest.fixture
def demanding(authority: Authority) -> Iterator[FakeBroker]:
    """A broker that wants to see a certificate of its clients."""
    context = server_context(authority.sign("demanding"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.certificate)
    with broker({}, context=context) as node:
        node.answers[ApiKey.METADATA] = knows({1: node}, {"t": {0: 1}})
        yield node


def connects(node: FakeBroker, **options: str) -> bool:
    with Cluster.connect(settings_for(node, security_protocol="SSL", **options)) as cluster:
        return partitions_of(cluster, "t") == {"t": [0]}


def test_a_broker_whose_certificate_is_signed_by_somebody_trusted_is_talked_to(
    secured: FakeBroker, authority: Authority
) -> None:
    assert connects(secured, ssl_ca_location=str(authority.certificate))
    assert connects(secured, ssl_truststore_location=str(authority.certificate), ssl_truststore_type="PEM")


@pytest.mark.parametrize("line_break", ["\n", "\\n", " ", ""])
def test_a_certificate_may_come_as_a_text_with_whatever_line_breaks(
    secured: FakeBroker, authority: Authority, line_break: str
) -> None:
    text = authority.certificate.read_text().replace("\n", line_break)
    assert connects(secured, ssl_truststore_certificates=text)


def test_a_folder_of_certificates_is_understood(secured: FakeBroker, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_text(authority.certificate.read_text())
    subprocess.run(["openssl", "rehash", str(tmp_path)], check=True, timeout=60)
    assert connects(secured, ssl_ca_location=str(tmp_path))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_versions_of_tls_are_spoken(secured: FakeBroker, authority: Authority, version: str) -> None:
    assert connects(secured, ssl_ca_location=str(authority.certificate), ssl_enabled_protocols=version)


def test_a_broker_that_nobody_trusted_has_signed_is_refused_at_once(secured: FakeBroker, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with pytest.raises(KafkaError, match=r"certificate of 127.0.0.1 was rejected: .*ssl.ca.location") as caught:
        connects(secured, ssl_ca_location=str(stranger.certificate))
    assert caught.value.error is Error.SASL_AUTHENTICATION_FAILED
    assert not secured.requests


def test_authorities_of_the_system_are_trusted_where_none_is_named(secured: FakeBroker) -> None:
    with pytest.raises(KafkaError, match="was rejected"):
        connects(secured)


def test_a_broker_under_another_name_is_refused_unless_names_do_not_count(authority: Authority) -> None:
    context = server_context(authority.sign("elsewhere", "DNS:elsewhere.example.com"))
    with broker({}, context=context) as node:
        node.answers[ApiKey.METADATA] = knows({1: node}, {"t": {0: 1}})
        with pytest.raises(KafkaError, match=r"IP address mismatch.*ssl.endpoint.identification.algorithm"):
            connects(node, ssl_ca_location=str(authority.certificate))
        assert connects(node, ssl_ca_location=str(authority.certificate), ssl_endpoint_identification_algorithm="none")


def test_certificates_are_not_looked_at_where_that_is_asked_for(secured: FakeBroker) -> None:
    assert connects(secured, enable_ssl_certificate_verification="false")


def test_a_client_shows_a_certificate_to_a_broker_that_wants_one(
    demanding: FakeBroker, authority: Authority, client: Identity, tmp_path: Path
) -> None:
    trust = {"ssl_ca_location": str(authority.certificate)}
    store = tmp_path / "client.pem"
    store.write_text(client.together(client.encrypted_key))
    ways = [
        {"ssl_certificate_location": str(client.certificate), "ssl_key_location": str(client.key)},
        {
            "ssl_certificate_location": str(client.certificate),
            "ssl_key_location": str(client.encrypted_key),
            "ssl_key_password": PASSWORD,
        },
        {
            "ssl_keystore_certificate_chain": client.certificate.read_text(),
            "ssl_keystore_key": client.encrypted_key.read_text(),
            "ssl_key_password": PASSWORD,
        },
        {"ssl_keystore_location": str(store), "ssl_keystore_type": "PEM", "ssl_key_password": PASSWORD},
    ]
    assert all(connects(demanding, **trust, **way) for way in ways)


def test_texts_work_where_files_cannot_be_in_memory(
    demanding: FakeBroker, authority: Authority, client: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert connects(
        demanding,
        ssl_ca_pem=authority.certificate.read_text(),
        ssl_certificate_pem=client.certificate.read_text(),
        ssl_key_pem=client.key.read_text(),
    )
    assert not list(tmp_path.iterdir())


def test_a_line_that_breaks_during_the_handshake_is_only_a_delay(
    secured: FakeBroker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.EHOSTUNREACH, "No route to host"), OSError(errno.ENETDOWN, "Network is down")]
    wrap = ssl.SSLContext.wrap_socket

    def wrap_or_fail(*arguments: Any, **options: Any) -> Any:
        if not options.get("server_side") and failures:
            raise failures.pop()
        return wrap(*arguments, **options)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_or_fail)
    assert connects(secured, ssl_ca_location=str(authority.certificate))
    assert not failures


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_broker_that_wants_a_certificate_and_gets_none_is_an_error_at_once(
    demanding: FakeBroker, authority: Authority, version: str
) -> None:
    with pytest.raises(KafkaError, match=r"TLS handshake with .* failed: .*does it want a certificate\?"):
        connects(demanding, ssl_ca_location=str(authority.certificate), ssl_enabled_protocols=version)


def test_a_listener_without_tls_is_recognised() -> None:
    with (
        broker({}) as plain,
        pytest.raises(KafkaError, match=r"TLS handshake with .* was interrupted: .*does its listener speak TLS"),
    ):
        connects(plain, default_api_timeout_ms="200")


def test_a_client_without_tls_is_told_of_it(secured: FakeBroker) -> None:
    with pytest.raises(KafkaError, match=r"without TLS|security\.protocol"):
        Cluster.connect(settings_for(secured, default_api_timeout_ms="200"))


def test_files_that_are_of_no_use_are_named_before_anything_is_connected(
    secured: FakeBroker, authority: Authority, client: Identity, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    empty = tmp_path / "empty.pem"
    empty.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    stranger = Authority(tmp_path, "stranger").sign("stranger-client")
    certificate, key = str(client.certificate), str(client.key)
    for options, problem in [
        (
            {"ssl_ca_location": str(tmp_path / "absent.pem")},
            r"ssl\.ca\.location is .*absent\.pem, which cannot be read",
        ),
        ({"ssl_truststore_location": str(store)}, r"ssl\.truststore\.location is .*no PEM file: `keytool .*ca\.pem"),
        ({"ssl_keystore_location": str(store)}, r"ssl\.keystore\.location is .*no PEM file: `keytool .*client\.pem"),
        ({"ssl_ca_location": str(empty)}, r"ssl\.ca\.location has no certificates"),
        (
            {"ssl_certificate_location": certificate, "ssl_key_location": str(stranger.key)},
            r"ssl\.key\.location is not the key of the certificate",
        ),
        (
            {"ssl_certificate_location": certificate, "ssl_key_location": str(client.encrypted_key)},
            r"ssl\.key\.password is missing: the key of ssl\.key\.location is encrypted",
        ),
        (
            {
                "ssl_certificate_location": certificate,
                "ssl_key_location": str(client.encrypted_key),
                "ssl_key_password": "wrong",
            },
            r"is ssl\.key\.password right\?",
        ),
        ({"ssl_certificate_location": key, "ssl_key_location": key}, r"ssl\.certificate\.location cannot"),
    ]:
        with pytest.raises(SettingsError, match=problem):
            connects(secured, **options)
    assert not secured.requests


def test_pem_that_has_its_line_breaks_is_left_alone(authority: Authority) -> None:
    text = authority.certificate.read_text()
    assert tls.as_lines(text) == text
    assert tls.as_lines(text.replace("\n", "")).strip() == text.strip()
