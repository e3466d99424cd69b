"""Passwords of users, as the cluster keeps them for SASL/SCRAM: salted and hashed by us, so that none is sent."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.admin.outcomes import passing, raise_first, refusal
from barnabas.client.admin.quotas import ask_administration
from barnabas.client.cluster import Call
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.client.cluster import Cluster

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""By their numbers in messages."""
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_DEFAULT: Final = 4_096
ITERATIONS_MIN: Final = 4_096
_ITERATIONS_HASHED_MAX: Final = 16_384
"""More than that is refused."""
_SALT_BYTES: Final = 26


class Credential(NamedTuple):
    mechanism: str
    iterations: int


class NewCredential(NamedTuple):
    mechanism: str
    password: str
    iterations: int = ITERATIONS_DEFAULT


def describe_credentials(cluster: Cluster, users: Sequence[str] = ()) -> dict[str, list[Credential]]:
    """What each of these users, or every user, has; those without anything are left out."""
    struct = m.DescribeUserScramCredentialsRequest
    request = struct(users=[struct.UserName(name=user) for user in users] or None)
    call = Call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda _: request, lambda answer: passing(answer.error_code))
    response: m.DescribeUserScramCredentialsResponse = ask_administration(cluster, call)
    failure = refusal(response.error_code, response.error_message)
    if failure is not None:
        raise failure
    found = {}
    for each in response.results:
        if each.error_code == Error.RESOURCE_NOT_FOUND:
            continue
        failure = refusal(each.error_code, each.error_message)
        if failure is not None:
            raise failure
        found[each.user] = [
            Credential(MECHANISMS.get(one.mechanism, "UNKNOWN"), one.iterations) for one in each.credential_infos
        ]
    return found


def alter_credentials(
    cluster: Cluster, user: str, upsertions: Iterable[NewCredential], deletions: Iterable[str]
) -> None:
    """Set passwords of a user, and forget those of other mechanisms."""
    struct = m.AlterUserScramCredentialsRequest
    request = struct(
        deletions=[struct.ScramCredentialDeletion(name=user, mechanism=_NUMBERS[name]) for name in deletions],
        upsertions=[_upsertion(user, each) for each in upsertions],
    )

    def error_code(response: m.AlterUserScramCredentialsResponse) -> int:
        return next((code for each in response.results if (code := passing(each.error_code))), 0)

    call = Call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, lambda _: request, error_code)
    response: m.AlterUserScramCredentialsResponse = ask_administration(cluster, call)
    raise_first({each.user: refusal(each.error_code, each.error_message) for each in response.results})


def _upsertion(user: str, credential: NewCredential) -> m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    salt = secrets.token_urlsafe(_SALT_BYTES).encode()
    # A count that no cluster accepts would only keep us busy: it is for the cluster to refuse.
    iterations = min(max(credential.iterations, 1), _ITERATIONS_HASHED_MAX)
    salted = hashlib.pbkdf2_hmac(_HASHES[credential.mechanism], credential.password.encode(), salt, iterations)
    return m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=_NUMBERS[credential.mechanism],
        iterations=credential.iterations,
        salt=salt,
        salted_password=salted,
    )
