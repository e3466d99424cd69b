"""Turns a struct's schema and a version into a Python function that writes such structs.

The generated function appends to a bytearray. For a partition of a metadata response it reads like this:

    def write(o, out):
        try:
            out += pack_hiii(o.error_code, o.partition_index, o.leader_id, o.leader_epoch)
            v = o.replica_nodes
            n = len(v)
            if n < 16: out += varint_i[n](n + 1, *v)
            else: write_numbers(out, 'varint', 'i', v)
            ...
            out.append(0)
        except FAILURES as error:
            raise explain(o, error) from error

The happy path checks little: when `struct` or Python rejects a value, `_explain` finds out which field is at fault.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.protocol.compiler.codegen import (
    FORMATS,
    READY_FORMATS,
    SIZES,
    STRING_BYTES_MAX,
    Source,
    has_varint_length,
    identifier,
    present_fields,
    tagged_fields,
)
from barnabas.protocol.compiler.schema import NO_VERSIONS, Field
from barnabas.protocol.errors import EncodeError
from barnabas.protocol.varint import write_uvarint

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Spec, Struct

Writer: TypeAlias = Callable[[Any, bytearray], None]

_FAILURES = (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)
_ARRAY_COUNT_MAX = 0x7FFFFFFF


def compile_writer(
    cls: type[Struct], spec: Spec, version: int, writer_of: Callable[[type[Struct], int], Writer]
) -> Writer:
    return _WriterSource(cls, spec, version, writer_of).compile()


def compile_head_writer(
    cls: type[Struct], spec: Spec, version: int, writer_of: Callable[[type[Struct], int], Writer], array: Field
) -> Writer:
    """Writes what stands before `array`, whose elements are written one by one (`protocol/pieces`)."""
    return _WriterSource(cls, spec, version, writer_of).compile_head(array)


def compile_tail_writer(
    cls: type[Struct], spec: Spec, version: int, writer_of: Callable[[type[Struct], int], Writer], array: Field
) -> Writer:
    """Writes what stands behind `array`."""
    return _WriterSource(cls, spec, version, writer_of).compile_tail(array)


class _WriterSource:
    """Emits one writer. `_pending` holds values of fixed size that have not been written yet."""

    def __init__(
        self, cls: type[Struct], spec: Spec, version: int, writer_of: Callable[[type[Struct], int], Writer]
    ) -> None:
        self._spec = spec
        self._version = version
        self._writer_of = writer_of
        self._flexible = spec.message.flexible.covers(version)
        self._pending: list[tuple[str, str]] = []
        self._out = "out"
        self._source = Source("def write(o, out):")
        self._source.globals = {
            "FAILURES": _FAILURES,
            "explain": lambda value, error: _explain(cls, spec, version, value, error),
            "write_uvarint": write_uvarint,
            "write_string": _write_long_string,
            "write_numbers": _write_numbers,
            "write_tagged": _write_tagged,
        }

    def compile(self) -> Writer:
        self._begin()
        self._refuse_absent_values()
        self._write_fields(present_fields(self._spec.struct, self._version))
        if self._flexible:
            self._write_tagged_fields()
        return self._end()

    def compile_head(self, array: Field) -> Writer:
        self._begin()
        self._refuse_absent_values()
        present = present_fields(self._spec.struct, self._version)
        self._write_fields(present[: present.index(array)])
        return self._end()

    def compile_tail(self, array: Field) -> Writer:
        self._begin()
        present = present_fields(self._spec.struct, self._version)
        self._write_fields(present[present.index(array) + 1 :])
        if self._flexible:
            self._write_tagged_fields()
        return self._end()

    def _begin(self) -> None:
        self._source.add("try:")
        self._source.indent()

    def _write_fields(self, fields: list[Field]) -> None:
        for field in fields:
            self._write_field(field, f"o.{field.attribute}")

    def _end(self) -> Writer:
        self._flush()
        self._source.add("pass")
        self._source.dedent()
        self._source.add("except FAILURES as error:")
        self._source.add("    raise explain(o, error) from error")
        writer: Writer = self._source.compile(f"writer of {self._spec.struct.name} version {self._version}")
        return writer

    def _refuse_absent_values(self) -> None:
        """A value that this version cannot carry is an error, unless its loss is declared harmless."""
        conditions = [
            self._non_default_condition(field, f"o.{field.attribute}")
            for field in self._spec.struct.fields
            if not field.versions.covers(self._version) and not field.ignorable
        ]
        if conditions:
            self._source.add(f"if {' or '.join(conditions)}: raise explain(o, None)")

    def _non_default_condition(self, field: Field, value: str) -> str:
        if field.default_is_null:
            return f"{value} is not None"
        if field.is_array or field.type == "bytes":
            return f"({value} is None or len({value}))" if field.is_nullable else f"len({value})"
        if field.is_struct:
            return self._non_default_struct_condition(field, value)
        return f"{value} != {field.default!r}"

    def _non_default_struct_condition(self, field: Field, value: str) -> str:
        inner_fields = self._spec.message.structs[field.type].fields
        if not field.is_nullable and not any(inner.is_struct for inner in inner_fields):
            # Every partition of a fetch response has three of these: several times as fast as comparing objects.
            inner = (self._non_default_condition(each, f"{value}.{each.attribute}") for each in inner_fields)
            return f"({' or '.join(inner)})"
        name = f"default_{field.type}"
        self._source.globals[name] = self._spec.classes[field.type]()
        return f"{value} != {name}"

    def _write_field(self, field: Field, value: str) -> None:
        if field.is_array:
            self._write_array(field, value)
        elif field.is_struct:
            self._write_struct(field, value)
        elif field.type in FORMATS:
            self._write_fixed(field, value)
        elif field.type == "string":
            self._write_string(field, value)
        else:
            self._write_bytes(field, value)

    def _write_fixed(self, field: Field, value: str) -> None:
        if field.type == "uuid":
            # struct would silently pad or truncate an id of another length.
            self._source.add(f"if len({value}) != 16: raise explain(o, None)")
        self._pending.append((FORMATS[field.type], value))

    def _write_string(self, field: Field, value: str) -> None:
        if self._begin_nullable(field, value, null_length="h"):
            value = "v"
        self._source.add(f"b = {value}.encode()")
        if has_varint_length(field, self._spec.message, self._version):
            self._flush()
            self._source.add("n = len(b) + 1")
            self._source.add(f"if n < 128: {self._out}.append(n); {self._out} += b")
            self._source.add(f"else: write_string({self._out}, b)")
        else:
            self._flush(("h", "len(b)"))
            self._source.add(f"{self._out} += b")
        self._end_nullable(field)

    def _write_bytes(self, field: Field, value: str) -> None:
        if not self._begin_nullable(field, value, null_length="i"):
            self._source.add(f"v = {value}")
        if has_varint_length(field, self._spec.message, self._version):
            self._flush()
            self._source.add(f"write_uvarint({self._out}, len(v) + 1)")
        else:
            self._flush(("i", "len(v)"))
        self._source.add(f"{self._out} += v")
        self._end_nullable(field)

    def _write_array(self, field: Field, value: str) -> None:
        if not self._begin_nullable(field, value, null_length="i"):
            self._source.add(f"v = {value}")
        has_varint = has_varint_length(field, self._spec.message, self._version)
        self._source.add("n = len(v)")
        if field.type in FORMATS and field.type != "uuid":
            self._flush()
            code = FORMATS[field.type]
            kind = "varint" if has_varint else "fixed"
            self._source.globals[f"{kind}_{code}"] = _ready_packers(kind, code)
            count = "n + 1" if has_varint else "n"
            self._source.add(f"if n < {READY_FORMATS}: {self._out} += {kind}_{code}[n]({count}, *v)")
            self._source.add(f"else: write_numbers({self._out}, {kind!r}, {code!r}, v)")
            self._end_nullable(field)
            return
        if has_varint:
            self._flush()
            self._source.add(f"if n < 127: {self._out}.append(n + 1)")
            self._source.add(f"else: write_uvarint({self._out}, n + 1)")
        else:
            self._flush(("i", "n"))
        self._write_elements(field)
        self._end_nullable(field)

    def _write_elements(self, field: Field) -> None:
        if field.is_struct:
            self._source.add(f"for e in v: {self._struct_writer(field)}(e, {self._out})")
            return
        self._source.add("for e in v:")
        self._source.indent()
        element = field._replace(is_array=False, nullable=NO_VERSIONS)
        self._write_field(element, "e")
        self._flush()
        self._source.dedent()

    def _write_struct(self, field: Field, value: str) -> None:
        self._flush()
        writer = self._struct_writer(field)
        if not field.nullable.covers(self._version):
            self._source.add(f"{writer}({value}, {self._out})")
            return
        # The presence of a tagged struct is an unsigned varint; that of any other struct is a signed byte.
        null = 0 if field.tagged.covers(self._version) else 0xFF
        self._source.add(f"v = {value}")
        self._source.add(f"if v is None: {self._out}.append({null})")
        self._source.add("else:")
        self._source.add(f"    {self._out}.append(1)")
        self._source.add(f"    {writer}(v, {self._out})")

    def _struct_writer(self, field: Field) -> str:
        name = f"write_{field.type}"
        self._source.globals[name] = self._writer_of(self._spec.classes[field.type], self._version)
        return name

    def _write_tagged_fields(self) -> None:
        fields = tagged_fields(self._spec.struct, self._version)
        if not fields:
            # A pad byte is written as 0: no tagged fields.
            self._pending.append(("x", ""))
            return
        self._flush()
        if len(fields) == 1 and fields[0].type in FORMATS and not fields[0].is_array:
            self._write_only_tagged_number(fields[0])
            return
        self._source.add("tagged = []")
        for field in fields:
            self._source.add(f"if {self._non_default_condition(field, f'o.{field.attribute}')}:")
            self._source.indent()
            self._source.add("t = bytearray()")
            self._out = "t"
            self._write_field(field, f"o.{field.attribute}")
            self._flush()
            self._out = "out"
            self._source.add(f"tagged.append(({field.tag}, t))")
            self._source.dedent()
        self._source.add("if tagged: write_tagged(out, tagged)")
        self._source.add("else: out.append(0)")

    def _write_only_tagged_number(self, field: Field) -> None:
        """One field of fixed size, such as the topic id of a committed offset, needs no buffer to find its size."""
        value = f"o.{field.attribute}"
        self._source.add(f"if {self._non_default_condition(field, value)}:")
        self._source.indent()
        self._source.add(f"out += {bytes((1, field.tag, SIZES[field.type]))!r}")
        self._write_fixed(field, value)
        self._flush()
        self._source.dedent()
        self._source.add("else: out.append(0)")

    def _begin_nullable(self, field: Field, value: str, *, null_length: str) -> bool:
        """Binds `v` and opens the branch for a value that is not null. Returns False if the field cannot be null."""
        if not field.nullable.covers(self._version):
            return False
        self._flush()
        self._source.add(f"v = {value}")
        if has_varint_length(field, self._spec.message, self._version):
            self._source.add(f"if v is None: {self._out}.append(0)")
        else:
            null = repr(b"\xff" * struct.calcsize(null_length))
            self._source.add(f"if v is None: {self._out} += {null}")
        self._source.add("else:")
        self._source.indent()
        return True

    def _end_nullable(self, field: Field) -> None:
        if field.nullable.covers(self._version):
            self._source.dedent()

    def _flush(self, *more: tuple[str, str]) -> None:
        """Writes what is pending, followed by `more`, in one call."""
        items = [*self._pending, *more]
        self._pending.clear()
        if not items:
            return
        if all(code == "x" for code, _ in items):
            self._source.add(f"{self._out}.append(0)")
            return
        code = "".join(code for code, _ in items)
        values = ", ".join(value for code, value in items if code != "x")
        name = f"pack_{identifier(code)}"
        self._source.globals[name] = struct.Struct(">" + code).pack
        self._source.add(f"{self._out} += {name}({values})")


_ready: dict[tuple[str, str], list[Callable[..., bytes]]] = {}


def _ready_packers(kind: str, code: str) -> list[Callable[..., bytes]]:
    """One packer for each short array length, with the count in front."""
    count = "B" if kind == "varint" else "i"
    if (kind, code) not in _ready:
        _ready[kind, code] = [struct.Struct(f">{count}{n}{code}").pack for n in range(READY_FORMATS)]
    return _ready[kind, code]


def _write_numbers(out: bytearray, kind: str, code: str, values: Sequence[int]) -> None:
    count = len(values)
    if kind == "varint":
        write_uvarint(out, count + 1)
        out += struct.pack(f">{count}{code}", *values)
    else:
        out += struct.pack(f">i{count}{code}", count, *values)


def _write_long_string(out: bytearray, value: bytes) -> None:
    if len(value) > STRING_BYTES_MAX:
        raise OverflowError
    write_uvarint(out, len(value) + 1)
    out += value


def _write_tagged(out: bytearray, tagged: list[tuple[int, bytearray]]) -> None:
    write_uvarint(out, len(tagged))
    for tag, value in tagged:
        write_uvarint(out, tag)
        write_uvarint(out, len(value))
        out += value


def _explain(cls: type[Struct], spec: Spec, version: int, value: object, error: Exception | None) -> EncodeError:
    """Which field of `value` could not be written, and why."""
    where = f"{spec.message.name} version {version}"
    if not isinstance(value, cls):
        return EncodeError(f"{where}: expected a {spec.struct.name}, not {_shown(value)}")
    for field in spec.struct.fields:
        reason = _objection(spec, version, field, getattr(value, field.attribute, _UNSET))
        if reason is not None:
            return EncodeError(f"{where}: {spec.struct.name}.{field.attribute} {reason}")
    return EncodeError(f"{where}: {spec.struct.name} cannot be written: {error}")


_UNSET = object()


def _objection(spec: Spec, version: int, field: Field, value: object) -> str | None:
    if value is _UNSET:
        return "is not set"
    if not field.versions.covers(version):
        if field.ignorable or _is_default(spec, field, value):
            return None
        return f"does not exist in this version, but is set to {_shown(value)}"
    if value is None:
        return None if field.nullable.covers(version) else "must not be null"
    if field.is_array:
        if not isinstance(value, (list, tuple)):
            return f"must be a list, not {_shown(value)}"
        if len(value) > _ARRAY_COUNT_MAX:
            return f"has {len(value)} elements, more than {_ARRAY_COUNT_MAX}"
        reasons = (_scalar_objection(field.type, element) for element in value)
        return next((f"has an element that {reason}" for reason in reasons if reason is not None), None)
    return _scalar_objection(field.type, value)


def _scalar_objection(type_name: str, value: object) -> str | None:
    if type_name == "string":
        return _string_objection(value)
    if type_name in ("bytes", "records"):
        return None if isinstance(value, (bytes, bytearray, memoryview)) else f"must be bytes, not {_shown(value)}"
    if type_name == "uuid":
        is_uuid = isinstance(value, (bytes, bytearray)) and len(value) == SIZES["uuid"]
        return None if is_uuid else f"must be an id of 16 bytes, not {_shown(value)}"
    if type_name in FORMATS:
        try:
            struct.pack(">" + FORMATS[type_name], value)
        except (struct.error, TypeError, OverflowError):
            return f"must be of type {type_name}, not {_shown(value)}"
    return None


def _string_objection(value: object) -> str | None:
    if not isinstance(value, str):
        return f"must be a string, not {_shown(value)}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"has surrogates, which UTF-8 cannot express: {_shown(value)}"
    return None if size <= STRING_BYTES_MAX else f"is {size} bytes long, but the limit is {STRING_BYTES_MAX}"


def _is_default(spec: Spec, field: Field, value: object) -> bool:
    if field.default_is_null:
        return value is None
    if field.is_array:
        return isinstance(value, (list, tuple)) and not value
    if field.is_struct:
        return value == spec.classes[field.type]()
    return value == field.default


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
