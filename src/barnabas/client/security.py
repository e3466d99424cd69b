"""How a client proves who it is and which brokers it trusts: `security.protocol` and the options that go with it.

What the Java client and librdkafka call differently is understood under both names. Options that contradict each other
are refused here, before anything is connected, rather than ignored: a user who gives a password wants it to be used.
Secrets are left out of every `repr` and every message.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from barnabas.client import jaas
from barnabas.client.option_reader import Options, SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")

_LOGIN_MODULES: Final = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": (SCRAM_SHA_256, SCRAM_SHA_512),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}
_SASL_OPTIONS: Final = (
    "sasl.mechanism",
    "sasl.mechanisms",
    jaas.OPTION,
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.token",
)
_TLS_OPTIONS: Final = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
)
_REFUSED: Final = {
    "ssl.crl.location": "is not supported: revoked certificates would be accepted",
    "ssl.cipher.suites": "is not supported: the ciphers are those that Python's ssl module offers",
    "ssl.engine.factory.class": "is not supported: it names a class of Java",
    "ssl.engine.location": "is not supported: keys come from PEM files or PEM texts",
}
_FROM_STORE: Final = {
    "ssl.truststore": (
        "`keytool -importkeystore -srckeystore {file} -destkeystore store.p12 -deststoretype PKCS12`, then "
        "`openssl pkcs12 -in store.p12 -nokeys -out ca.pem`, gives a file for ssl.ca.location"
    ),
    "ssl.keystore": (
        "`keytool -importkeystore -srckeystore {file} -destkeystore store.p12 -deststoretype PKCS12`, then "
        "`openssl pkcs12 -in store.p12 -out client.pem`, gives a file for ssl.keystore.location with "
        "ssl.keystore.type=PEM"
    ),
}

_STORE_SUFFIXES: Final = (".jks", ".keystore", ".truststore", ".p12", ".pfx")
_TOKENS: Final = (
    "give a token in sasl.oauthbearer.token, or the file that something keeps one in as "
    "sasl.oauthbearer.token.endpoint.url=file:///path"
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True)
class Pem:
    """A certificate or a key: where its file is, or its text; and the option that says so, for messages."""

    option: str
    location: str | None = None
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TlsSettings:
    ca: Pem | None = None
    """Whose signatures are trusted; the system's authorities where nothing is said."""
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: str | None = field(default=None, repr=False)
    verifies_certificate: bool = True
    verifies_host_name: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS


@dataclass(frozen=True)
class SaslSettings:
    mechanism: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class SecuritySettings:
    """None of either is a connection that anybody may make and anybody may read."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


def security_of(options: Options) -> SecuritySettings:
    """The security that the options ask for."""
    for name, problem in _REFUSED.items():
        if options.text(name) is not None:
            raise SettingsError(name, problem)
    protocol = _one_of("security.protocol", (options.text("security.protocol") or "PLAINTEXT").upper(), PROTOCOLS)
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    if not has_tls:
        _refuse_unused(options, _TLS_OPTIONS, protocol, "SSL or SASL_SSL")
    if not has_sasl:
        _refuse_unused(options, _SASL_OPTIONS, protocol, "SASL_SSL or SASL_PLAINTEXT")
    return SecuritySettings(_tls_of(options) if has_tls else None, _sasl_of(options) if has_sasl else None)


def _tls_of(options: Options) -> TlsSettings:
    _refuse_java_store(options, "ssl.truststore", "a PEM file of certificates has no password")
    _refuse_java_store(options, "ssl.keystore", "the password of a key in a PEM file is ssl.key.password")
    ca = _pem(options, ["ssl.ca.location", "ssl.truststore.location"], ["ssl.ca.pem", "ssl.truststore.certificates"])
    certificate = _pem(
        options,
        ["ssl.certificate.location", "ssl.keystore.location"],
        ["ssl.certificate.pem", "ssl.keystore.certificate.chain"],
    )
    key = _pem(options, ["ssl.key.location", "ssl.keystore.location"], ["ssl.key.pem", "ssl.keystore.key"])
    if certificate is not None and key is None:
        raise SettingsError(certificate.option, "needs the key of the certificate too: ssl.key.location or ssl.key.pem")
    if key is not None and certificate is None:
        raise SettingsError(key.option, "needs a certificate too: ssl.certificate.location or ssl.certificate.pem")
    key_password = options.text("ssl.key.password")
    if key_password is not None and key is None:
        raise SettingsError("ssl.key.password", "is given without a key: ssl.key.location or ssl.key.pem")
    identification = (options.text("ssl.endpoint.identification.algorithm", default="https")).strip().lower()
    _one_of("ssl.endpoint.identification.algorithm", identification, ("https", "none", ""))
    versions = [each.strip() for each in options.text("ssl.enabled.protocols", default="TLSv1.2,TLSv1.3").split(",")]
    return TlsSettings(
        ca=ca,
        certificate=certificate,
        key=key,
        key_password=key_password,
        verifies_certificate=options.flag("enable.ssl.certificate.verification", default=True),
        verifies_host_name=identification == "https",
        versions=tuple(_one_of("ssl.enabled.protocols", each, TLS_VERSIONS) for each in versions),
    )


def _refuse_java_store(options: Options, kind: str, no_password: str) -> None:
    """Java keeps keys and certificates in stores of its own; what is needed is what lies in them."""
    location = options.text(f"{kind}.location")
    form = options.text(f"{kind}.type", default="PEM").upper()
    if form != "PEM":
        raise SettingsError(f"{kind}.type", f"is {form}, and only PEM is read here: {store_remedy(kind, location)}")
    if location is not None and location.lower().endswith(_STORE_SUFFIXES):
        raise SettingsError(
            f"{kind}.location", f"is a store, and only PEM is read here: {store_remedy(kind, location)}"
        )
    if options.text(f"{kind}.password") is not None:
        raise SettingsError(f"{kind}.password", f"is of no use: {no_password}")


def store_remedy(option: str, location: str | None) -> str:
    """How to get PEM files out of a store of Java's; the option says what the store is for."""
    kind = "ssl.keystore" if option.startswith("ssl.keystore") else "ssl.truststore"
    return _FROM_STORE[kind].format(file=location or "store.jks")


def _pem(options: Options, locations: list[str], texts: list[str]) -> Pem | None:
    location_option, location = options.first(*locations)
    text_option, text = options.first(*texts)
    if location is not None and text is not None:
        raise SettingsError(location_option, f"and {text_option} say the same thing in two ways: give one of them")
    if location is not None:
        return Pem(location_option, location=location)
    return None if text is None else Pem(text_option, text=text)


def _sasl_of(options: Options) -> SaslSettings:
    mechanism_option, given = options.first("sasl.mechanism", "sasl.mechanisms")
    if given is None:
        raise SettingsError(mechanism_option, f"is missing: it is one of {', '.join(MECHANISMS)}")
    mechanism = _one_of(mechanism_option, given.strip().upper(), MECHANISMS)
    login = _login_module(options, mechanism)
    if mechanism == OAUTHBEARER:
        return _oauth_of(options, login)
    username = _credential(options, "sasl.username", "username", login)
    password = _credential(options, "sasl.password", "password", login)
    if mechanism == PLAIN and "\0" in username + password:
        raise SettingsError("sasl.username", "or the password has a NUL, which PLAIN cannot send")
    return SaslSettings(mechanism, username=username, password=password)


def _login_module(options: Options, mechanism: str) -> jaas.LoginModule | None:
    text = options.text(jaas.OPTION)
    if text is None:
        return None
    try:
        module = jaas.parse(text)
    except jaas.JaasError as problem:
        raise SettingsError(jaas.OPTION, f"cannot be read: {problem}") from None
    mechanisms = _LOGIN_MODULES.get(module.name)
    if mechanisms is None:
        raise SettingsError(jaas.OPTION, f"has {module.name}: what is known here is {', '.join(_LOGIN_MODULES)}")
    if mechanism not in mechanisms:
        raise SettingsError(jaas.OPTION, f"has {module.name}, which is not for sasl.mechanism {mechanism}")
    return module


def _credential(options: Options, option: str, name: str, login: jaas.LoginModule | None) -> str:
    """A user name or a password: an option of its own, or one of the login module's."""
    value = options.text(option)
    if login is not None:
        if value is not None:
            raise SettingsError(option, f"and {jaas.OPTION} say the same thing in two ways: give one of them")
        option, value = f"{jaas.OPTION}: {name}", login.options.get(name)
    if not value:
        raise SettingsError(option, "is missing" if value is None else "is empty")
    return value


def _oauth_of(options: Options, login: jaas.LoginModule | None) -> SaslSettings:
    module_options = {} if login is None else login.options
    extensions = dict(
        _extension(each) for each in options.text("sasl.oauthbearer.extensions", default="").split(",") if each
    )
    for name, value in module_options.items():
        if not name.startswith("extension_"):
            raise SettingsError(
                jaas.OPTION, f"has the option {name}, of which this client can make no token: {_TOKENS}"
            )
        extensions[name.removeprefix("extension_")] = value
    for name, value in extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
            raise SettingsError(
                "sasl.oauthbearer.extensions", f"has {name!r}: names are letters, values printable ASCII"
            )
    token, url = options.text("sasl.oauthbearer.token"), options.text("sasl.oauthbearer.token.endpoint.url")
    if token is not None and url is not None:
        raise SettingsError(
            "sasl.oauthbearer.token", "and sasl.oauthbearer.token.endpoint.url are both given: give one"
        )
    if token is None and url is None:
        raise SettingsError("sasl.oauthbearer.token", f"is missing: {_TOKENS}")
    if token is not None and not is_token(token):
        raise SettingsError("sasl.oauthbearer.token", "is no bearer token: it has characters that no token has")
    return SaslSettings(
        OAUTHBEARER,
        token=token,
        token_file=None if url is None else _token_file(url),
        extensions=tuple(sorted(extensions.items())),
    )


def is_token(text: str) -> bool:
    """Whether this can be a bearer token (RFC 6750)."""
    return _TOKEN.fullmatch(text) is not None


def _extension(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _token_file(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise SettingsError("sasl.oauthbearer.token.endpoint.url", f"is no file:///path: {_TOKENS}")
    return unquote(parts.path)


def _refuse_unused(options: Options, names: Collection[str], protocol: str, needed: str) -> None:
    for name in names:
        if options.text(name) is not None:
            raise SettingsError(name, f"is given, but security.protocol is {protocol}: {needed} would use it")


def _one_of(option: str, value: str, valid: Collection[str]) -> str:
    if value in valid:
        return value
    near = difflib.get_close_matches(value, valid, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    raise SettingsError(option, f"is {value!r}: it is one of {', '.join(each or repr('') for each in valid)}{meant}")
