"""The users of a new cluster: `--add-scram`, as for `kafka-storage`, becomes the credential that a broker checks.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=bob,iterations=8192,salt="N3E=",saltedpassword="YCE="]

What is kept is not the password, but two keys that follow from it (RFC 5802). Messages are Kafka's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metadata.versions import VersionedRecord
from barnabas.node.initial_features import FeatureError
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.ports import Random

SCRAM_METADATA_VERSION_MIN: Final = 11
"""3.5-IV2."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384


class Mechanism(NamedTuple):
    type: int
    hash: str


MECHANISMS: Final = {"SCRAM-SHA-256": Mechanism(1, "sha256"), "SCRAM-SHA-512": Mechanism(2, "sha512")}


class ScramError(ValueError):
    """A user that cannot be added."""


def initial_users(given: Iterable[str], metadata_version: int, random: Random) -> tuple[VersionedRecord, ...]:
    """The credentials of the users that the texts describe."""
    records = tuple(VersionedRecord(parse_user(text, random), 0) for text in given)
    if records and metadata_version < SCRAM_METADATA_VERSION_MIN:
        raise FeatureError("SCRAM is only supported in metadata.version 3.5-IV2 or later.")
    return records


def parse_user(text: str, random: Random) -> m.UserScramCredentialRecord:
    text = text.strip()
    name, equals, rest = text.partition("=")
    if not equals:
        raise ScramError(f"Failed to find equals sign in SCRAM argument '{text}'")
    mechanism = MECHANISMS.get(name)
    if mechanism is None:
        raise ScramError(f"The add-scram mechanism {name} is not supported.")
    if not rest.startswith("["):
        raise ScramError("Expected configuration string to start with [")
    if not rest.endswith("]"):
        raise ScramError("Expected configuration string to end with ]")
    return _credential(name, mechanism, dict(map(_component, rest[1:-1].split(","))), random)


def _component(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ScramError(f"No equals sign found in SCRAM component: {text}")
    quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
    return name, value[1:-1] if quoted else value


def _credential(name: str, mechanism: Mechanism, given: dict[str, str], random: Random) -> m.UserScramCredentialRecord:
    user = given.pop("name", None)
    if user is None:
        raise ScramError("You must supply 'name' to add-scram")
    salt_text = given.pop("salt", None)
    salt = random.uuid() + random.uuid() if salt_text is None else _decoded("salt", salt_text)
    iterations = _iterations(given.pop("iterations", str(ITERATIONS_MIN)))
    password, salted_text = given.pop("password", None), given.pop("saltedpassword", None)
    if password is None and salted_text is None:
        raise ScramError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt_text is None:
        raise ScramError("You must supply 'salt' with 'saltedpassword' to add-scram")
    given_salted = b"" if salted_text is None or password is not None else _decoded("saltedPassword", salted_text)
    if given:
        raise ScramError(f"Unknown SCRAM configurations: {', '.join(sorted(given))}")
    for limit, is_broken, sign in (
        (ITERATIONS_MIN, iterations < ITERATIONS_MIN, ">="),
        (ITERATIONS_MAX, iterations > ITERATIONS_MAX, "<="),
    ):
        if is_broken:
            mechanism_name = name.replace("-", "_")
            raise ScramError(f"The 'iterations' value must be {sign} {limit} for add-scram using {mechanism_name}")
    salted = (
        given_salted
        if password is None
        else hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), bytes(salt), iterations)
    )
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    return m.UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.type,
        salt=bytes(salt),
        stored_key=hashlib.new(mechanism.hash, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash),
        iterations=iterations,
    )


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError(f"Failed to decode given {name}: {text}") from None


def _iterations(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise ScramError(f"Failed to parse iterations count: {text}")
    return int(text)
