"""Assignors of consumer groups: which member of a group reads which partitions, decided by the broker (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups.assignors import range_, uniform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.groups.assignors.spec import Assignor

ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform.assign, "range": range_.assign}
"""By the names that clients and `group.consumer.assignors` call them."""
