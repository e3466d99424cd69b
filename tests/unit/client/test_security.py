"""Security options: what they ask for, under both sets of names, and which of them contradict each other."""

from __future__ import annotations

import pytest

from barnabas.client.option_reader import Options, SettingsError
from barnabas.client.security import Pem, SaslSettings, SecuritySettings, TlsSettings, security_of

SECRET = "hunter2"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

SSL = {"security.protocol": "SSL"}
SASL = {"security.protocol": "SASL_PLAINTEXT"}
OAUTH = SASL | {"sasl.mechanism": "OAUTHBEARER"}


def security(options: dict[str, str]) -> SecuritySettings:
    return security_of(Options(options))


def tls(options: dict[str, str]) -> TlsSettings:
    asked = security(SSL | options).tls
    assert asked is not None
    return asked


def sasl(options: dict[str, str]) -> SaslSettings:
    asked = security(SASL | options).sasl
    assert asked is not None
    return asked


def test_without_options_there_is_no_security() -> None:
    assert security({}) == SecuritySettings()


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [("PLAINTEXT", False, False), ("ssl", True, False), ("SASL_PLAINTEXT", False, True), ("sasl_ssl", True, True)],
)
def test_the_protocol_says_what_is_used(protocol: str, has_tls: bool, has_sasl: bool) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": SECRET} if has_sasl else {}
    asked = security({"security.protocol": protocol} | login)
    assert (asked.tls is not None, asked.sasl is not None) == (has_tls, has_sasl)


def test_certificates_and_keys_come_from_files_under_either_name() -> None:
    files = {"ssl.certificate.location": "c.pem", "ssl.key.location": "k.pem", "ssl.key.password": SECRET}
    ours = tls(files | {"ssl.ca.location": "ca.pem"})
    assert ours == TlsSettings(
        ca=Pem("ssl.ca.location", "ca.pem"),
        certificate=Pem("ssl.certificate.location", "c.pem"),
        key=Pem("ssl.key.location", "k.pem"),
        key_password=SECRET,
    )
    store = {"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}
    assert tls(store).ca == Pem("ssl.truststore.location", "ca.pem")
    both = tls({"ssl.keystore.location": "client.pem", "ssl.keystore.type": "pem"})
    assert both.certificate == both.key == Pem("ssl.keystore.location", "client.pem")


@pytest.mark.parametrize(
    ("ca", "certificate", "key"),
    [
        ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"),
        ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
    ],
)
def test_certificates_and_keys_come_as_texts_under_either_name(ca: str, certificate: str, key: str) -> None:
    asked = tls({ca: "A", certificate: "B", key: "C"})
    assert (asked.ca, asked.certificate, asked.key) == (
        Pem(ca, text="A"),
        Pem(certificate, text="B"),
        Pem(key, text="C"),
    )


@pytest.mark.parametrize(
    ("options", "checks"),
    [
        ({}, (True, True)),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, (True, True)),
        ({"ssl.endpoint.identification.algorithm": ""}, (True, False)),
        ({"ssl.endpoint.identification.algorithm": "none"}, (True, False)),
        ({"enable.ssl.certificate.verification": "false"}, (False, True)),
    ],
)
def test_what_is_checked_of_a_broker(options: dict[str, str], checks: tuple[bool, bool]) -> None:
    asked = tls(options)
    assert (asked.verifies_certificate, asked.verifies_host_name) == checks


def test_versions_of_tls_may_be_chosen() -> None:
    assert tls({"ssl.enabled.protocols": "TLSv1.3"}).versions == ("TLSv1.3",)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_and_a_password_are_options_of_their_own(name: str, mechanism: str) -> None:
    asked = sasl({name: mechanism, "sasl.username": "alice", "sasl.password": SECRET})
    assert asked == SaslSettings(mechanism.upper(), username="alice", password=SECRET)


def test_a_user_and_a_password_come_in_the_form_of_java() -> None:
    module = f'{SCRAM_MODULE} required username="alice" password="{SECRET}";'
    asked = sasl({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": module})
    assert asked == SaslSettings("SCRAM-SHA-256", username="alice", password=SECRET)


def test_a_token_is_an_option_or_in_a_file() -> None:
    assert sasl(OAUTH | {"sasl.oauthbearer.token": "abc.def."}).token == "abc.def."
    in_file = sasl(OAUTH | {"sasl.oauthbearer.token.endpoint.url": "file:///run/a%20token"})
    assert in_file.token_file == "/run/a token"


def test_a_token_goes_with_extensions_of_either_form() -> None:
    module = f'{OAUTH_MODULE} required extension_logicalCluster="lkc-1";'
    options = {
        "sasl.oauthbearer.token": "t",
        "sasl.oauthbearer.extensions": "pool=p, zone=z",
        "sasl.jaas.config": module,
    }
    assert sasl(OAUTH | options).extensions == (("logicalCluster", "lkc-1"), ("pool", "p"), ("zone", "z"))


ALICE = {"sasl.username": "alice", "sasl.password": SECRET}
PLAIN_MODULE = f'x.PlainLoginModule required username="alice" password="{SECRET}";'


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"security.protocol": "SASL_TLS"}, r"security.protocol is 'SASL_TLS': .*did you mean SASL_SSL"),
        (ALICE, "sasl.username is given, but security.protocol is PLAINTEXT: SASL_SSL or SASL_PLAINTEXT would use it"),
        (SSL | ALICE, "sasl.username is given, but security.protocol is SSL"),
        (SSL | {"sasl.jaas.config": PLAIN_MODULE}, "sasl.jaas.config is given, but security.protocol is SSL"),
        (
            {"ssl.ca.location": "ca.pem"},
            "ssl.ca.location is given, but security.protocol is PLAINTEXT: SSL or SASL_SSL",
        ),
        (SASL | ALICE, "sasl.mechanism is missing: it is one of PLAIN, SCRAM-SHA-256"),
        (SASL | ALICE | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI': it is one of PLAIN"),
        (SASL | ALICE | {"sasl.mechanism": "SCRAM-SHA-265"}, "did you mean SCRAM-SHA-256"),
        (SASL | ALICE | {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "SCRAM-SHA-256"}, "they differ"),
        (SASL | {"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "sasl.password is missing"),
        (SASL | {"sasl.mechanism": "PLAIN", "sasl.username": "", "sasl.password": SECRET}, "sasl.username is empty"),
        (SASL | ALICE | {"sasl.mechanism": "PLAIN", "sasl.username": "a\0b"}, "a NUL"),
        (
            SASL | ALICE | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN_MODULE},
            "sasl.username and sasl.jaas.config say the same thing in two ways",
        ),
        (
            SASL | {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": PLAIN_MODULE},
            "sasl.jaas.config has PlainLoginModule, which is not for sasl.mechanism SCRAM-SHA-256",
        ),
        (
            SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'x.Y required password="{SECRET}";'},
            "sasl.jaas.config has Y: what is known here is PlainLoginModule",
        ),
        (
            SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'x.PlainLoginModule required password="{SECRET}";'},
            "sasl.jaas.config: username is missing",
        ),
        (
            SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'x.PlainLoginModule required p="{SECRET}'},
            "sasl.jaas.config cannot be read: a quote",
        ),
        (OAUTH, "sasl.oauthbearer.token is missing: give a token"),
        (OAUTH | {"sasl.oauthbearer.token": f"{SECRET} {SECRET}"}, "is no bearer token"),
        (OAUTH | {"sasl.oauthbearer.token.endpoint.url": "https://id.example.com"}, "is no file:///path"),
        (
            OAUTH | {"sasl.oauthbearer.token": "t", "sasl.oauthbearer.token.endpoint.url": "file:///t"},
            "are both given",
        ),
        (
            OAUTH | {"sasl.jaas.config": f'x.OAuthBearerLoginModule required clientSecret="{SECRET}";'},
            "has the option clientSecret, of which this client can make no token",
        ),
        (
            OAUTH | {"sasl.oauthbearer.token": "t", "sasl.oauthbearer.extensions": "auth=x"},
            "sasl.oauthbearer.extensions has 'auth'",
        ),
        (SSL | {"ssl.certificate.location": "c.pem"}, "ssl.certificate.location needs the key of the certificate"),
        (SSL | {"ssl.key.location": "k.pem"}, "ssl.key.location needs a certificate"),
        (SSL | {"ssl.key.password": SECRET}, "ssl.key.password is given without a key"),
        (SSL | {"ssl.ca.location": "a", "ssl.truststore.location": "b"}, "they differ"),
        (SSL | {"ssl.ca.location": "a", "ssl.ca.pem": SECRET}, "ssl.ca.location and ssl.ca.pem say the same thing"),
        (SSL | {"ssl.endpoint.identification.algorithm": "http"}, "did you mean https"),
        (SSL | {"enable.ssl.certificate.verification": "no"}, "it takes true or false"),
        (SSL | {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols is 'TLSv1.1'"),
        (SSL | {"ssl.truststore.location": "t.jks"}, "keytool -importkeystore -srckeystore t.jks .* ca.pem"),
        (
            SSL | {"ssl.truststore.location": "t", "ssl.truststore.type": "PKCS12"},
            "ssl.truststore.type is PKCS12.*keytool",
        ),
        (SSL | {"ssl.keystore.location": "k.p12"}, "keytool -importkeystore -srckeystore k.p12 .* client.pem"),
        (SSL | {"ssl.keystore.location": "k", "ssl.keystore.type": "JKS"}, "ssl.keystore.type is JKS"),
        (
            SSL | {"ssl.keystore.location": "k.pem", "ssl.keystore.password": SECRET},
            "ssl.keystore.password is of no use: the password of a key in a PEM file is ssl.key.password",
        ),
        (SSL | {"ssl.crl.location": "crl.pem"}, "revoked certificates would be accepted"),
    ],
)
def test_what_contradicts_itself_is_refused_without_telling_secrets(options: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem) as caught:
        security(options)
    assert SECRET not in str(caught.value)
