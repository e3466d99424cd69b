"""Turns a struct's schema and a version into a Python function that reads such structs.

The generated function takes the data and a position and returns the object and the position after it. For a
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

A message that is read in pieces (`protocol/pieces`) needs the parts of a struct one by one: what stands before an
array, the array's elements, and what stands behind it. These readers are *limited*: they take a third argument, a list
with the one number `left`, from which they take what they read by `WEIGHTS`, and refuse what would go below zero. So no
request can hide millions of elements in a part that is read in one go.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.protocol.compiler.codegen import (
    FORMATS,
    READY_FORMATS,
    SIZES,
    STRING_BYTES_MAX,
    Source,
    element_size_min,
    has_varint_length,
    identifier,
    present_fields,
    tagged_fields,
)
from barnabas.protocol.compiler.schema import NO_VERSIONS, Field
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import Buffer, read_uvarint

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Spec, Struct

Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
LimitedReader: TypeAlias = Callable[[Buffer, int, list[int]], tuple[Any, int]]
TailReader: TypeAlias = Callable[[Any, Buffer, int, list[int]], int]
"""Reads what stands behind an array into the object that was begun, and returns the position behind that."""

WEIGHT_OF_NUMBER, WEIGHT_OF_STRING, WEIGHT_OF_STRUCT = 1, 16, 16
"""What an element costs those who read it and those who use it, roughly and in proportion to the others."""

_FAILURES = (struct.error, IndexError, UnicodeDecodeError)


def compile_reader(
    cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], Reader]
) -> Reader:
    reader: Reader = _ReaderSource(cls, spec, version, reader_of, "read(data, pos)").compile()
    return reader


def compile_limited_reader(
    cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], LimitedReader]
) -> LimitedReader:
    """Reads a whole struct."""
    reader: LimitedReader = _ReaderSource(cls, spec, version, reader_of, _LIMITED).compile()
    return reader


def compile_head_reader(
    cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], LimitedReader], array: Field
) -> LimitedReader:
    """Begins an object with what stands before `array`. The array is empty, and what comes after it has its default."""
    reader: LimitedReader = _ReaderSource(cls, spec, version, reader_of, _LIMITED).compile_head(array)
    return reader


def compile_tail_reader(
    cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], LimitedReader], array: Field
) -> TailReader:
    """Reads what stands behind `array`."""
    reader: TailReader = _ReaderSource(cls, spec, version, reader_of, "read(o, data, pos, left)").compile_tail(array)
    return reader


def compile_element_reader(
    cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], LimitedReader], array: Field
) -> LimitedReader:
    """Reads one element of `array`."""
    reader: LimitedReader = _ReaderSource(cls, spec, version, reader_of, _LIMITED).compile_element(array)
    return reader


_LIMITED = "read(data, pos, left)"


class _ReaderSource:
    """Emits one reader. `_pending` holds targets of fixed size that have not been read yet."""

    def __init__(
        self, cls: type[Struct], spec: Spec, version: int, reader_of: Callable[[type[Struct], int], Any], signature: str
    ) -> None:
        self._spec = spec
        self._version = version
        self._reader_of = reader_of
        self._is_limited = "left" in signature
        self._arguments = "(data, pos, left)" if self._is_limited else "(data, pos)"
        self._flexible = spec.message.flexible.covers(version)
        self._pending: list[tuple[str, str]] = []
        self._source = Source(f"def {signature}:")
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

    def compile(self) -> Any:
        self._begin()
        self._begin_object(present_fields(self._spec.struct, self._version))
        for field in present_fields(self._spec.struct, self._version):
            self._read_field(field, f"o.{field.attribute}")
        if self._flexible:
            self._read_tagged_fields()
        return self._end("o, pos")

    def compile_head(self, array: Field) -> Any:
        self._begin()
        present = present_fields(self._spec.struct, self._version)
        before = present[: present.index(array)]
        self._begin_object(before)
        for field in before:
            self._read_field(field, f"o.{field.attribute}")
        return self._end("o, pos")

    def compile_tail(self, array: Field) -> Any:
        self._begin()
        present = present_fields(self._spec.struct, self._version)
        for field in present[present.index(array) + 1 :]:
            self._read_field(field, f"o.{field.attribute}")
        if self._flexible:
            self._read_tagged_fields()
        return self._end("pos")

    def compile_element(self, array: Field) -> Any:
        self._begin()
        self._read_element(array)
        return self._end("item, pos")

    def _begin(self) -> None:
        self._source.add("try:")
        self._source.indent()
        self._source.add("end = len(data)")

    def _begin_object(self, fields_to_read: list[Field]) -> None:
        self._source.add("o = new(cls)")
        for field in self._spec.struct.fields:
            if field not in fields_to_read:
                self._set_default(field)

    def _end(self, result: str) -> Any:
        self._flush()
        self._source.add(f"return {result}")
        self._source.dedent()
        self._source.add("except FAILURES as error:")
        self._source.add("    raise failed(error) from None")
        return self._source.compile(f"reader of {self._spec.struct.name} version {self._version}")

    def _take_weight(self, count: str, weight: int) -> None:
        """Refuses what is too much to be read in one go, where there is such a limit."""
        if self._is_limited:
            self._source.add(f"left[0] -= {count} * {weight}")
            self._source.add("if left[0] < 0: raise bad(' has more elements than a request of its kind may have')")

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
        self._take_weight("n", WEIGHT_OF_NUMBER)
        self._source.globals[f"numbers_{code}"] = _ready_unpackers(code)
        self._source.add(f"if n < {READY_FORMATS}: {target} = list(numbers_{code}[n](data, pos))")
        self._source.add(f"elif n * {size} > end - pos: raise bad({self._too_long(field)})")
        self._source.add(f"else: {target} = list(unpack_from(f'>{{n}}{code}', data, pos))")
        self._source.add(f"pos += n * {size}")

    def _read_elements(self, field: Field, target: str) -> None:
        size_min = element_size_min(self._spec.message, field, self._version)
        self._source.add(f"if n * {size_min} > end - pos: raise bad({self._too_long(field)})")
        self._take_weight("n", WEIGHT_OF_STRUCT if field.is_struct else WEIGHT_OF_STRING)
        self._source.add(f"{target} = items = []")
        self._source.add("for _ in range(n):")
        self._source.indent()
        self._read_element(field)
        self._source.add("items.append(item)")
        self._source.dedent()

    def _read_element(self, array: Field) -> None:
        if array.is_struct:
            self._source.add(f"item, pos = {self._struct_reader(array)}{self._arguments}")
        else:
            self._read_field(array._replace(is_array=False, nullable=NO_VERSIONS), "item")
            self._flush()

    def _read_struct(self, field: Field, target: str) -> None:
        reader = self._struct_reader(field)
        if not field.nullable.covers(self._version):
            self._flush()
            self._source.add(f"{target}, pos = {reader}{self._arguments}")
            return
        # The presence of a tagged struct is an unsigned varint; that of any other struct is a signed byte.
        is_tagged = field.tagged.covers(self._version)
        self._flush(("B" if is_tagged else "b", "n"))
        self._source.add(f"if n {'== 0' if is_tagged else '< 0'}: {target} = None")
        self._source.add(f"else: {target}, pos = {reader}{self._arguments}")

    def _struct_reader(self, field: Field) -> str:
        name = f"read_{field.type}"
        self._source.globals[name] = self._reader_of(self._spec.classes[field.type], self._version)
        return name

    def _read_length(self, field: Field, *, code: str) -> None:
        """Reads what is pending and the length after it into `n`, which is negative for null."""
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
        return f"f'.{field.attribute} claims {{n}} {unit}, but {{end - pos}} bytes are left'"

    def _read_tagged_fields(self) -> None:
        source = self._source
        self._flush(("B", "tags"))
        fields = tagged_fields(self._spec.struct, self._version)
        source.add("if tags:")
        source.indent()
        source.add("if tags > 127: tags, pos = read_long(data, pos, tags)")
        self._take_weight("tags", WEIGHT_OF_STRING)
        source.add("for _ in range(tags):")
        source.indent()
        source.add("tag, pos = read_uvarint(data, pos)")
        source.add("size, pos = read_uvarint(data, pos)")
        source.add("tag_end = pos + size")
        source.add("if tag_end > end: raise bad(f' has a tagged field of {size} bytes, but {end - pos} are left')")
        for index, field in enumerate(fields):
            source.add(f"{'elif' if index else 'if'} tag == {field.tag}:")
            source.indent()
            self._read_field(field, f"o.{field.attribute}")
            self._flush()
            reason = f"f'.{field.attribute} ends {{pos - tag_end}} bytes after its tagged size of {{size}}'"
            source.add(f"if pos != tag_end: raise bad({reason})")
            source.dedent()
        # An unknown tag was added by a later release and may be skipped.
        source.add("else: pos = tag_end" if fields else "pos = tag_end")
        source.dedent()
        source.dedent()

    def _flush(self, *more: tuple[str, str]) -> None:
        """Reads what is pending, followed by `more`, in one call."""
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
    """One unpacker for each short array length."""
    if code not in _ready:
        _ready[code] = [struct.Struct(f">{n}{code}").unpack_from for n in range(READY_FORMATS)]
    return _ready[code]


def _read_long(data: Buffer, pos: int, _first: int) -> tuple[int, int]:
    """Reads a varint of more than one byte, whose first byte is the one before `pos`."""
    return read_uvarint(data, pos - 1)


def _failure(where: str, error: Exception) -> DecodeError:
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{where} has a string that is not UTF-8: {error.reason}")
    return DecodeError(f"{where} is truncated")
