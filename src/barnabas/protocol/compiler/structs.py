"""The classes of messages and of the structs inside them, built from their schemas on first use.

Building all six hundred classes would take longer than a broker may take to start, and a process uses a few dozen: so
the classes of a message are built when it is first used. They are plain: slots, a keyword-only constructor with
Kafka's defaults, equality and a representation. One class serves all versions; when a message is read, fields that its
version lacks have their defaults.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from barnabas.protocol.compiler.schema import Field, MessageSchema, StructSchema, message_schema


class Struct:
    """What messages and the structs inside them have in common."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # mutable

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({fields})"


class Message(Struct):
    """A request, response, header or record, as opposed to a struct inside one."""

    __slots__: tuple[str, ...] = ()
    api_key: ClassVar[int | None]
    """The key of a request's or response's API, or of a record's type among its kind."""
    versions: ClassVar[tuple[int, int]]
    """The lowest and the highest version; (0, -1) for a message that Kafka has removed."""
    flexible_from: ClassVar[int | None]
    """The first version with varint lengths and tagged fields."""


class Spec(NamedTuple):
    """The schema that a class was built from."""

    message: MessageSchema
    struct: StructSchema
    classes: dict[str, type[Struct]]
    """The classes of the message's structs by name."""


_ABSENT = object()
"""Stands for an argument that was not given, where the default must be a new object each time."""

_classes: dict[str, type[Message]] = {}
_specs: dict[type[Struct], Spec] = {}


def message_class(name: str) -> type[Message]:
    """The class of a message by Kafka's name. Raises KeyError if there is none."""
    # Two threads may build the same class; both then use the one that was stored first.
    return _classes.get(name) or _classes.setdefault(name, _build(message_schema(name)))


def spec_of(cls: type[Struct]) -> Spec:
    return _specs[cls]


def _build(schema: MessageSchema) -> type[Message]:
    constructors: dict[str, Any] = {}
    inner: dict[str, type[Struct]] = {}
    globals_ = {"_ABSENT": _ABSENT, "_classes": inner}
    source = "\n".join(_constructor_source(struct) for struct in (*schema.structs.values(), schema.root))
    exec(compile(source, f"<constructors of {schema.name}>", "exec"), globals_, constructors)  # noqa: S102

    for struct in schema.structs.values():
        namespace = _namespace(struct, f"{schema.name}.{struct.name}", constructors)
        inner[struct.name] = type(struct.name, (Struct,), namespace)
    namespace = _namespace(schema.root, schema.name, constructors)
    namespace |= {
        **inner,
        "api_key": schema.api_key,
        "versions": tuple(schema.versions),
        "flexible_from": schema.flexible.low if schema.flexible.covers(schema.flexible.low) else None,
    }
    root = type(schema.name, (Message,), namespace)
    for struct_name, cls in inner.items():
        _specs[cls] = Spec(schema, schema.structs[struct_name], inner)
    _specs[root] = Spec(schema, schema.root, inner)
    return root


def _namespace(struct: StructSchema, qualified_name: str, constructors: dict[str, Any]) -> dict[str, Any]:
    constructor = constructors[_constructor_name(struct)]
    constructor.__name__ = "__init__"
    constructor.__qualname__ = f"{qualified_name}.__init__"
    return {
        "__slots__": tuple(field.attribute for field in struct.fields),
        "__module__": "barnabas.protocol.messages",
        "__qualname__": qualified_name,
        "__init__": constructor,
    }


def _constructor_name(struct: StructSchema) -> str:
    return f"init_{struct.name}"


def _constructor_source(struct: StructSchema) -> str:
    if not struct.fields:
        return f"def {_constructor_name(struct)}(self): pass"
    parameters = ", ".join(f"{field.attribute}={_default_source(field)}" for field in struct.fields)
    lines = [f"def {_constructor_name(struct)}(self, *, {parameters}):"]
    for field in struct.fields:
        value = field.attribute
        if _default_source(field) == "_ABSENT":
            new = "[]" if field.is_array else f"_classes[{field.type!r}]()"
            value = f"{new} if {value} is _ABSENT else {value}"
        lines.append(f"    self.{field.attribute} = {value}")
    return "\n".join(lines)


def _default_source(field: Field) -> str:
    if field.default_is_null:
        return "None"
    return "_ABSENT" if field.is_array or field.is_struct else repr(field.default)


def _equal(one: Any, other: Any) -> bool:
    # Messages that are read have lists, but callers may have used tuples in those they wrote.
    if isinstance(one, tuple) and isinstance(other, list):
        return list(one) == other
    if isinstance(one, list) and isinstance(other, tuple):
        return one == list(other)
    return bool(one == other)
