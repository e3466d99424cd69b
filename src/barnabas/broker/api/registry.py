"""The APIs of the broker's listeners: handlers register themselves here with the versions they serve, and with the
environment that they work with.

`handles` is for functions over decoded requests; `handles_frames` for the hot ones that read and write bytes
themselves. Importing a module of handlers registers them, and `register_all` imports every one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.net.dispatch import Route
from barnabas.net.large_requests import WHOLE_BYTES_MAX, in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.broker.api.client_connection import ClientConnection
    from barnabas.net.dispatch import Caller
    from barnabas.net.large_requests import Cut, LargeHandler
    from barnabas.protocol.api import ApiKey

HANDLERS = (
    "admin.alter_log_dirs",
    "admin.client_quotas",
    "admin.cluster_changes",
    "admin.config_resources",
    "admin.configs",
    "admin.delete_records",
    "admin.describe_cluster",
    "admin.log_dirs",
    "admin.reassignments",
    "admin.metadata",
    "admin.topic_partitions",
    "admin.topics",
    "api_versions",
    "fetch.fetch",
    "fetch.list_offsets",
    "fetch.offset_for_leader_epoch",
    "groups.classic_groups",
    "groups.consumer_groups",
    "groups.find_coordinator",
    "groups.group_admin",
    "groups.offset_commit",
    "groups.offset_fetch",
    "produce.produce",
    "telemetry",
    "transactions.describe_producers",
    "transactions.end_txn",
    "transactions.init_producer_id",
    "transactions.txn_admin",
    "transactions.txn_offsets",
    "transactions.txn_partitions",
)
ROUTES: dict[int, Route] = {}

_environments: dict[int, type[Any]] = {}
"""What the handlers of each API take first."""

E = TypeVar("E")
Q = TypeVar("Q")
A = TypeVar("A")

if TYPE_CHECKING:
    FrameHandler = Callable[[E, ClientConnection, int, memoryview, int], None]


def handles(
    api_key: ApiKey,
    environment: type[E],
    *,
    versions: tuple[int, int],
    cuts: Sequence[Cut] = (),
    large_handler: LargeHandler = in_pieces,
    whole_bytes_max: int = WHOLE_BYTES_MAX,
    long_answer: str | None = None,
) -> Callable[[Callable[[E, Q, Caller], A]], Callable[[E, Q, Caller], A]]:
    """Registers a handler of decoded requests (`net.dispatch.Handler`). `cuts` say how a request of more than
    `whole_bytes_max` is answered in pieces (`net.large_requests`); without them, a request of many elements is refused.
    `long_answer` names the array that can make the answer to a small request long.
    """

    def register(handler: Callable[[E, Q, Caller], A]) -> Callable[[E, Q, Caller], A]:
        _add(
            environment,
            Route(
                api_key,
                versions,
                handler,
                cuts=cuts,
                large_handler=large_handler,
                whole_bytes_max=whole_bytes_max,
                long_answer=long_answer,
            ),
        )
        return handler

    return register


def handles_frames(
    api_key: ApiKey,
    environment: type[E],
    *,
    versions: tuple[int, int],
    large: Callable[[E, Any, Caller], Any] | None = None,
    cuts: Sequence[Cut] = (),
    large_handler: LargeHandler = in_pieces,
    whole_bytes_max: int = WHOLE_BYTES_MAX,
) -> Callable[[FrameHandler[E]], FrameHandler[E]]:
    """Registers a handler that reads the request's bytes and answers the connection itself
    (`net.dispatch.FrameHandler`). Where a large request would take it long, `large` is the handler of decoded requests,
    and of their pieces."""

    def register(handler: FrameHandler[E]) -> FrameHandler[E]:
        _add(
            environment,
            Route(
                api_key,
                versions,
                large,
                handler,
                cuts=cuts,
                large_handler=large_handler,
                whole_bytes_max=whole_bytes_max,
            ),
        )
        return handler

    return register


def register_all() -> None:
    """Makes every API of the broker's listeners known."""
    package = __name__.rpartition(".")[0]
    for module in HANDLERS:
        import_module(f"{package}.{module}")


def served_in(environments: Iterable[type[Any]]) -> dict[int, Route]:
    """The APIs whose handlers work with one of these environments."""
    known = frozenset(environments)
    return {api_key: route for api_key, route in ROUTES.items() if _environments[api_key] in known}


def routes_for(environments: Iterable[object]) -> dict[int, Route]:
    """The routes of a broker's listeners, each with the one of its environments that its handlers work with. What
    works with others is not served."""
    by_type = {type(environment): environment for environment in environments}
    return {key: route.served_by(by_type[_environments[key]]) for key, route in served_in(by_type).items()}


def _add(environment: type[Any], route: Route) -> None:
    assert route.api_key not in ROUTES, f"{route.api_key.name} has two handlers"
    ROUTES[route.api_key] = route
    _environments[route.api_key] = environment
