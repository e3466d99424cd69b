"""The client of pipelines over TLS and SASL, against Apache Kafka which has a listener for each kind of login."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from tests.certificates import PASSWORD, Authority, Identity
from tests.clients.with_confluent import ConfluentClient
from tests.peers import free_port
from tools import apache_kafka

from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from barnabas.client.offset_queries import LATEST, commit_offsets, committed_offsets, list_offsets
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "BRIEF": "SASL_PLAINTEXT",
}
"""The listeners of the broker. MUTUAL wants a certificate of its clients; a login lasts a second on BRIEF."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, SECRET = "alice", 'open, =\\"sesame"'
STRANGE_USER = "a,b=c"
"""Characters that mean something to SCRAM, or in the quotes of a login module."""
LOGIN_MS = 1_000
MODULES = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """A broker of Apache Kafka, its listeners, and the certificates around it."""

    node: apache_kafka.KafkaNode
    ports: dict[str, int]
    authority: Authority
    client: Identity
    topic: str

    def options(self, listener: str, **given: str) -> dict[str, str]:
        """What a client needs to know to use a listener, as far as it does not say who it is."""
        protocol = PROTOCOLS[listener]
        options = {
            "bootstrap.servers": f"{HOST}:{self.ports[listener]}",
            "security.protocol": protocol,
            "default.api.timeout.ms": "20000",
        }
        if protocol.endswith("SSL"):
            options["ssl.ca.location"] = str(self.authority.certificate)
        return options | {name.replace("_", "."): value for name, value in given.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    broker, client = authority.sign("broker"), authority.sign("client")
    store = folder / "broker-store.pem"
    store.write_text(broker.together(broker.key))
    ports = {name: free_port() for name in PROTOCOLS}
    node = apache_kafka.KafkaNode(
        properties={
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "advertised.listeners": ",".join(
                f"{name}://{HOST}:{port}" for name, port in ports.items() if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.brief.connections.max.reauth.ms": str(LOGIN_MS),
            **logins("sasl_plaintext", MECHANISMS),
            **logins("sasl_ssl", MECHANISMS),
            **logins("brief", ("PLAIN",)),
        }
    )
    node.port, node.controller_port = ports["PLAINTEXT"], ports["CONTROLLER"]
    with node:
        topic = "guarded"
        ConfluentClient(node.bootstrap).create_topic(topic, partitions=2)
        set_scram_passwords(node.bootstrap)
        yield Secured(node, ports, authority, client, topic)


def logins(listener: str, mechanisms: tuple[str, ...]) -> dict[str, str]:
    """The settings of a listener that asks its clients for a login."""
    quoted = jaas_quoted(jaas_quoted(SECRET))  # once for the login module, once for the properties file
    modules = {
        "PLAIN": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{quoted}";',
        "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule required;",
        "OAUTHBEARER": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }
    settings = {f"listener.name.{listener}.{each.lower()}.sasl.jaas.config": modules[each] for each in mechanisms}
    return settings | {f"listener.name.{listener}.sasl.enabled.mechanisms": ",".join(mechanisms)}


def jaas_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def set_scram_passwords(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # a user comes once in a request
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 8192), SECRET.encode())
            for user in (USER, STRANGE_USER)
        ]
        for done in admin.alter_user_scram_credentials(changes).values():
            done.result(30)


def token_for(user: str, lifetime_s: int = 3_600) -> str:
    """A token that nobody has signed, as Kafka's development mode accepts it."""
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": user, "iat": now - 60, "exp": now + lifetime_s}
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts), ""])


def login(mechanism: str, *, user: str = USER, secret: str = SECRET) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, "sasl.oauthbearer.token": token_for(user)}
    return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": secret}


def works(secured: Secured, options: dict[str, str]) -> bool:
    """Whether a client with these options does all that it is for."""
    with Cluster.connect(ClientSettings.from_options(options)) as cluster:
        group, place = f"group-{time.monotonic_ns()}", (secured.topic, 1)
        end = list_offsets(cluster, {place: LATEST})[place]
        assert end is not None
        commit_offsets(cluster, group, {place: end.offset})
        return committed_offsets(cluster, group)[place].offset == end.offset


def refusal(options: dict[str, str]) -> KafkaError:
    started = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        Cluster.connect(ClientSettings.from_options(options))
    assert time.monotonic() - started < 10, "what will not pass is not tried again"
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_broker_is_talked_to_over_tls(secured: Secured, version: str) -> None:
    assert works(secured, secured.options("SSL", ssl_enabled_protocols=version))


def test_a_broker_of_strangers_is_refused(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    failure = refusal(secured.options("SSL", ssl_ca_location=str(stranger.certificate)))
    assert failure.error is Error.SASL_AUTHENTICATION_FAILED
    assert "is not accepted" in str(failure)


def test_clients_show_certificates_in_the_forms_of_java_and_of_librdkafka(secured: Secured) -> None:
    certificate, key = secured.client.certificate, secured.client.encrypted_key
    trust = {"bootstrap.servers": f"{HOST}:{secured.ports['MUTUAL']}", "security.protocol": "SSL"}
    java = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": secured.authority.certificate.read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.keystore.key": key.read_text(),
        "ssl.key.password": PASSWORD,
    }
    librdkafka = {
        "ssl.ca.location": str(secured.authority.certificate),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": PASSWORD,
    }
    assert works(secured, trust | java)
    assert works(secured, trust | librdkafka)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_without_a_certificate_is_told_that_one_is_wanted(secured: Secured, version: str) -> None:
    failure = refusal(secured.options("MUTUAL", ssl_enabled_protocols=version))
    assert "does it want a certificate?" in str(failure)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_user_logs_in_by_each_mechanism(secured: Secured, listener: str, mechanism: str) -> None:
    assert works(secured, secured.options(listener) | login(mechanism))


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", "plain.Plain"), ("SCRAM-SHA-512", "scram.Scram")])
def test_a_user_logs_in_with_the_configuration_of_a_java_client(secured: Secured, mechanism: str, module: str) -> None:
    config = f'{MODULES}.{module}LoginModule required username="{USER}" password="{jaas_quoted(SECRET)}";'
    options = secured.options("SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=config)
    assert works(secured, options)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_name_may_have_what_scram_uses_itself(secured: Secured, mechanism: str) -> None:
    assert works(secured, secured.options("SASL_PLAINTEXT") | login(mechanism, user=STRANGE_USER))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("given", [{"secret": "wrong"}, {"user": "mallory"}])
def test_a_wrong_password_or_user_is_refused_at_once(secured: Secured, mechanism: str, given: dict[str, str]) -> None:
    failure = refusal(secured.options("SASL_PLAINTEXT") | login(mechanism, **given))
    assert failure.error is Error.SASL_AUTHENTICATION_FAILED
    assert f"refuses user {given.get('user', USER)!r} by {mechanism}" in str(failure)


def test_a_token_that_is_over_is_refused_with_the_reason(secured: Secured) -> None:
    token = token_for(USER, lifetime_s=-30)
    failure = refusal(secured.options("SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=token))
    assert failure.error is Error.SASL_AUTHENTICATION_FAILED
    assert "refuses the token by OAUTHBEARER" in str(failure)
    assert token not in str(failure)


def test_a_mechanism_that_a_listener_does_not_have_is_answered_with_those_that_it_has(secured: Secured) -> None:
    failure = refusal(secured.options("BRIEF") | login("SCRAM-SHA-256"))
    assert "does not take sasl.mechanism SCRAM-SHA-256; what it takes: PLAIN" in str(failure)


def test_a_login_that_lasts_a_moment_is_renewed(secured: Secured) -> None:
    place = (secured.topic, 0)
    with Cluster.connect(ClientSettings.from_options(secured.options("BRIEF") | login("PLAIN"))) as cluster:
        connections = set()
        deadline = time.monotonic() + 3 * LOGIN_MS / 1000
        while time.monotonic() < deadline:
            assert list_offsets(cluster, {place: LATEST})[place]
            connections.add(cluster.leader(*place))
        assert len(connections) >= 3


def test_a_client_that_does_not_log_in_is_told_to_look_at_its_protocol(secured: Secured) -> None:
    options = secured.options("SASL_PLAINTEXT") | {"security.protocol": "PLAINTEXT", "default.api.timeout.ms": "500"}
    failure = refusal(options)
    assert failure.error is Error.NETWORK_EXCEPTION
    assert "does security.protocol fit it?" in str(failure)


def test_a_login_that_a_listener_does_not_want_is_refused(secured: Secured) -> None:
    options = secured.options("PLAINTEXT") | {"security.protocol": "SASL_PLAINTEXT"} | login("PLAIN")
    assert "does its listener use another protocol?" in str(refusal(options))


def test_tls_and_no_tls_do_not_understand_each_other_and_say_so(secured: Secured) -> None:
    quick = {"default.api.timeout.ms": "500"}
    trust = {"ssl.ca.location": str(secured.authority.certificate)}
    to_plain = refusal(secured.options("PLAINTEXT") | quick | trust | {"security.protocol": "SSL"})
    assert "does its listener speak TLS?" in str(to_plain)
    plain = {"bootstrap.servers": f"{HOST}:{secured.ports['SSL']}"} | quick
    assert "without TLS" in str(refusal(plain))
