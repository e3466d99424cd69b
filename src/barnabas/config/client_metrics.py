"""Subscriptions to the metrics of clients (KIP-714): which clients push which metrics, and how often.

A subscription is a resource of its own. Its settings are stored and described whether or not there is anything that
receives metrics.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.broker_config import ConfigSource
from barnabas.config.describe import ConfigEntry, Synonym
from barnabas.config.values import ConfigError, ConfigType, format_value, parse_value
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
DEFAULT_INTERVAL_MS = 300_000

SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client can be matched with a regular expression."""

_SETTINGS: Mapping[str, tuple[ConfigType, str, str]] = {
    INTERVAL: (ConfigType.INT, str(DEFAULT_INTERVAL_MS), "How often clients push their metrics, in milliseconds."),
    MATCH: (ConfigType.LIST, "", "Which clients are asked, as selector=regular expression; all of these must match."),
    METRICS: (ConfigType.LIST, "", "The prefixes of the names of the metrics that are asked for."),
}


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Raises KafkaError for what cannot be the settings of a subscription."""
    for name in configs:
        if name not in _SETTINGS:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    try:
        values = {name: parse_value(name, _SETTINGS[name][0], text) for name, text in configs.items()}
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, error.message) from error
    interval_ms = values.get(INTERVAL, DEFAULT_INTERVAL_MS)
    assert isinstance(interval_ms, int)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL}, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)",
        )
    parse_patterns(configs.get(MATCH, ""))


def parse_patterns(text: str) -> dict[str, re.Pattern[str]]:
    """The regular expressions of `match` by selector. Raises KafkaError if there are others than that."""
    patterns = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        selector, equals, expression = entry.partition("=")
        try:
            if not equals or selector.strip() not in SELECTORS:
                raise ValueError
            patterns[selector.strip()] = re.compile(expression.strip())
        except (ValueError, re.error):
            raise KafkaError(Error.INVALID_CONFIG, f"Illegal client matching pattern: {entry}") from None
    return patterns


class Subscription(NamedTuple):
    """Which metrics are asked for, how often, and of which clients."""

    metrics: frozenset[str]
    """The beginnings of their names, or `*` for all."""
    interval_ms: int
    patterns: Mapping[str, re.Pattern[str]]
    """By selector; all of them must match."""


def parse_subscription(configs: Mapping[str, str]) -> Subscription:
    """The subscription for which the metadata log has these settings."""
    values = {name: parse_value(name, type_, configs.get(name, text)) for name, (type_, text, _) in _SETTINGS.items()}
    metrics, interval_ms = values[METRICS], values[INTERVAL]
    assert isinstance(metrics, tuple)
    assert isinstance(interval_ms, int)
    return Subscription(frozenset(metrics), interval_ms, parse_patterns(configs.get(MATCH, "")))


def describe_client_metrics(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a subscription for which the metadata log has these."""
    return [_entry(name, configs.get(name), *of_setting) for name, of_setting in _SETTINGS.items()]


def _entry(name: str, given: str | None, type_: ConfigType, default: str, documentation: str) -> ConfigEntry:
    if given is None:
        return ConfigEntry(name, default, ConfigSource.DEFAULT, False, False, type_, documentation, ())
    shown = format_value(parse_value(name, type_, given))
    synonyms = (Synonym(name, shown, ConfigSource.CLIENT_METRICS),)
    return ConfigEntry(name, shown, ConfigSource.CLIENT_METRICS, False, False, type_, documentation, synonyms)
