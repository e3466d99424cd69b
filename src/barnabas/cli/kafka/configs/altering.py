"""`kafka-configs --alter`: settings, levels of loggers, quotas and passwords are set and taken back."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.admin_access import asking
from barnabas.cli.kafka.configs.changes import added, as_changes, deleted
from barnabas.cli.kafka.configs.describing import RESOURCE_TYPES, quotas_of, resource_entries
from barnabas.cli.kafka.configs.entities import BROKER_LOGGERS, CLIENTS, IPS, singular
from barnabas.cli.kafka.flags import read_int
from barnabas.cli.kafka.tool import ToolUsageError
from barnabas.client.admin.configs import BROKER_LOGGER, Resource, alter_configs
from barnabas.client.admin.quotas import ADDRESS, CLIENT, USER, alter_quotas
from barnabas.client.admin.scram import ITERATIONS_DEFAULT, ITERATIONS_MIN, NewCredential, alter_credentials
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.cli.kafka.configs.entities import Entities
    from barnabas.cli.kafka.flags import Given
    from barnabas.client.cluster import Cluster

QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
ADDRESS_QUOTAS: Final = ("connection_creation_rate",)
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
QUOTA_TYPES: Final = {"users": USER, "clients": CLIENT, "ips": ADDRESS}
_CREDENTIAL: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_NOT_SAID: Final = "-1"


def alter(cluster: Cluster, given: Given, entities: Entities) -> None:
    add, delete = added(given), deleted(given)
    name = entities.names[0]
    if entities.type in RESOURCE_TYPES:
        with asking("incrementalAlterConfigs"), _broker_expected():
            alter_configs(cluster, Resource(RESOURCE_TYPES[entities.type], name), as_changes(add, delete))
    elif entities.type == BROKER_LOGGERS:
        _alter_loggers(cluster, name, add, delete)
    elif entities.type == IPS:
        unknown = [key for key in [*add, *delete] if key not in ADDRESS_QUOTAS]
        if unknown:
            raise ToolUsageError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        _alter_quotas(cluster, entities, add, delete)
    else:
        _alter_user_or_client(cluster, entities, add, delete)
    if name:
        print(f"Completed updating config for {singular(entities.type)} {name}.")
    else:
        print(f"Completed updating default config for {entities.type} in the cluster.")


@contextlib.contextmanager
def _broker_expected() -> Iterator[None]:
    """A broker that is not there may come yet, as far as Kafka's admin client is concerned: it runs out of time."""
    try:
        yield
    except KafkaError as failure:
        if failure.error is Error.BROKER_NOT_AVAILABLE:
            raise KafkaError(Error.NETWORK_EXCEPTION, failure.message) from None
        raise


def _alter_loggers(cluster: Cluster, broker: str, add: dict[str, str], delete: list[str]) -> None:
    known = {entry.name for entry in resource_entries(cluster, Resource(BROKER_LOGGER, broker))}
    unknown = [name for name in [*delete, *add] if name not in known]
    if unknown:
        raise ToolUsageError(f"Invalid broker logger(s): {','.join(unknown)}")
    with asking("incrementalAlterConfigs"):
        alter_configs(cluster, Resource(BROKER_LOGGER, broker), as_changes(add, delete))


def _alter_user_or_client(cluster: Cluster, entities: Entities, add: dict[str, str], delete: list[str]) -> None:
    is_of_clients = entities.type == CLIENTS or len(entities.types) == 2
    takes = QUOTAS if is_of_clients else (*QUOTAS, *MECHANISMS)
    kinds, of = ("quota", "clients") if is_of_clients else ("quota and SCRAM credential", "users")
    unknown = [key for key in add if key not in takes]
    if unknown:
        raise _unexpected(f"Only {kinds} configs can be added for '{of}'", f"Set({', '.join(unknown)})")
    unknown = [key for key in delete if key not in takes]
    if unknown:
        raise _unexpected(f"Only {kinds} configs can be deleted for '{of}'", f"ArrayBuffer({', '.join(unknown)})")
    passwords = [key for key in [*add, *delete] if key in MECHANISMS]
    if not passwords:
        _alter_quotas(cluster, entities, add, delete)
        return
    if entities.has_default:
        raise ToolUsageError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials "
            "using --bootstrap-server."
        )
    if len(passwords) < len(add) + len(delete):
        raise ToolUsageError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server."
        )
    credentials = [_credential(mechanism, text) for mechanism, text in add.items()]
    with asking("alterUserScramCredentials"):
        alter_credentials(cluster, entities.names[0], credentials, delete)


def _unexpected(rule: str, names: str) -> ToolUsageError:
    return ToolUsageError(f"{rule} using --bootstrap-server. Unexpected config names: {names}")


def _alter_quotas(cluster: Cluster, entities: Entities, add: dict[str, str], delete: Iterable[str]) -> None:
    has = quotas_of(cluster, entities)
    absent = [key for key in delete if not has or key not in has[0].values]
    if absent:
        raise ToolUsageError(f"Invalid config(s): {','.join(absent)}")
    kinds = [QUOTA_TYPES[kind] for kind in entities.types]
    entity = {kind: name or None for kind, name in zip(kinds, entities.names, strict=True)}
    changes: dict[str, float | None] = {key: _quota(key, text) for key, text in add.items()}
    with asking("alterClientQuotas"):
        alter_quotas(cluster, entity, {**dict.fromkeys(delete), **changes})


def _quota(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ToolUsageError(f"Cannot parse quota configuration value for {key}: {text}") from None


def _credential(mechanism: str, text: str) -> NewCredential:
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise ToolUsageError(f"Invalid credential property {mechanism.replace('-', '_')}={text}")
    said, password = found.groups()
    try:
        iterations = ITERATIONS_DEFAULT if said in (None, _NOT_SAID) else read_int(said)
    except ValueError:
        raise ToolUsageError(f'For input string: "{said}"') from None
    if iterations < ITERATIONS_MIN:
        raise ToolUsageError(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for {mechanism}"
        )
    return NewCredential(mechanism, password, iterations)
