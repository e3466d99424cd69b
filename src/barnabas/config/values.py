"""Conversion of settings between text and values, with Kafka's types, ranges and error messages.

Types and messages are those of Kafka's ConfigDef, because clients show the messages to their users and some tools
match on them. An invalid value raises `ConfigError`, which carries the name of the setting.
"""

import functools
import re
from collections.abc import Callable
from enum import IntEnum

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigError(ValueError):
    """An invalid setting: `key` is its name, and the message says why it is invalid and what would be valid."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


class ConfigType(IntEnum):
    """Types, with their codes in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_WHOLE_NUMBER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
# Patterns are compiled on first use, to keep them out of the startup time.
# Numbers are what Java parses, not Python: "1_000" is not one, but "1.5d" and "+7" are.
_WHOLE_NUMBER = r"[+-]?[0-9]+"
_DECIMAL = r"([+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|NaN|Infinity))[dDfF]?"
_LIST_SEPARATOR = r"\s*,\s*"
# Java's String.trim strips all characters up to and including the space.
_TRIMMED = "".join(map(chr, range(33)))


def invalid(key: str, shown: object, reason: str) -> ConfigError:
    """The error in Kafka's wording."""
    return ConfigError(key, f"Invalid value {shown} for configuration {key}: {reason}")


def parse_value(key: str, value_type: ConfigType, text: str) -> Value:
    """The value that `text` stands for, not yet checked against a range."""
    trimmed = text.strip(_TRIMMED)
    match value_type:
        case ConfigType.BOOLEAN:
            return _parse_boolean(key, text, trimmed)
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return _parse_whole_number(key, value_type, text, trimmed)
        case ConfigType.DOUBLE:
            decimal = re.fullmatch(_DECIMAL, trimmed)
            if decimal is None:
                raise invalid(key, text, "Not a number of type DOUBLE")
            return float(decimal.group(1))
        case ConfigType.LIST:
            # Duplicate entries count once.
            return tuple(dict.fromkeys(re.split(_LIST_SEPARATOR, trimmed))) if trimmed else ()
        case ConfigType.PASSWORD:
            return text
        case _:
            return trimmed


def _parse_boolean(key: str, text: str, trimmed: str) -> bool:
    lowered = trimmed.lower()
    if lowered not in ("true", "false"):
        raise invalid(key, text, "Expected value to be either true or false")
    return lowered == "true"


def _parse_whole_number(key: str, value_type: ConfigType, text: str, trimmed: str) -> int:
    # No 64-bit number has more than 20 characters, so a text of megabytes need not be converted.
    number = int(trimmed) if len(trimmed) <= 40 and re.fullmatch(_WHOLE_NUMBER, trimmed) else None
    limit = 1 << (_WHOLE_NUMBER_BITS[value_type] - 1)
    if number is None or not -limit <= number < limit:
        raise invalid(key, text, f"Not a number of type {value_type.name}")
    return number


def format_value(value: Value) -> str | None:
    """The text that DescribeConfigs shows for a value, which parses back to the same value."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _format_double(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _format_double(number: float) -> str:
    """As Java writes it: plain from 0.001 up to 10,000,000, otherwise with an exponent after `E`."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    shortest = repr(number)
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return shortest
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    before, _, after = mantissa.partition(".")
    digits = (before + after).lstrip("0")
    power = len(before) + int(exponent or 0) - (len(before + after) - len(digits)) - 1
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{power}"


def check_value(key: str, value: Value, valid: str) -> None:
    """Rejects a value that does not satisfy `valid`, the "valid values" of Kafka's documentation."""
    if valid:
        validator(valid)(key, value)


Check = Callable[[str, Value], None]

_RANGE = r"\[([-0-9.]+),\.\.\.(?:,([-0-9.]+))?\]"
_RANGE_OR_DEFAULT = r"\[([-0-9]+),\.\.\.,([-0-9]+)\] or ([-0-9]+)"
_CHOICE = r"(\(case insensitive\) |non-empty list of )?\[([^\]]*)\]"
_THROTTLED_REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_THROTTLED_REPLICA = r"[0-9]+:[0-9]+"
_DURATION_CHOICE = "[latest, earliest, by_duration:PnDTnHnMn.nS]"
_DURATION = r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,9})?S)?)?"
_HOST_AND_PORT = r"(\[[^\]]+\]|[^:@\[\]]+):[0-9]{1,5}"


@functools.cache
def validator(valid: str) -> Check:
    """The check that a "valid values" text describes."""
    if found := re.fullmatch(_RANGE_OR_DEFAULT, valid):
        low, high, other = map(int, found.groups())
        return _between_or(low, high, other)
    if found := re.fullmatch(_RANGE, valid):
        return _between(found.group(1), found.group(2))
    special = _SPECIAL_CHECKS.get(valid)
    if special is not None:
        return special
    if found := re.fullmatch(_CHOICE, valid):
        make = {None: _one_of, "(case insensitive) ": _one_of_any_case, "non-empty list of ": _some_of}[found.group(1)]
        return make(tuple(found.group(2).split(", ")))
    raise AssertionError(f"the table of settings has valid values without a validator: {valid}")


def _between(low: str, high: str | None) -> Check:
    least, most = float(low), None if high is None else float(high)

    def check(key: str, value: Value) -> None:
        if value is None:
            return
        assert isinstance(value, int | float)
        if value < least:
            raise invalid(key, format_value(value), f"Value must be at least {low}")
        if most is not None and value > most:
            raise invalid(key, format_value(value), f"Value must be no more than {high}")

    return check


def _between_or(low: int, high: int, other: int) -> Check:
    def check(key: str, value: Value) -> None:
        assert isinstance(value, int)
        if not low <= value <= high and value != other:
            raise invalid(key, value, f"Value must be between {low} and {high} or equal to {other}")

    return check


def _one_of(choices: tuple[str, ...]) -> Check:
    def check(key: str, value: Value) -> None:
        _any_list(key, value)
        for choice in value if isinstance(value, tuple) else (value,):
            if choice not in choices:
                raise invalid(key, choice, f"String must be one of: {', '.join(choices)}")

    return check


def _one_of_any_case(choices: tuple[str, ...]) -> Check:
    def check(key: str, value: Value) -> None:
        if not isinstance(value, str) or value.upper() not in choices:
            raise invalid(key, value, f"String must be one of (case insensitive): {', '.join(choices)}")

    return check


def _any_list(key: str, value: Value) -> None:
    if isinstance(value, tuple) and "" in value:
        raise ConfigError(key, f"Configuration '{key}' values must not be empty.")


def _non_empty_list(key: str, value: Value) -> None:
    if value == ():
        raise ConfigError(key, f"Configuration '{key}' must not be empty. Valid values include: any non-empty value")
    _any_list(key, value)


def _some_of(choices: tuple[str, ...]) -> Check:
    one_of = _one_of(choices)

    def check(key: str, value: Value) -> None:
        if value == ():
            listed = ", ".join(choices)
            raise ConfigError(key, f"Configuration '{key}' must not be empty. Valid values include: [{listed}]")
        one_of(key, value)

    return check


def _non_empty_string(key: str, value: Value) -> None:
    if value == "":
        raise invalid(key, value, "String must be non-empty")


def _throttled_replicas(key: str, value: Value) -> None:
    assert isinstance(value, tuple)
    if value not in ((), ("*",)) and not all(re.fullmatch(_THROTTLED_REPLICA, replica) for replica in value):
        reason = f"{key} must be the literal '*' or a list of replicas in the following format: {_THROTTLED_REPLICAS}"
        raise invalid(key, f"[{', '.join(value)}]", reason)


def _offset_reset(key: str, value: Value) -> None:
    assert isinstance(value, str)
    if value not in ("latest", "earliest") and not re.fullmatch(_DURATION, value, re.IGNORECASE):
        reason = (
            f"Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' "
            "or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise invalid(key, value, reason)


def _quorum_servers(key: str, value: Value) -> None:
    assert isinstance(value, tuple)
    for entry in value:
        if not re.fullmatch(_HOST_AND_PORT, entry):
            form = 'Each entry should be in the form "{host}:{port}"'
            raise ConfigError(key, f"Failed to parse host name from {entry} for the configuration {key}. {form}")
        _require_port(key, entry)


def _quorum_voters(key: str, value: Value) -> None:
    assert isinstance(value, tuple)
    form = "Each entry should be in the form `{id}@{host}:{port}`."
    for entry in value:
        node_id, at, address = entry.partition("@")
        if not at:
            raise ConfigError(key, f"Invalid configuration value for {key}. {form}")
        if len(node_id) > 10 or not re.fullmatch(_WHOLE_NUMBER, node_id):
            raise ConfigError(key, f"Failed to parse voter ID as an integer from {node_id}")
        if not re.fullmatch(_HOST_AND_PORT, address):
            raise ConfigError(key, f"Failed to parse host name from entry {entry} for the configuration {key}. {form}")
        _require_port(key, entry)


def _require_port(key: str, entry: str) -> None:
    port = int(entry.rpartition(":")[2])
    if port > 65535:
        raise ConfigError(key, f"port out of range:{port} in {key}")


_SPECIAL_CHECKS: dict[str, Check] = {
    "list": _any_list,
    "non-empty list": _non_empty_list,
    "non-empty string": _non_empty_string,
    "list of id@host:port": _quorum_voters,
    "list of host:port": _quorum_servers,
    _THROTTLED_REPLICAS: _throttled_replicas,
    _DURATION_CHOICE: _offset_reset,
}
