"""The table of settings is whole, consistent with the typed classes, and cheap to import."""

import subprocess
import sys
import types
import typing

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.settings import (
    BROKER,
    CLUSTER_WIDE,
    GROUP,
    NOT_ACTING,
    PER_BROKER,
    READ_ONLY,
    TOPIC,
    ConfigType,
    did_you_mean,
)
from barnabas.config.topic_config import TopicConfig
from barnabas.config.values import check_value

PYTHON_TYPES = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
    ConfigType.LIST: tuple,
}


def test_the_table_holds_every_setting_of_kafka() -> None:
    from_files = [name for name, setting in BROKER.items() if not setting.dynamic_only]
    ours = [name for name in from_files if name.startswith("barnabas.")]
    assert (len(from_files) - len(ours), len(TOPIC), len(GROUP)) == (360, 34, 17)


def test_a_setting_of_our_own_is_not_shown_unless_it_is_set() -> None:
    ours = [setting for name, setting in BROKER.items() if name.startswith("barnabas.")]
    assert ours
    assert all(setting.acts and setting.internal for setting in ours)


def test_every_default_is_valid() -> None:
    for setting in (*BROKER.values(), *TOPIC.values(), *GROUP.values()):
        if setting.default is not None:
            check_value(setting.name, setting.default, setting.valid)


def test_every_broker_setting_has_an_update_mode_and_no_other_has() -> None:
    assert {setting.update_mode for setting in BROKER.values()} == {READ_ONLY, PER_BROKER, CLUSTER_WIDE}
    assert {setting.update_mode for setting in (*TOPIC.values(), *GROUP.values())} == {""}


def test_synonyms_are_broker_settings() -> None:
    for setting in (*TOPIC.values(), *GROUP.values()):
        assert all(synonym in BROKER for synonym in setting.synonyms), setting


def test_a_setting_that_acts_is_documented_in_one_line() -> None:
    for setting in (*BROKER.values(), *TOPIC.values()):
        assert (setting.documentation == NOT_ACTING) is not setting.acts, setting
        if setting.acts:
            assert setting.documentation.endswith("."), setting
            assert len(setting.documentation) < 160, setting


def test_every_broker_setting_that_acts_has_a_typed_attribute() -> None:
    hints = typing.get_type_hints(BrokerConfig)
    of_listeners = {"listeners", "advertised.listeners"}  # these are parsed further, into listeners
    for name, setting in BROKER.items():
        if not setting.acts or name in of_listeners:
            continue
        hint = hints[name.replace(".", "_")]
        plain = next(part for part in typing.get_args(hint) if part is not types.NoneType) if _is_union(hint) else hint
        assert (typing.get_origin(plain) or plain) is PYTHON_TYPES[setting.type], name


def _is_union(hint: object) -> bool:
    return isinstance(hint, types.UnionType)


def test_topic_defaults_are_those_of_the_table() -> None:
    config = TopicConfig()
    for name, setting in TOPIC.items():
        if name == "internal.segment.bytes":
            continue
        value = getattr(config, name.replace(".", "_"))
        expected = (
            frozenset(setting.default) if isinstance(setting.default, tuple) and name == "cleanup.policy" else None
        )
        assert value == (setting.default if expected is None else expected), name
    of_the_broker = {"barnabas_validate_records"}
    assert len(config) == len(TOPIC) - 1 + len(of_the_broker)


def test_the_nearest_name_is_found_where_there_is_one() -> None:
    assert did_you_mean("num.partition", BROKER) == "; did you mean num.partitions?"
    assert did_you_mean("zebra", BROKER) == ""


def test_importing_the_configuration_loads_nothing_heavy() -> None:
    heavy = {"asyncio", "dataclasses", "decimal", "difflib", "inspect", "socket", "json"}
    code = "import sys, barnabas.config.describe, barnabas.config.dynamic; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not heavy.intersection(loaded)
