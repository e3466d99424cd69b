"""One module for each family of APIs. Importing a module registers its handlers."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "api_versions",
    "cluster",
    "configs",
    "consumer_groups",
    "coordinators",
    "fetch",
    "group_admin",
    "group_membership",
    "group_offsets",
    "leader_epochs",
    "list_offsets",
    "metadata",
    "offset_commits",
    "produce",
    "producer_ids",
    "producers",
    "topic_partitions",
    "topics",
    "transactions",
    "txn_admin",
    "txn_offsets",
    "txn_partitions",
)


def register_all() -> None:
    """Makes every API of the broker's listeners known to the dispatcher."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
