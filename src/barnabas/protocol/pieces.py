"""Messages of any size, read and written piece by piece, so that neither takes long at a time nor all of it memory.

A large message is large because of one array, and perhaps of arrays inside its elements: the topics of a request and
their partitions. This array is named by a *path*, such as ("topics", "partitions"). `PieceReader` gives one message
after the other, each like the whole but with some of the elements only; a topic with more partitions than a piece may
have comes again in the next one, with those that follow. `PieceWriter` takes such messages and makes of them the bytes
of one, in which a topic that came in several pieces is one topic again.

What is not on the path is read in one go, and so must not be large: see `UNIT_WEIGHT_MAX`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from barnabas.protocol import codec
from barnabas.protocol.compiler.codegen import FORMATS, SIZES, element_size_min, has_varint_length, present_fields
from barnabas.protocol.compiler.decoder import (
    WEIGHT_OF_STRUCT,
    LimitedReader,
    TailReader,
    compile_element_reader,
    compile_head_reader,
    compile_limited_reader,
    compile_tail_reader,
)
from barnabas.protocol.compiler.encoder import Writer, compile_head_writer, compile_tail_writer
from barnabas.protocol.compiler.structs import Message, Struct, spec_of
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import read_uvarint, write_uvarint

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from barnabas.protocol.compiler.schema import Field
    from barnabas.protocol.varint import Buffer

UNIT_WEIGHT_MAX = 12_500 * WEIGHT_OF_STRUCT
"""What may be read in one go, an element at the end of the path or what stands around the arrays: as many structs or
strings, or sixteen times as many numbers. A topic of 10,000 partitions with their replicas can be."""

CHUNK_BYTES = 64 * 1024

Path = tuple[str, ...]
M = TypeVar("M", bound=Message)

_COUNT = struct.Struct(">i")


class _ReadLevel(NamedTuple):
    """How to read the struct that holds one of the arrays, around the array."""

    field: str
    where: str
    """For errors."""
    read_head: LimitedReader
    read_tail: TailReader
    is_nullable: bool
    has_varint_count: bool
    element_bytes_min: int
    number_code: str | None
    """Of an array of numbers."""
    read_element: LimitedReader | None
    """At the end of the path, if its elements are not numbers."""


class _WriteLevel(NamedTuple):
    field: str
    write_head: Writer
    write_tail: Writer
    has_varint_count: bool
    write_element: Writer
    """Of a whole element."""
    element_fields: tuple[str, ...]
    """The element's fields but for the next array on the path, if there is one."""


_limited: dict[tuple[type[Struct], int], LimitedReader] = {}
_read_levels: dict[tuple[type[Struct], int, Path], tuple[_ReadLevel, ...]] = {}
_write_levels: dict[tuple[type[Struct], int, Path], tuple[_WriteLevel, ...]] = {}


def read_unit(cls: type[M], data: Buffer, version: int, offset: int) -> M:
    """A message without a path; DecodeError if there is none, or if it is too much to be read in one go."""
    message, _ = _limited_reader(cls, version)(data, offset, [UNIT_WEIGHT_MAX])
    return message  # type: ignore[no-any-return]


class PieceReader(Generic[M]):
    """Reads the message at `offset` of `data`. What follows the message is ignored."""

    def __init__(self, cls: type[M], version: int, path: Path, data: Buffer, offset: int) -> None:
        self._levels = _levels_to_read(cls, version, path)
        self._data = data
        self._offset = offset
        self._stack: list[Any] = []
        """The message and, inside it, the elements that are being read."""
        self._weight = 0
        self.piece_weight_max = WEIGHT_OF_STRUCT
        """A piece ends when it has reached this weight; may be changed between two pieces."""
        self.total_weight = 0
        """Of the pieces so far."""
        self.is_within_element = False
        """Whether the piece that was read last ends within an element of the outermost array: the next one begins with
        the same element again."""

    def pieces(self) -> Generator[M, None, None]:
        """The message in pieces, the last of which has all fields; those before lack what stands behind the array.
        May be called again. DecodeError where the data is no such message."""
        level = self._levels[0]
        self._weight = self.total_weight = 0
        self.is_within_element = False
        message, position = level.read_head(self._data, self._offset, [UNIT_WEIGHT_MAX])
        self._stack = [message]
        position = yield from self._read_array(0, position)
        level.read_tail(self._stack[0], self._data, position, [UNIT_WEIGHT_MAX])
        self.total_weight += self._weight
        self.is_within_element = False
        yield self._stack[0]

    def _read_array(self, depth: int, position: int) -> Generator[M, None, int]:
        level = self._levels[depth]
        count, position = self._read_count(level, position)
        if count < 0:
            setattr(self._stack[depth], level.field, None)
            return position
        setattr(self._stack[depth], level.field, [])  # by default it may be null
        if level.number_code is not None:
            position = yield from self._read_numbers(level, count, position)
        elif level.read_element is not None:
            position = yield from self._read_elements(level, level.read_element, count, position)
        else:
            position = yield from self._read_nested(depth, count, position)
        return position

    def _read_count(self, level: _ReadLevel, position: int) -> tuple[int, int]:
        try:
            if level.has_varint_count:
                count, position = read_uvarint(self._data, position)
                count -= 1
            else:
                (count,) = _COUNT.unpack_from(self._data, position)
                position += _COUNT.size
        except (struct.error, IndexError):
            raise DecodeError(f"{level.where} is cut short") from None
        if count < 0 and not level.is_nullable:
            raise DecodeError(f"{level.where}.{level.field} must not be null")
        rest = len(self._data) - position
        if count * level.element_bytes_min > rest:
            raise DecodeError(f"{level.where}.{level.field} claims {count} elements, {rest} bytes are left")
        return count, position

    def _read_numbers(self, level: _ReadLevel, count: int, position: int) -> Generator[M, None, int]:
        while count:
            if self._weight >= self.piece_weight_max:
                yield self._next_piece()
            taken = min(count, max(1, (self.piece_weight_max - self._weight) // WEIGHT_OF_STRUCT))
            numbers = struct.unpack_from(f">{taken}{level.number_code}", self._data, position)
            getattr(self._stack[-1], level.field).extend(numbers)
            self._weight += taken * WEIGHT_OF_STRUCT
            position += taken * level.element_bytes_min
            count -= taken
        return position

    def _read_elements(
        self, level: _ReadLevel, read: LimitedReader, count: int, position: int
    ) -> Generator[M, None, int]:
        data, left = self._data, [0]
        elements = getattr(self._stack[-1], level.field)
        while count:
            if self._weight >= self.piece_weight_max:
                yield self._next_piece()
                elements = getattr(self._stack[-1], level.field)
            left[0] = UNIT_WEIGHT_MAX
            element, position = read(data, position, left)
            elements.append(element)
            self._weight += WEIGHT_OF_STRUCT + UNIT_WEIGHT_MAX - left[0]
            count -= 1
        return position

    def _read_nested(self, depth: int, count: int, position: int) -> Generator[M, None, int]:
        inner = self._levels[depth + 1]
        while count:
            if self._weight >= self.piece_weight_max:
                yield self._next_piece()
            left = [UNIT_WEIGHT_MAX]
            element, position = inner.read_head(self._data, position, left)
            getattr(self._stack[depth], self._levels[depth].field).append(element)
            self._stack.append(element)
            self._weight += WEIGHT_OF_STRUCT + UNIT_WEIGHT_MAX - left[0]
            position = yield from self._read_array(depth + 1, position)
            position = inner.read_tail(self._stack.pop(), self._data, position, left)
            count -= 1
        return position

    def _next_piece(self) -> M:
        """The piece that is full, after another one was begun with the same elements open."""
        full: M = self._stack[0]
        fields = [level.field for level in self._levels]
        self._stack = [_without(each, field) for each, field in zip(self._stack, fields, strict=False)]
        for outer, inner, field in zip(self._stack, self._stack[1:], fields, strict=False):
            getattr(outer, field).append(inner)
        self.total_weight += self._weight
        self._weight = 0
        self.is_within_element = len(self._stack) > 1
        return full


class PieceWriter(Generic[M]):
    """Writes one message of many that have the same path."""

    def __init__(self, cls: type[M], version: int, path: Path) -> None:
        self._levels = _levels_to_write(cls, version, path)
        self._elements = _Elements(self._levels)
        self.bytes_written = 0

    def add(self, elements: Sequence[Any]) -> None:
        """Adds elements to the outermost array. Leaves them without what the inner ones hold."""
        before = self._elements.size
        self._elements.add(elements)
        self.bytes_written += self._elements.size - before

    def add_encoded(self, encoded: Iterable[bytes], count: int) -> None:
        """Adds so many elements whose bytes are at hand."""
        before = self._elements.size
        self._elements.add_encoded(encoded, count)
        self.bytes_written += self._elements.size - before

    def finish(self, message: M) -> list[bytes]:
        """The bytes of `message` with all elements in place of its own. To be called once."""
        level = self._levels[0]
        head, tail = bytearray(), bytearray()
        level.write_head(message, head)
        self._elements.close()
        _write_count(head, self._elements.count, has_varint=level.has_varint_count)
        level.write_tail(message, tail)
        return [bytes(head), *self._elements.chunks(), bytes(tail)]


class _Elements:
    """The bytes of an array's elements. The last element stays open, as more of it may come."""

    __slots__ = ("_chunks", "_filling", "_inner", "_levels", "_open", "count", "size")

    def __init__(self, levels: Sequence[_WriteLevel]) -> None:
        self._levels = levels
        self._chunks: list[bytes] = []
        self._filling = bytearray()
        self._open: Any = None
        self._inner: _Elements | None = None
        self.count = 0
        self.size = 0
        """Of all that was written, but for the parts of an open element around its array."""

    def add(self, elements: Sequence[Any]) -> None:
        level = self._levels[0]
        if len(self._levels) == 1:
            for element in elements:
                level.write_element(element, self._filling)
            self.count += len(elements)
            self._after_writing()
            return
        for number, element in enumerate(elements, start=1):
            if self._inner is not None and number == 1 and _equals(self._open, element, level.element_fields):
                self._add_to_open(element)
                continue
            self.close()
            self.count += 1
            if number < len(elements):
                level.write_element(element, self._filling)
                self._after_writing()
            else:
                self._open, self._inner = element, _Elements(self._levels[1:])
                self._add_to_open(element)

    def add_encoded(self, encoded: Iterable[bytes], count: int) -> None:
        self.close()
        for each in encoded:
            self._append(each)
        self.count += count

    def close(self) -> None:
        """Nothing more comes of the last element."""
        if self._inner is None:
            return
        inner_level, inner = self._levels[1], self._inner
        inner.close()
        inner_level.write_head(self._open, self._filling)
        _write_count(self._filling, inner.count, has_varint=inner_level.has_varint_count)
        self.size -= inner.size
        for chunk in inner.chunks():
            self._append(chunk)
        inner_level.write_tail(self._open, self._filling)
        self._open = self._inner = None
        self._after_writing()

    def chunks(self) -> list[bytes]:
        self._move_filled()
        return self._chunks

    def _add_to_open(self, element: Any) -> None:
        assert self._inner is not None
        field = self._levels[1].field
        before = self._inner.size
        self._inner.add(getattr(element, field))
        self.size += self._inner.size - before
        setattr(element, field, [])

    def _append(self, encoded: bytes) -> None:
        if len(encoded) >= CHUNK_BYTES:
            self._move_filled()
            self._chunks.append(encoded)
            self.size += len(encoded)
        else:
            self._filling += encoded
            self._after_writing()

    def _after_writing(self) -> None:
        if len(self._filling) >= CHUNK_BYTES:
            self._move_filled()

    def _move_filled(self) -> None:
        if self._filling:
            self._chunks.append(bytes(self._filling))
            self.size += len(self._filling)
            self._filling = bytearray()


def _limited_reader(cls: type[Struct], version: int) -> LimitedReader:
    key = (cls, version)
    if key not in _limited:
        _limited[key] = compile_limited_reader(cls, spec_of(cls), version, _limited_reader)
    return _limited[key]


def _levels_to_read(cls: type[Struct], version: int, path: Path) -> tuple[_ReadLevel, ...]:
    key = (cls, version, path)
    if key not in _read_levels:
        _read_levels[key] = tuple(_make_levels_to_read(cls, version, path))
    return _read_levels[key]


def _make_levels_to_read(cls: type[Struct], version: int, path: Path) -> Iterable[_ReadLevel]:
    for depth, name in enumerate(path):
        spec = spec_of(cls)
        array = _array(cls, version, name)
        is_last = depth == len(path) - 1
        if depth:
            assert present_fields(spec.struct, version)[-1] == array, "what comes behind is not in every piece"
        is_number = array.type in FORMATS and array.type != "uuid"
        yield _ReadLevel(
            field=array.attribute,
            where=f"{spec.message.name} version {version}: {spec.struct.name}",
            read_head=compile_head_reader(cls, spec, version, _limited_reader, array),
            read_tail=compile_tail_reader(cls, spec, version, _limited_reader, array),
            is_nullable=array.nullable.covers(version),
            has_varint_count=has_varint_length(array, spec.message, version),
            element_bytes_min=SIZES[array.type] if is_number else element_size_min(spec.message, array, version),
            number_code=FORMATS[array.type] if is_number else None,
            read_element=compile_element_reader(cls, spec, version, _limited_reader, array) if is_last else None,
        )
        if not is_last:
            cls = spec.classes[array.type]


def _levels_to_write(cls: type[Struct], version: int, path: Path) -> tuple[_WriteLevel, ...]:
    key = (cls, version, path)
    if key not in _write_levels:
        _write_levels[key] = tuple(_make_levels_to_write(cls, version, path))
    return _write_levels[key]


def _make_levels_to_write(cls: type[Struct], version: int, path: Path) -> Iterable[_WriteLevel]:
    for depth, name in enumerate(path):
        spec = spec_of(cls)
        array = _array(cls, version, name)
        element = spec.classes[array.type]
        next_name = path[depth + 1] if depth + 1 < len(path) else None
        yield _WriteLevel(
            field=array.attribute,
            write_head=compile_head_writer(cls, spec, version, codec.writer, array),
            write_tail=compile_tail_writer(cls, spec, version, codec.writer, array),
            has_varint_count=has_varint_length(array, spec.message, version),
            write_element=codec.writer(element, version),
            element_fields=tuple(field for field in element.__slots__ if field != next_name),
        )
        cls = element


def _array(cls: type[Struct], version: int, name: str) -> Field:
    (array,) = (field for field in present_fields(spec_of(cls).struct, version) if field.attribute == name)
    assert array.is_array
    return array


def _without(element: Any, array: str) -> Any:
    """A copy of an element without what its array holds."""
    copy = object.__new__(type(element))
    for field in element.__slots__:
        setattr(copy, field, getattr(element, field))
    setattr(copy, array, [])
    return copy


def _equals(one: Any, other: Any, fields: Iterable[str]) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in fields)


def _write_count(out: bytearray, count: int, *, has_varint: bool) -> None:
    if has_varint:
        write_uvarint(out, count + 1)
    else:
        out += _COUNT.pack(count)
