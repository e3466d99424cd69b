"""DescribeConfigs: every setting with its value, its source, and its synonyms.

The synonyms of an entry are the settings that could determine its value, highest precedence first: the topic's or
group's own, then broker settings by layer. As in Kafka, a list of synonyms begins with the name that is described, and
is empty if no layer sets it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.config.broker_config import BrokerConfig, ConfigSource
from barnabas.config.settings import BROKER, GROUP, READ_ONLY, TOPIC, ConfigType, Setting, broker_setting, listener_base
from barnabas.config.topic_config import inherited
from barnabas.config.values import Value, format_value


class Synonym(NamedTuple):
    """One of the values that an entry could have had."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting of a DescribeConfigs answer."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    read_only: bool
    type: ConfigType
    documentation: str | None
    synonyms: tuple[Synonym, ...]


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """All settings of a topic with these overrides."""
    return [
        _entry(
            setting,
            setting.parse(overrides[name]) if name in overrides else inherited(name, broker),
            [
                *_own_synonym(setting, overrides, ConfigSource.TOPIC),
                *(_synonyms(setting.synonyms[0], broker) if setting.synonyms else ()),
            ],
        )
        for name, setting in TOPIC.items()
        if name in overrides or not setting.internal
    ]


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """All settings of a group with these overrides."""
    entries = []
    for name, setting in GROUP.items():
        if setting.synonyms:
            value, synonyms = broker.get(setting.synonyms[0]), _synonyms(setting.synonyms[0], broker)
        else:
            value = setting.default
            synonyms = [Synonym(name, format_value(value), ConfigSource.DEFAULT)]
        if name in overrides:
            value = setting.parse(overrides[name])
        entries.append(_entry(setting, value, [*_own_synonym(setting, overrides, ConfigSource.GROUP), *synonyms]))
    return entries


def describe_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """All settings of this broker, including unknown ones that were set."""
    given = {name for layer in broker.layers.values() for name in layer}
    shown = {name for name, setting in BROKER.items() if not setting.internal}
    return [_broker_entry(name, broker, _synonyms(name, broker)) for name in sorted(shown | given)]


def describe_cluster_default(broker: BrokerConfig) -> list[ConfigEntry]:
    """The dynamic configuration that all brokers share."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        _broker_entry(name, broker, [synonym for synonym in _synonyms(name, broker) if synonym.source is source])
        for name in sorted(broker.layers[source])
    ]


def _entry(setting: Setting, value: Value, synonyms: list[Synonym]) -> ConfigEntry:
    return ConfigEntry(
        name=setting.name,
        value=format_value(value),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=False,
        read_only=False,
        type=setting.type,
        documentation=setting.documentation,
        synonyms=tuple(synonyms),
    )


def _own_synonym(setting: Setting, overrides: Mapping[str, str], source: ConfigSource) -> Iterator[Synonym]:
    if setting.name in overrides:
        yield Synonym(setting.name, format_value(setting.parse(overrides[setting.name])), source)


def _broker_entry(name: str, broker: BrokerConfig, synonyms: list[Synonym]) -> ConfigEntry:
    setting = broker_setting(name)
    is_sensitive = setting is None or setting.is_sensitive
    return ConfigEntry(
        name=name,
        value=None if is_sensitive else _broker_value(name, broker, synonyms),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=is_sensitive,
        read_only=name not in BROKER or BROKER[name].update_mode == READ_ONLY,
        type=ConfigType.UNKNOWN if setting is None else setting.type,
        documentation=BROKER[name].documentation if name in BROKER and not BROKER[name].dynamic_only else None,
        synonyms=tuple(synonyms),
    )


def _broker_value(name: str, broker: BrokerConfig, synonyms: list[Synonym]) -> str | None:
    """The value in effect, or the configured text if `name` is that of one listener or only one layer is described."""
    if name in BROKER and (not synonyms or broker.source_of(name) is synonyms[0].source):
        return format_value(broker.get(name))
    return synonyms[0].value


def _synonyms(name: str, broker: BrokerConfig) -> list[Synonym]:
    """What each layer has for a broker setting and for the settings that it falls back to."""
    names = _stand_ins(name)
    found = [
        Synonym(synonym, _shown(synonym, layer[synonym]), source)
        for source, layer in broker.layers.items()
        for synonym in names
        if synonym in layer
    ]
    found += [
        Synonym(synonym, _shown(synonym, format_value(BROKER[synonym].default)), ConfigSource.DEFAULT)
        for synonym in names
        if synonym in BROKER and BROKER[synonym].default is not None
    ]
    while found and found[0].name != name:
        del found[0]
    return found


def _shown(name: str, text: str | None) -> str | None:
    setting = broker_setting(name)
    return None if setting is None or setting.is_sensitive else text


def _stand_ins(name: str) -> tuple[str, ...]:
    base = listener_base(name)
    return (name, base) if base else _FAMILIES.get(name, (name,))


def _families() -> dict[str, tuple[str, ...]]:
    """Broker settings for the same thing in different units, highest precedence first."""
    families = {}
    for setting in TOPIC.values():
        if len(setting.synonyms) > 1:
            families.update(dict.fromkeys(setting.synonyms, setting.synonyms))
    # The scheduler's interval is the default of the flush interval, but not the other way round.
    del families["log.flush.scheduler.interval.ms"]
    return families


_FAMILIES = _families()
