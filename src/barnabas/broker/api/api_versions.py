"""ApiVersions on the broker's listeners, encoded once for each offset of the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.broker.api.registry import handles
from barnabas.metadata.versions import SUPPORTED_FEATURES
from barnabas.net import api_versions as net_api_versions
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import MetadataImage
    from barnabas.net.dispatch import Caller, Route
    from barnabas.raft.image_publisher import ImagePublisher


class MetadataInEffect(Protocol):
    @property
    def image(self) -> MetadataImage: ...

    def offset_in_effect(self, newest: int) -> int:
        """Up to where the metadata log is in effect, if `newest` is the offset of the newest image."""
        ...


class ApiVersionsAnswers:
    """The encoded answers by version, for the current image.

    Their epoch is how far the metadata log is in effect. It goes on with records that change nothing, as with Kafka.
    """

    __slots__ = ("_bodies", "_epoch", "_image", "_metadata", "_publisher", "_routes")

    def __init__(self, metadata: MetadataInEffect, publisher: ImagePublisher, routes: Mapping[int, Route]) -> None:
        """`routes` are those of the listeners."""
        self._metadata = metadata
        self._publisher = publisher
        self._routes = routes
        self._image: MetadataImage | None = None
        self._epoch = -1
        self._bodies: dict[int, bytes] = {}

    def body(self, version: int) -> bytes:
        image = self._metadata.image
        epoch = self._metadata.offset_in_effect(self._publisher.image.offset)
        if image is not self._image or epoch != self._epoch:
            self._image, self._epoch = image, epoch
            self._bodies.clear()
        body = self._bodies.get(version)
        if body is None:
            response = net_api_versions.answer(
                self._routes,
                version,
                supported=SUPPORTED_FEATURES,
                finalized=image.features.levels(self._publisher.kraft_version),
                finalized_epoch=epoch,
            )
            body = self._bodies[version] = codec.encode(response, version)
        return body


@handles(ApiKey.API_VERSIONS, ApiVersionsAnswers, versions=net_api_versions.VERSIONS)
def api_versions(
    answers: ApiVersionsAnswers, request: m.ApiVersionsRequest, caller: Caller
) -> m.ApiVersionsResponse | bytes:
    if not net_api_versions.is_well_formed(request, caller.api_version):
        return m.ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    if caller.api_version >= net_api_versions.FIRST_VERSION_WITH_SOFTWARE_NAME:
        connection = caller.connection
        if isinstance(connection, ClientConnection):
            connection.software = request.client_software_name, request.client_software_version
    return answers.body(caller.api_version)
