"""ApiVersions: what a listener speaks, the first thing a client asks.

The list is made from the routes that the listener serves, with one exception that Kafka makes too: Produce is offered
from v0 on, because older librdkafka otherwise takes the broker for one that cannot decompress and silently sends
batches uncompressed. A request in v0 to v2 ends the connection nevertheless.

v3 is flexible, names the client's software, and tells of features · v4 also tells of features that start at 0

A version that is not served is answered in the form of v0, with the versions of ApiVersions alone, so that every
client can read what to ask instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSIONS = (0, 4)
"""The versions of ApiVersions itself that every listener serves."""
FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_ZERO_FEATURES = 4

OFFERED_FROM: Mapping[int, int] = {ApiKey.PRODUCE: 0}
"""APIs that are offered from a lower version than is served."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class Served(Protocol):
    """An API in the versions that a listener serves."""

    api_key: ApiKey
    min_version: int
    max_version: int


class Levels(Protocol):
    """The levels of a feature that this software supports."""

    @property
    def lowest(self) -> int: ...

    @property
    def highest(self) -> int: ...


def is_well_formed(request: m.ApiVersionsRequest, version: int) -> bool:
    """Whether a client names its software as it must."""
    return version < FIRST_VERSION_WITH_SOFTWARE_NAME or bool(
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    )


def answer(
    routes: Mapping[int, Served],
    version: int,
    *,
    supported: Mapping[str, Levels],
    finalized: Mapping[str, int],
    finalized_epoch: int,
) -> m.ApiVersionsResponse:
    """What a listener with these routes speaks, and the feature levels of this software and of the cluster."""
    response = m.ApiVersionsResponse
    return response(
        api_keys=[_offer(routes[key]) for key in sorted(routes)],
        # Older clients reject a feature that starts at 0, so only newer ones are told of those.
        supported_features=[
            response.SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
            for name, levels in supported.items()
            if levels.lowest > 0 or version >= FIRST_VERSION_WITH_ZERO_FEATURES
        ],
        finalized_features_epoch=finalized_epoch,
        finalized_features=[
            response.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
            if level > 0
        ],
    )


def unsupported_version_reply(routes: Mapping[int, Served]) -> bytes:
    """The body, in the form of v0, that refuses an ApiVersions request in a version that is not served."""
    own = [_offer(routes[ApiKey.API_VERSIONS])] if ApiKey.API_VERSIONS in routes else []
    return codec.encode(m.ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=own), 0)


def _offer(served: Served) -> m.ApiVersionsResponse.ApiVersion:
    return m.ApiVersionsResponse.ApiVersion(
        api_key=served.api_key,
        min_version=OFFERED_FROM.get(served.api_key, served.min_version),
        max_version=served.max_version,
    )
