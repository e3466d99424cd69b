"""Files of JSON as Kafka's tools read them, with their words for what is not as they need it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.java.java_values import double_text
from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from typing import NoReturn

_INT_BITS: Final = 31
_LONG_BITS: Final = 63
NOTHING: Final = object()
"""What a file of blanks is."""


def parse(text: str) -> Any:
    """The first value in a text. What comes after it is left alone."""
    rest = text.lstrip(" \t\r\n")
    if text and not rest:
        return NOTHING
    try:
        value, _ = json.JSONDecoder(parse_constant=_refuse).raw_decode(rest)
    except (ValueError, RecursionError):
        raise ToolError("The input string is not a valid JSON") from None
    return value


def as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ToolError(f"Expected JSON object, received {shown(value)}")
    return value


def as_array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ToolError(f"Expected JSON array, received {shown(value)}")
    return value


def field(value: dict[str, Any], name: str) -> Any:
    if name not in value:
        raise ToolError(f"No such field exists: `{name}`")
    return value[name]


def as_int(value: Any) -> int:
    return _number(value, _INT_BITS, "Integer")


def as_long(value: Any) -> int:
    return _number(value, _LONG_BITS, "Long")


def as_string(value: Any) -> str:
    if not isinstance(value, str):
        raise ToolError(f"Expected `String` value, received {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value without a blank that it could do without."""
    if value is NOTHING:
        return ""
    if isinstance(value, float):
        return double_text(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _number(value: Any, bits: int, kind: str) -> int:
    if type(value) is not int or not -(1 << bits) <= value < 1 << bits:
        raise ToolError(f"Expected `{kind}` value, received {shown(value)}")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
