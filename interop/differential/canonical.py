"""An answer as a tree of plain values in which nothing depends on which of two brokers gave it.

Ids that a broker makes up become words by the order in which they turn up, "topic id 1": the same id is the same word
in all answers of a sequence. Ports, folders and times become words as well. Records are opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.protocol.batch import decode_records, iter_headers
from barnabas.protocol.compiler.schema import message_schema
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.uuids import ZERO_UUID
from interop.differential.allowed import (
    CHECKSUMS,
    EACH_ITS_OWN,
    EMPTY_SAYS_NOTHING,
    LISTINGS,
    NOT_SERVED,
    OF_ONE_SIDE,
    ORDERED,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.compiler.schema import MessageSchema, StructSchema
    from barnabas.protocol.compiler.structs import Message

Tree: TypeAlias = Any

MEMBER_FIELDS = frozenset({"member_id", "leader"})
PRODUCER_FIELDS = frozenset({"producer_id"})
LONG_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![\w-])[\w-]{22}(?![\w-])")
_NAMES = re.compile(r"^(name|topic|key|path|partition|index|feature)$|_(name|id|index|key|type)$|^(entity|topics)$")
"""Fields that say what an element of an array is about."""
PRODUCER_IN_WORDS = re.compile(r"(?<=producer )\d+|(?<=producerId=)\d+|(?<=producer id )\d+")


@dataclass(slots=True)
class Canon:
    """The words for one side's ids in one sequence."""

    prefix: str
    folder: str
    names: Mapping[tuple[str, Any], str]
    """What the side's own memory calls the ids that it was told."""
    words: dict[tuple[str, Any], str] = field(default_factory=dict)

    def word(self, kind: str, value: Any) -> str:
        if (kind, value) in self.names:
            return self.names[kind, value]
        known = sum(of == kind for of, _ in self.words)
        return self.words.setdefault((kind, value), f"<{kind} {known + 1}>")

    def tree(self, answer: Message, version: int) -> Tree:
        schema = message_schema(type(answer).__name__)
        return self._struct(answer, schema, schema.root, version, schema.name[: -len("Response")])

    def _struct(self, value: Any, schema: MessageSchema, struct: StructSchema, version: int, path: str) -> Tree:
        shown: dict[str, Tree] = {}
        for each in struct.fields:
            if not each.versions.covers(version):
                continue
            at = f"{path}.{each.attribute}"
            held = getattr(value, each.attribute)
            if at in CHECKSUMS:
                shown[each.attribute] = "<checksum>"
            elif at in EACH_ITS_OWN or each.attribute in EACH_ITS_OWN:
                shown[each.attribute] = _only_kind(held)
            elif held is None:
                shown[each.attribute] = None
            elif each.is_array:
                inner = schema.structs[each.type] if each.is_struct else None
                shown[each.attribute] = self._array(held, schema, inner, version, at, each.type)
            elif each.is_struct:
                shown[each.attribute] = self._struct(held, schema, schema.structs[each.type], version, at)
            else:
                shown[each.attribute] = self._scalar(held, each.attribute, each.type)
        return shown

    def _array(
        self, held: list[Any], schema: MessageSchema, inner: StructSchema | None, version: int, path: str, type_: str
    ) -> Tree:
        if path in LISTINGS:
            held = [each for each in held if str(getattr(each, LISTINGS[path])).startswith(self.prefix)]
        if path == "DescribeConfigs.results.configs":
            held = [each for each in held if each.name not in OF_ONE_SIDE]
        if path == "ApiVersions.api_keys":
            held = [each for each in held if each.api_key not in NOT_SERVED]
        if inner is None:
            trees = [self._scalar(each, path.rpartition(".")[2], type_) for each in held]
        else:
            trees = [self._struct(each, schema, inner, version, path) for each in held]
            if path in EMPTY_SAYS_NOTHING:
                trees = [tree for tree in trees if any(value for value in tree.values() if isinstance(value, list))]
        return trees if path in ORDERED else _as_set(trees)

    def _scalar(self, held: Any, name: str, type_: str) -> Tree:
        if type_ == "records":
            return self._records(bytes(held))
        if type_ == "uuid":
            return "<no id>" if held == ZERO_UUID else self.word("id", bytes(held))
        if isinstance(held, memoryview | bytearray | bytes):
            return bytes(held)
        if name in MEMBER_FIELDS and isinstance(held, str) and LONG_ID.search(held):
            return self.word("member", held)
        if name in PRODUCER_FIELDS and held > 0:
            return self.word("producer", held)
        if name == "port":
            return "<port>" if held > 0 else held
        return self._text(held) if isinstance(held, str) else held

    def _text(self, text: str) -> str:
        text = text.replace(self.folder, "<folder>").replace(self.prefix, "")
        text = PRODUCER_IN_WORDS.sub(lambda found: self.word("producer", int(found[0])), text)
        return LONG_ID.sub("<some id>", text)

    def _records(self, data: bytes) -> Tree:
        shown: list[Tree] = []
        end = 0
        try:
            for position, header in iter_headers(data):
                end = position + header.size
                records = decode_records(data, position)
                whose = self.word("producer", header.producer_id) if header.producer_id >= 0 else header.producer_id
                has_own_time = header.timestamp_type or header.is_control
                shown.append(
                    {
                        "base_offset": header.base_offset,
                        "epoch": header.partition_leader_epoch,
                        "attributes": header.attributes,
                        "last_offset": header.last_offset,
                        "producer": (whose, header.producer_epoch, header.base_sequence),
                        "max_timestamp": "<time>" if has_own_time else header.max_timestamp,
                        "records": [
                            (
                                each.offset,
                                each.key,
                                each.value,
                                "<time>" if has_own_time else each.timestamp,
                                each.headers,
                            )
                            for each in records
                        ],
                    }
                )
        except DecodeError as error:
            shown.append({"undecodable": str(error)})
        if end < len(data):
            shown.append({"bytes_behind": len(data) - end})
        return shown


def _only_kind(value: Any) -> Tree:
    """What is left of a value that each side has its own of: whether there is one."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return "<number>" if value >= 0 else value
    return "<something>" if value else value


def _as_set(trees: list[Tree]) -> list[Tree]:
    """In an order of its own, each once, and what has one name as one: the partitions of a topic come together."""
    merged: dict[str, Any] = {}
    for tree in trees:
        known: Any = merged.setdefault(repr(_without_lists(tree)), tree)
        if known is not tree and isinstance(tree, dict):
            for name, inner in tree.items():
                if isinstance(inner, list):
                    known[name] = _as_set([*known[name], *inner])
    return sorted(merged.values(), key=_place)


def _place(tree: Tree) -> tuple[str, str]:
    """By name first, so that two answers for one thing come beside each other even if all else differs."""
    if not isinstance(tree, dict):
        return repr(tree), ""
    return repr([value for name, value in tree.items() if _NAMES.search(name)]), repr(tree)


def _without_lists(tree: Tree) -> Tree:
    if not isinstance(tree, dict):
        return tree
    return {name: isinstance(value, list) or value for name, value in tree.items()}
