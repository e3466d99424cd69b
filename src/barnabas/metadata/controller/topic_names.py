"""Which names a topic may have."""

from __future__ import annotations

import re

from barnabas.protocol.errors import Error, KafkaError

LENGTH_MAX = 249
"""So that `<name>-<partition>` and a suffix fit into a file name."""
CLUSTER_METADATA = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION with what is wrong."""
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
