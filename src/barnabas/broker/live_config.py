"""The configuration of a broker as it is now: its own settings, and over them the dynamic ones of the metadata."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.config.values import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.metadata.image import MetadataImage

logger = logging.getLogger("barnabas.broker")


class LiveConfig:
    """`config` is replaced as a whole when a dynamic setting changes."""

    __slots__ = ("_on_configured", "_static", "config")

    def __init__(self, config: BrokerConfig, on_configured: Callable[[BrokerConfig], None]) -> None:
        """`on_configured` is told of each configuration that comes into force."""
        self.config = config
        self._static = config
        self._on_configured = on_configured

    def follow(self, image: MetadataImage) -> None:
        """Puts the dynamic settings of an image into force."""
        cluster_default, own = image.configs.of_broker(""), image.configs.of_broker(self._static.node_id)
        try:
            config = self._static.with_dynamic(cluster_default, own)
        except ConfigError as error:
            logger.error("the dynamic configuration is invalid and was not applied: %s", error)
            return
        for name, reason in config.ignored_dynamic.items():
            if self.config.ignored_dynamic.get(name) != reason:
                logger.warning("the dynamic setting %s has no effect: %s", name, reason)
        self.config = config
        self._on_configured(config)
