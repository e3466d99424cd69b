"""ApiVersions on the broker's listeners, encoded once for each metadata image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.registry import ROUTES, handles
from barnabas.metadata.versions import SUPPORTED_FEATURES
from barnabas.net import api_versions as net_api_versions
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.broker.api.environments import CurrentMetadata
    from barnabas.metadata.image import MetadataImage
    from barnabas.net.dispatch import Caller
    from barnabas.raft.image_publisher import ImagePublisher


class ApiVersionsAnswers:
    """The encoded answers by version, for the current image."""

    __slots__ = ("_bodies", "_image", "_metadata", "_publisher")

    def __init__(self, metadata: CurrentMetadata, publisher: ImagePublisher) -> None:
        self._metadata = metadata
        self._publisher = publisher
        self._image: MetadataImage | None = None
        self._bodies: dict[int, bytes] = {}

    def body(self, version: int) -> bytes:
        image = self._metadata.image
        if image is not self._image:
            self._image = image
            self._bodies.clear()
        body = self._bodies.get(version)
        if body is None:
            response = net_api_versions.answer(
                ROUTES,
                version,
                supported=SUPPORTED_FEATURES,
                finalized=image.features.levels(self._publisher.kraft_version),
                finalized_epoch=image.offset,
            )
            body = self._bodies[version] = codec.encode(response, version)
        return body


@handles(ApiKey.API_VERSIONS, ApiVersionsAnswers, versions=net_api_versions.VERSIONS)
def api_versions(
    answers: ApiVersionsAnswers, request: m.ApiVersionsRequest, caller: Caller
) -> m.ApiVersionsResponse | bytes:
    if not net_api_versions.is_well_formed(request, caller.api_version):
        return m.ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    return answers.body(caller.api_version)
