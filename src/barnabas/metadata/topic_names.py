"""Which topic names are legal, which are internal, and which collide."""

from __future__ import annotations

import re

from barnabas.protocol.errors import Error, KafkaError

LENGTH_MAX = 249
"""Short enough for `<name>-<partition>` plus a suffix to be a valid file name."""
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION with the reason if the name is not legal."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > LENGTH_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def unify_collision_characters(name: str) -> str:
    """Metric names have `_` instead of `.`, so topics whose names differ only in these would share metrics."""
    return name.replace(".", "_")


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name
