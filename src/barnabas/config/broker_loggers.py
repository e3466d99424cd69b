"""The loggers of a node, described and set as Kafka does with those of a broker (BROKER_LOGGER resources).

A change lasts until the process ends. Names are Python's, which begin with `barnabas.`; levels have Kafka's names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.config.broker_config import ConfigSource
from barnabas.config.describe import ConfigEntry
from barnabas.config.values import ConfigType
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "root"
TRACE = 5
"""Below what Python has a name for."""

LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}


def describe_loggers() -> list[ConfigEntry]:
    """Every logger of this process, with the level that is in effect for it."""
    names = [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]
    return [_entry(name) for name in (ROOT, *sorted(names))]


def check_level(name: str, level: str) -> None:
    """Raises KafkaError if there is no such logger, or no such level."""
    _require(name)
    if level not in LEVELS:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are "
            f"{', '.join(LEVELS)}",
        )


def check_removal(name: str) -> None:
    """Raises KafkaError if the level of this logger cannot be left to those above it."""
    _require(name)
    if name == ROOT:
        raise KafkaError(Error.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")


def set_levels(levels: Mapping[str, str | None]) -> None:
    """Sets levels that were checked; None leaves a logger to those above it."""
    for name, level in levels.items():
        _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _require(name: str) -> None:
    if name != ROOT and not isinstance(logging.root.manager.loggerDict.get(name), logging.Logger):
        raise KafkaError(Error.INVALID_CONFIG, f"Logger {name} does not exist!")


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _entry(name: str) -> ConfigEntry:
    level = _level_name(_logger(name).getEffectiveLevel())
    return ConfigEntry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, False, False, ConfigType.UNKNOWN, "", ())


def _level_name(level: int) -> str:
    """The name of the highest level that lets through all that this one does."""
    return max(LEVELS, key=lambda name: LEVELS[name] if LEVELS[name] <= level else -LEVELS[name])
