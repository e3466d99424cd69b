"""Types, ranges and refusals of settings. The messages are those that Apache Kafka 4.3.1 was seen to give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.settings import BROKER, GROUP, TOPIC, Setting
from barnabas.config.values import ConfigError, ConfigType, Value, format_value, parse_value


@pytest.mark.parametrize(
    ("value_type", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " 5 ", 5),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 2**15 - 1),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5d", 0.5),
        (ConfigType.DOUBLE, "1e-3", 0.001),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.LIST, "delete,delete", ("delete",)),
        (ConfigType.STRING, " CreateTime ", "CreateTime"),
        (ConfigType.PASSWORD, " secret ", " secret "),
        (ConfigType.CLASS, "org.example.Policy", "org.example.Policy"),
    ],
)
def test_a_text_is_read_as_java_reads_it(value_type: ConfigType, text: str, value: Value) -> None:
    assert parse_value("some.setting", value_type, text) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("segment.ms", "xyz", "Not a number of type LONG"),
        ("segment.ms", "1_000", "Not a number of type LONG"),
        ("segment.ms", "", "Not a number of type LONG"),
        ("segment.ms", "0", "Value must be at least 1"),
        ("retention.ms", "-5", "Value must be at least -1"),
        ("max.message.bytes", "99999999999", "Not a number of type INT"),
        ("max.message.bytes", "-1", "Value must be at least 0"),
        ("segment.bytes", "100", "Value must be at least 1048576"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        (
            "compression.type",
            "brotli",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.zstd.level", "-131073", "Value must be at least -131072"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-0.1", "Value must be at least 0"),
        ("min.cleanable.dirty.ratio", "abc", "Not a number of type DOUBLE"),
        ("cleanup.policy", "DELETE", "String must be one of: compact, delete"),
    ],
)
def test_a_topic_value_is_refused_in_kafkas_words(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TOPIC[name].parse(text)
    assert str(refused.value) == f"Invalid value {text} for configuration {name}: {reason}"
    assert refused.value.key == name


@pytest.mark.parametrize(
    ("setting", "text", "message"),
    [
        (
            TOPIC["cleanup.policy"],
            "delete,foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (TOPIC["cleanup.policy"], "delete,", "Configuration 'cleanup.policy' values must not be empty."),
        (
            TOPIC["leader.replication.throttled.replicas"],
            "a:b",
            (
                "Invalid value [a:b] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
        (
            BROKER["log.dirs"],
            "",
            "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value",
        ),
        (
            BROKER["process.roles"],
            "",
            "Configuration 'process.roles' must not be empty. Valid values include: [broker, controller]",
        ),
        (
            BROKER["process.roles"],
            "foo",
            "Invalid value foo for configuration process.roles: String must be one of: broker, controller",
        ),
        (
            BROKER["controller.quorum.voters"],
            "foo",
            (
                "Invalid configuration value for controller.quorum.voters. "
                "Each entry should be in the form `{id}@{host}:{port}`."
            ),
        ),
        (
            BROKER["group.consumer.migration.policy"],
            "never",
            (
                "Invalid value never for configuration group.consumer.migration.policy: "
                "String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL"
            ),
        ),
        (
            GROUP["share.auto.offset.reset"],
            "by_duration:-PT1H",
            (
                "Invalid value by_duration:-PT1H for configuration share.auto.offset.reset: Invalid value "
                "`by_duration:-PT1H` for configuration share.auto.offset.reset. The value must be either 'earliest', "
                "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            ),
        ),
    ],
)
def test_lists_and_special_forms_are_refused_in_kafkas_words(setting: Setting, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        setting.parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (TOPIC["leader.replication.throttled.replicas"], "*"),
        (TOPIC["leader.replication.throttled.replicas"], "0:1,1:2"),
        (TOPIC["cleanup.policy"], ""),
        (TOPIC["compression.gzip.level"], "-1"),
        (GROUP["share.auto.offset.reset"], "by_duration:P1DT2H0.5S"),
        (BROKER["group.consumer.migration.policy"], "disabled"),
        (BROKER["controller.quorum.voters"], "1@localhost:9093,2@[::1]:9093"),
    ],
)
def test_special_forms_are_accepted(setting: Setting, text: str) -> None:
    assert format_value(setting.parse(text)) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (9999999.0, "9999999.0"),
        (-0.00025, "-2.5E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.0, "0.0"),
        (float("inf"), "Infinity"),
    ],
)
def test_a_double_is_written_as_java_writes_it(number: float, text: str) -> None:
    assert format_value(number) == text


@given(st.floats(allow_nan=False))
def test_every_double_reads_back_as_it_was_written(number: float) -> None:
    text = format_value(number)
    assert text is not None
    assert parse_value("d", ConfigType.DOUBLE, text) == number


@given(st.text())
def test_a_text_that_is_not_accepted_is_refused_by_the_settings_name(text: str) -> None:
    for setting in (*TOPIC.values(), *GROUP.values()):
        assert setting.name in _refusal(setting, text)


def _refusal(setting: Setting, text: str) -> str:
    try:
        setting.parse(text)
    except ConfigError as error:
        return str(error)
    return setting.name
