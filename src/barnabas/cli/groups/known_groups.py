"""The groups that a command names: described, or why they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.cluster_session import refusal_text
from barnabas.cli.command_line import CommandError, nearest
from barnabas.client.admin.groups import GroupDescription, OtherProtocolError, describe_consumer_groups, list_groups
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.cluster import Cluster

DEAD = "dead"
"""What older brokers say of a group that they have never heard of."""


def described_groups(cluster: Cluster, names: Sequence[str]) -> tuple[list[GroupDescription], list[str]]:
    """The groups that can be described, and what is wrong with the others."""
    described, failures = [], []
    for name, found in describe_consumer_groups(cluster, names).items():
        if isinstance(found, GroupDescription) and found.state.lower() != DEAD:
            described.append(found)
        else:
            failures.append(failure_text(cluster, name, found))
    return described, failures


def described_group(cluster: Cluster, name: str) -> GroupDescription:
    described, failures = described_groups(cluster, [name])
    if failures:
        raise CommandError(failures[0])
    return described[0]


def failure_text(cluster: Cluster, name: str, found: GroupDescription | KafkaError | OtherProtocolError) -> str:
    if isinstance(found, OtherProtocolError):
        return f"group {name!r} is none of consumers, and commits no offsets: {found}"
    if isinstance(found, GroupDescription) or found.error is Error.GROUP_ID_NOT_FOUND:
        return absent_text(cluster, name)
    return f"group {name!r}: {refusal_text(found)}"


def absent_text(cluster: Cluster, name: str) -> str:
    names = [each.group for each in list_groups(cluster)]
    hint = nearest(name, names) if names else ""
    if not hint.startswith("did you mean"):
        hint = "`barnabas group list` lists groups"
    return f"group {name!r} does not exist ({hint})"


def members_text(group: GroupDescription) -> str:
    """Who is in a group, for somebody who has to stop them: the first few by their addresses."""
    shown = [f"{each.client_id} at {each.host.removeprefix('/')}" for each in group.members[:3]]
    more = len(group.members) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
