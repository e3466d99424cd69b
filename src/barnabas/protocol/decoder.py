"""Turns a struct's schema and a version into a Python function that reads such structs.

The generated function takes the data and a position and returns the object and the position behind it. For a
partition of a metadata response it reads like this:

    def read(data, pos):
        try:
            o = new(cls)
            o.error_code, o.partition_index, o.leader_id, o.leader_epoch, n = unpack_hiiiB(data, pos)
            pos += 15
            if n > 127: n, pos = read_long(data, pos, n)
            n -= 1
            if n < 0: raise bad('.replica_nodes must not be null')
            elif n < 16: o.replica_nodes = list(numbers_i[n](data, pos))
            ...
        except FAILURES as error:
            raise failed(error) from None

Input is not trusted. `struct` and indexing refuse to read beyond the end of the data; lengths are compared with what
is left before a slice is taken, since slicing would not complain, and counts before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.protocol.codegen import (
    FORMATS,
    READY_FORMATS,
    SIZES,
    STRING_BYTES_MAX,
    Source,
    has_varint_length,
    identifier,
    present_fields,
    struct_size_min,
    tagged_fields,
)
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.schema import NO_VERSIONS, Field
from barnabas.protocol.varint import Buffer, read_uvarint

if TYPE_CHECKING:
    from barnabas.protocol.structs import Spec, Struct

Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]

_FAILURES = (struct.error, IndexError, UnicodeDecodeError)


def compile_reader(
    cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], Reader]
) -> Reader:
    return _ReaderSource(cls, spec, version, reader_of).compile()


class _ReaderSource:
    """Emits one reader. `_pending` holds targets of fixed size that have not been read yet."""

    def __init__(
        self, cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], Reader]
    ) -> None:
        self._spec = spec
        self._version = version
        self._reader_of = reader_of
        self._flexible = spec.message.flexible.covers(version)
        self._pending: list[tuple[str, str]] = []
        self._source = Source("def read(data, pos):")
        where = f"{spec.message.name} version {version}: {spec.struct.name}"
        self._source.globals = {
            "FAILURES": _FAILURES,
            "new": object.__new__,
            "cls": cls,
            "read_long": _read_long,
            "read_uvarint": read_uvarint,
            "unpack_from": struct.unpack_from,
            "failed": lambda error: _failure(where, error),
            "bad": lambda reason: DecodeError(f"{where}{reason}"),
        }

    def compile(self) -> Reader:
        source = self._source
        source.add("try:")
        source.indent()
        source.add("o = new(cls)")
        source.add("end = len(data)")
        for field in self._spec.struct.fields:
            if not field.versions.covers(self._version) or field.tagged.covers(self._version):
                self._set_default(field)
        for field in present_fields(self._spec.struct, self._version):
            self._read_field(field, f"o.{field.attribute}")
        if self._flexible:
            self._read_tagged_fields()
        self._flush()
        source.add("return o, pos")
        source.dedent()
        source.add("except FAILURES as error:")
        source.add("    raise failed(error) from None")
        reader: Reader = source.compile(f"reader of {self._spec.struct.name} version {self._version}")
        return reader

    def _set_default(self, field: Field) -> None:
        if field.default_is_null:
            value = "None"
        elif field.is_array:
            value = "[]"
        elif field.is_struct:
            self._source.globals[field.type] = self._spec.classes[field.type]
            value = f"{field.type}()"
        else:
            value = repr(field.default)
        self._source.add(f"o.{field.attribute} = {value}")

    def _read_field(self, field: Field, target: str) -> None:
        if field.is_array:
            self._read_array(field, target)
        elif field.is_struct:
            self._read_struct(field, target)
        elif field.type in FORMATS:
            self._pending.append((FORMATS[field.type], target))
        else:
            self._read_bytes(field, target)

    def _read_bytes(self, field: Field, target: str) -> None:
        self._read_length(field, code="h" if field.type == "string" else "i")
        self._begin_value(field, target)
        self._source.add("stop = pos + n")
        if field.type == "string":
            self._source.add(f"if n > {STRING_BYTES_MAX} or stop > end: raise bad({self._too_long(field)})")
            self._source.add(f"{target} = str(data[pos:stop], 'utf-8')")
        else:
            conversion = "bytes(data[pos:stop])" if field.type == "bytes" else "memoryview(data)[pos:stop]"
            self._source.add(f"if stop > end: raise bad({self._too_long(field)})")
            self._source.add(f"{target} = {conversion}")
        self._source.add("pos = stop")
        self._source.dedent()

    def _read_array(self, field: Field, target: str) -> None:
        self._read_length(field, code="i")
        self._begin_value(field, target)
        if field.type in FORMATS and field.type != "uuid":
            self._read_numbers(field, target)
        else:
            self._read_elements(field, target)
        self._source.dedent()

    def _read_numbers(self, field: Field, target: str) -> None:
        code, size = FORMATS[field.type], SIZES[field.type]
        self._source.globals[f"numbers_{code}"] = _ready_unpackers(code)
        self._source.add(f"if n < {READY_FORMATS}: {target} = list(numbers_{code}[n](data, pos))")
        self._source.add(f"elif n * {size} > end - pos: raise bad({self._too_long(field)})")
        self._source.add(f"else: {target} = list(unpack_from(f'>{{n}}{code}', data, pos))")
        self._source.add(f"pos += n * {size}")

    def _read_elements(self, field: Field, target: str) -> None:
        # An element of no bytes would make a count of any size plausible; Kafka counts it as one, too.
        size_min = max(1, self._element_size_min(field))
        self._source.add(f"if n * {size_min} > end - pos: raise bad({self._too_long(field)})")
        self._source.add(f"{target} = items = []")
        self._source.add("for _ in range(n):")
        self._source.indent()
        if field.is_struct:
            self._source.add(f"item, pos = {self._struct_reader(field)}(data, pos)")
        else:
            self._read_field(field._replace(is_array=False, nullable=NO_VERSIONS), "item")
            self._flush()
        self._source.add("items.append(item)")
        self._source.dedent()

    def _element_size_min(self, field: Field) -> int:
        if field.is_struct:
            return struct_size_min(self._spec.message, self._spec.message.structs[field.type], self._version)
        if field.type == "uuid":
            return SIZES["uuid"]
        return 1 if has_varint_length(field, self._spec.message, self._version) else 2

    def _read_struct(self, field: Field, target: str) -> None:
        reader = self._struct_reader(field)
        if not field.nullable.covers(self._version):
            self._flush()
            self._source.add(f"{target}, pos = {reader}(data, pos)")
            return
        # A tagged struct's presence is an unsigned varint, another one's a signed byte.
        is_tagged = field.tagged.covers(self._version)
        self._flush(("B" if is_tagged else "b", "n"))
        self._source.add(f"if n {'== 0' if is_tagged else '< 0'}: {target} = None")
        self._source.add(f"else: {target}, pos = {reader}(data, pos)")

    def _struct_reader(self, field: Field) -> str:
        name = f"read_{field.type}"
        self._source.globals[name] = self._reader_of(self._spec.classes[field.type], self._version)
        return name

    def _read_length(self, field: Field, *, code: str) -> None:
        """Reads what is pending and a length behind it into `n`, negative for null."""
        if has_varint_length(field, self._spec.message, self._version):
            self._flush(("B", "n"))
            self._source.add("if n > 127: n, pos = read_long(data, pos, n)")
            self._source.add("n -= 1")
        else:
            self._flush((code, "n"))

    def _begin_value(self, field: Field, target: str) -> None:
        if field.nullable.covers(self._version):
            self._source.add(f"if n < 0: {target} = None")
        else:
            reason = repr(f".{field.attribute} must not be null")
            self._source.add(f"if n < 0: raise bad({reason})")
        self._source.add("else:")
        self._source.indent()

    def _too_long(self, field: Field) -> str:
        unit = "elements" if field.is_array else "bytes"
        return f"f'.{field.attribute} claims {{n}} {unit}, {{end - pos}} bytes are left'"

    def _read_tagged_fields(self) -> None:
        source = self._source
        self._flush(("B", "tags"))
        fields = tagged_fields(self._spec.struct, self._version)
        source.add("if tags:")
        source.indent()
        source.add("if tags > 127: tags, pos = read_long(data, pos, tags)")
        source.add("for _ in range(tags):")
        source.indent()
        source.add("tag, pos = read_uvarint(data, pos)")
        source.add("size, pos = read_uvarint(data, pos)")
        source.add("tag_end = pos + size")
        source.add("if tag_end > end: raise bad(f' has a tagged field of {size} bytes, {end - pos} are left')")
        for index, field in enumerate(fields):
            source.add(f"{'elif' if index else 'if'} tag == {field.tag}:")
            source.indent()
            self._read_field(field, f"o.{field.attribute}")
            self._flush()
            reason = f"f'.{field.attribute} ends {{pos - tag_end}} bytes behind its tagged size of {{size}}'"
            source.add(f"if pos != tag_end: raise bad({reason})")
            source.dedent()
        # Whatever tag is unknown here was added by a later release and may be skipped.
        source.add("else: pos = tag_end" if fields else "pos = tag_end")
        source.dedent()
        source.dedent()

    def _flush(self, *more: tuple[str, str]) -> None:
        """Reads what is pending, with `more` behind it, in one call."""
        items = [*self._pending, *more]
        self._pending.clear()
        if not items:
            return
        code = "".join(code for code, _ in items)
        size = struct.calcsize(">" + code)
        if code == "B":
            self._source.add(f"{items[0][1]} = data[pos]")
        else:
            name = f"unpack_{identifier(code)}"
            self._source.globals[name] = struct.Struct(">" + code).unpack_from
            targets = ", ".join(target for _, target in items)
            self._source.add(f"{targets}{',' if len(items) == 1 else ''} = {name}(data, pos)")
        self._source.add(f"pos += {size}")


_ready: dict[str, list[Callable[..., tuple[Any, ...]]]] = {}


def _ready_unpackers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """Unpackers of arrays of each short length."""
    if code not in _ready:
        _ready[code] = [struct.Struct(f">{n}{code}").unpack_from for n in range(READY_FORMATS)]
    return _ready[code]


def _read_long(data: Buffer, pos: int, _first: int) -> tuple[int, int]:
    """The varint of more than one byte whose first byte stands before `pos`."""
    return read_uvarint(data, pos - 1)


def _failure(where: str, error: Exception) -> DecodeError:
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{where} has a string that is not UTF-8: {error.reason}")
    return DecodeError(f"{where} is cut short")
