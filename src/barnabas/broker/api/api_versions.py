"""ApiVersions: what this node speaks, the first thing a client asks.

The list is made from the registered handlers, with one exception that Kafka makes too: Produce is offered from v0
on, because older librdkafka otherwise takes the broker for one that cannot decompress and silently sends batches
uncompressed. A request in v0 to v2 ends the connection nevertheless.

v3 is flexible, names the client's software, and tells of features · v4 also tells of features that start at 0

A version that is not served is answered in the form of v0, with the versions of ApiVersions alone, so that every
client can read what to ask instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.broker.dispatch import ROUTES, handles
from barnabas.metadata import versions
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.dispatch import Caller, Route
    from barnabas.broker.server import Broker
    from barnabas.metadata.image import FeaturesImage, MetadataImage

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_ZERO_FEATURES = 4

OFFERED_FROM: Mapping[int, int] = {ApiKey.PRODUCE: 0}
"""APIs that are offered from a lower version than is served."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class ApiVersionsAnswers:
    """The encoded answer of each version, for as long as the image stays."""

    __slots__ = ("_bodies", "_image")

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._bodies: dict[int, bytes] = {}

    def body(self, image: MetadataImage, kraft_version: int, version: int) -> bytes:
        if image is not self._image:
            self._image = image
            self._bodies.clear()
        body = self._bodies.get(version)
        if body is None:
            body = self._bodies[version] = codec.encode(describe(image, kraft_version, version, ROUTES), version)
        return body


@handles(ApiKey.API_VERSIONS, versions=(0, 4))
def api_versions(broker: Broker, request: m.ApiVersionsRequest, caller: Caller) -> m.ApiVersionsResponse | bytes:
    if caller.api_version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not names_software(request):
        return m.ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    return broker.api.api_versions.body(broker.image, broker.metadata.kraft_version, caller.api_version)


def names_software(request: m.ApiVersionsRequest) -> bool:
    return bool(
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    )


def describe(
    image: MetadataImage, kraft_version: int, version: int, routes: Mapping[int, Route]
) -> m.ApiVersionsResponse:
    return m.ApiVersionsResponse(
        api_keys=[offer(routes[key]) for key in sorted(routes)],
        supported_features=supported_features(version),
        finalized_features_epoch=image.offset,
        finalized_features=finalized_features(image.features, kraft_version),
    )


def offer(route: Route) -> m.ApiVersionsResponse.ApiVersion:
    return m.ApiVersionsResponse.ApiVersion(
        api_key=route.api_key,
        min_version=OFFERED_FROM.get(route.api_key, route.min_version),
        max_version=route.max_version,
    )


def supported_features(version: int) -> list[m.ApiVersionsResponse.SupportedFeatureKey]:
    """Older clients reject a feature that starts at 0, so only newer ones are told of those."""
    return [
        m.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in versions.SUPPORTED_FEATURES.items()
        if levels.lowest > 0 or version >= FIRST_VERSION_WITH_ZERO_FEATURES
    ]


def finalized_features(features: FeaturesImage, kraft_version: int) -> list[m.ApiVersionsResponse.FinalizedFeatureKey]:
    """The quorum's level is finalized in control records, and so it is not in the image."""
    levels = {
        **features.finalized,
        versions.FEATURE_NAME: features.metadata_version,
        versions.KRAFT_FEATURE: kraft_version,
    }
    return [
        m.ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
        if level > 0
    ]


def unsupported_version_reply(routes: Mapping[int, Route]) -> bytes:
    """The body, in the form of v0, that refuses an ApiVersions request in a version that is not served."""
    own = [offer(routes[ApiKey.API_VERSIONS])] if ApiKey.API_VERSIONS in routes else []
    return codec.encode(m.ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=own), 0)
