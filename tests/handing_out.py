"""Which tests stay together when several processes share them."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

SPARK = "tests/spark/"


class ByModule(LoadScopeScheduling):  # type: ignore[misc]  # it has no annotations
    """A module's tests share what they have in common, and all tests of pipelines one Spark session.

    `make test` has modules handed out in the order of the tree: those that start many processes come first, and the
    many quick ones fill up the time at the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]
