"""What registrations of brokers and controllers have in common: addresses, and the feature levels they support.

Requests, records and the image say both in classes of their own with the same fields; here one becomes another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.metadata.versions import VersionRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")


class HasAddress(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...


class HasRange(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def addresses_as(kind: Callable[..., T], addresses: Iterable[HasAddress]) -> list[T]:
    """The same addresses as objects of `kind`."""
    return [
        kind(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in addresses
    ]


def features_as(kind: Callable[..., T], supported: Mapping[str, VersionRange]) -> list[T]:
    """The levels of each feature as objects of `kind`."""
    return [
        kind(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
        for name, levels in supported.items()
    ]


def supported_levels(features: Iterable[HasRange]) -> dict[str, VersionRange]:
    """The levels of each feature by its name."""
    return {each.name: VersionRange(each.min_supported_version, each.max_supported_version) for each in features}
