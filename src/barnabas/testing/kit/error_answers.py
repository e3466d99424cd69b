"""An answer to any request that says the same error of everything that the request asks for.

Responses name again what was asked for, level by level: topics, in these their partitions, each with its error. The
schemas say what there is on each level, in each version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol import messages
from barnabas.protocol.api import APIS
from barnabas.protocol.compiler.structs import Message, Struct, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.compiler.schema import Field
    from barnabas.protocol.errors import Error

_ERRORS: Final = frozenset({"error_code", "partition_error_code"})
_PARTITION: Final = ("partition_index", "partition", "index", "partition_id")
"""What a partition's number is called, in one message or another."""
_IDENTITIES: Final = frozenset(
    {
        *_PARTITION,
        "group_id",
        "group_instance_id",
        "key",
        "member_id",
        "name",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "topic_name",
        "transactional_id",
    }
)
"""Fields that say what an element of a response is about."""
_UNKNOWN: Final = {"base_offset": -1, "high_watermark": -1}
"""What Kafka says where there is nothing to say, and the schema's default is something else."""


def error_answer(request: Message, version: int, error: Error) -> Message:
    """The response to `request` in a version. Raises ValueError if that has no place for an error."""
    assert request.api_key is not None
    response: Message = getattr(messages, APIS[request.api_key].response)()
    if not holds_error(type(response), version):
        raise ValueError(f"{type(response).__name__} version {version} has no field for an error")
    _fill(response, request, version, error)
    return response


def holds_error(cls: type[Struct], version: int) -> bool:
    classes = spec_of(cls).classes
    return any(
        field.attribute in _ERRORS or (field.is_struct and holds_error(classes[field.type], version))
        for field in _fields(cls, version)
    )


def _fill(answer: Struct, asked: object, version: int, error: Error) -> None:
    asked_for = _first_array(asked, version)
    classes = spec_of(type(answer)).classes
    for field in _fields(type(answer), version):
        if field.attribute in _ERRORS:
            setattr(answer, field.attribute, error)
        elif field.attribute in _UNKNOWN:
            setattr(answer, field.attribute, _UNKNOWN[field.attribute])
        elif field.is_array:
            is_named = field.is_struct and holds_error(classes[field.type], version)
            named = asked_for if is_named else ()
            setattr(answer, field.attribute, [_element(classes[field.type], each, version, error) for each in named])


def _element(cls: type[Struct], asked: object, version: int, error: Error) -> Struct:
    answer = cls()
    for field in _fields(cls, version):
        if field.attribute in _IDENTITIES:
            value, default = _identity(field.attribute, asked), getattr(answer, field.attribute)
            if default is None or isinstance(value, type(default)):
                setattr(answer, field.attribute, value)
    _fill(answer, asked, version, error)
    return answer


def _identity(name: str, asked: object) -> object:
    """What the request calls it, if it does. Where it has an array of numbers or names, it has nothing but these."""
    if not isinstance(asked, Struct):
        return asked
    names = (name, *_PARTITION) if name in _PARTITION else (name,)
    return next((getattr(asked, each) for each in names if each in type(asked).__slots__), None)


def _first_array(asked: object, version: int) -> Any:
    """What a request, or an element of one, is about: no request has its things in a second array."""
    if isinstance(asked, Struct):
        for field in _fields(type(asked), version):
            if field.is_array:
                return getattr(asked, field.attribute) or ()
    return ()


def _fields(cls: type[Struct], version: int) -> Iterator[Field]:
    return (field for field in spec_of(cls).struct.fields if field.versions.covers(version))
