"""Settings that the metadata log has for a resource, for the APIs that describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.image import ConfigResource, ResourceType
from barnabas.metadata.topic_names import check_topic_name
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import MetadataImage


def stored_configs(image: MetadataImage, resource_type: int, name: str) -> Mapping[str, str]:
    """Raises KafkaError for a topic that does not exist; anything else may have settings before it exists."""
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in image.topics:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    return image.configs.of(ConfigResource(resource_type, name))
