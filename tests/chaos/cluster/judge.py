"""What must be true at the end, whatever happened: each check returns what is wrong, in words.

- every acknowledged record is there, once, at the offset that was acknowledged, in its producer's order;
- what readers were shown is still there, and the same;
- under read_committed, every record of the source has its output once, in order, and no transaction is left open;
- replicas are equal, byte for byte, below the high watermark;
- no node has an exception in its log that nobody handled, and every fault left the line by which it is known.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from tests.chaos.cluster import load as loads
from tests.chaos.cluster.traffic import value_of
from tests.chaos.committed import read_committed, transactions_under_way
from tests.chaos.loop_process import TRANSACTION_TIMEOUT_MS, output_of
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.chaos.cluster.faults import Fault
    from tests.chaos.cluster.load import Load
    from tests.chaos.cluster.nodes import Nodes
    from tests.chaos.cluster.traffic import Acknowledgements, Reader

BAD_LINES = re.compile(r"Traceback \(most recent call last\)|never retrieved|Exception in callback|Task was destroyed")
SHOWN_MAX = 5
SETTLE_S_MAX = TRANSACTION_TIMEOUT_MS / 1000 + 60.0
_BATCH_HEAD = struct.Struct(">qi")
CHECKPOINT = "replication-offset-checkpoint"


def judge_contents(nodes: Nodes, load: Load) -> list[str]:
    """While the cluster runs: what its topics hold."""
    wait_until(
        lambda: not any(transactions_under_way(nodes.cluster[node_id].port) for node_id in nodes.ids),
        "no transaction is under way",
        SETTLE_S_MAX,
        0.2,
    )
    numbers = read_committed(nodes.bootstrap, loads.NUMBERS, loads.NUMBERS_PARTITIONS)
    wrong = []
    for partition, values in enumerate(numbers):
        name = f"{loads.NUMBERS}-{partition}"
        wrong += judge_acknowledged(name, values, load.acknowledged[partition])
        wrong += judge_order(name, values, [producer.count for producer in load.producers])
    of_numbers, of_sink = load.readers
    wrong += judge_shown(of_numbers, numbers)
    expected = [output_of(b"%d" % number) for number in range(load.fed)]
    sinks = [*loads.SINKS.values(), *([loads.SPARK_SINK] if load.pipeline is not None else [])]
    for sink in sinks:
        found = read_committed(nodes.bootstrap, sink, loads.SOURCE_PARTITIONS)
        for partition, values in enumerate(found):
            wrong += judge_outputs(f"{sink}-{partition}", values, expected)
    for partition, seen in enumerate(of_sink.seen):
        name = f"what the read_committed reader saw of {of_sink.topic}-{partition}"
        wrong += judge_outputs(name, [value for _, value in seen], expected)
    return wrong + of_numbers.failures + of_sink.failures


def judge_acknowledged(name: str, values: Sequence[bytes], acknowledged: Acknowledgements) -> list[str]:
    """Nothing but records of idempotent producers was ever written here: so offsets count records."""
    wrong = [
        f"{name}: {value_of(producer, number).decode()} was acknowledged at offset {offset}, where there is "
        f"{values[offset].decode() if offset < len(values) else 'nothing'}"
        for producer, number, offset in zip(
            acknowledged.producer, acknowledged.number, acknowledged.offset, strict=True
        )
        if offset >= len(values) or values[offset] != value_of(producer, number)
    ]
    return _shown(wrong)


def judge_order(name: str, values: Sequence[bytes], counts: Sequence[int]) -> list[str]:
    """Each producer has written 0, 1, 2, … and every one of them was acknowledged in the end."""
    found: list[list[int]] = [[] for _ in counts]
    for value in values:
        producer, _, number = value.partition(b"-")
        found[int(producer)].append(int(number))
    wrong = []
    for index, (numbers, count) in enumerate(zip(found, counts, strict=True)):
        if numbers != list(range(count)):
            at = next((n for n, number in enumerate(numbers) if n != number), len(numbers))
            wrong.append(
                f"{name}: producer {index} wrote 0 … {count - 1}, and there are {len(numbers)} records of it, which "
                f"differ from place {at} on: {numbers[max(at - 2, 0) : at + 5]}"
            )
    return wrong


def judge_shown(reader: Reader, contents: Sequence[Sequence[bytes]]) -> list[str]:
    wrong = []
    for partition, (seen, values) in enumerate(zip(reader.seen, contents, strict=True)):
        if [offset for offset, _ in seen] != list(range(len(values))):
            wrong.append(f"the reader of {reader.topic}-{partition} saw {len(seen)} of {len(values)} records")
        wrong += [
            f"{reader.topic}-{partition} showed {value.decode()} at offset {offset}, and now there is something else"
            for offset, value in seen
            if offset < len(values) and values[offset] != value
        ]
    return _shown(wrong)


def judge_outputs(name: str, values: Sequence[bytes], expected: Sequence[bytes]) -> list[str]:
    if list(values) == list(expected):
        return []
    at = next((n for n, (one, two) in enumerate(zip(values, expected, strict=False)) if one != two), len(expected))
    return [
        (
            f"{name} has {len(values)} records where {len(expected)} are due, and differs from place {at} on: "
            f"{list(values[at : at + SHOWN_MAX])} instead of {list(expected[at : at + SHOWN_MAX])}"
        )
    ]


def judge_replicas(folders: Mapping[int, Path]) -> list[str]:
    """Of nodes that have been stopped cleanly: what each holds below the high watermark that all of them know."""
    checkpoints = {node_id: _read_checkpoint(folder / CHECKPOINT) for node_id, folder in folders.items()}
    partitions = sorted({name for known in checkpoints.values() for name in known})
    wrong = [] if partitions else ["no node has a high watermark of any partition"]
    for name in partitions:
        holders = [node_id for node_id in folders if (folders[node_id] / name).is_dir()]
        high_watermark = min(checkpoints[node_id].get(name, 0) for node_id in holders)
        contents = {node_id: _bytes_below(folders[node_id] / name, high_watermark) for node_id in holders}
        if len(set(contents.values())) > 1:
            lengths = {node_id: len(content) for node_id, content in contents.items()}
            wrong.append(f"the replicas of {name} differ below offset {high_watermark}; their bytes: {lengths}")
        ends = {node_id: checkpoints[node_id].get(name, 0) for node_id in holders}
        if not name.startswith("__") and len(set(ends.values())) > 1:
            wrong.append(f"the replicas of {name} have different high watermarks at the end: {ends}")
    return wrong


def judge_logs(texts: Mapping[int, str]) -> list[str]:
    wrong = []
    for node_id, text in texts.items():
        lines = text.splitlines()
        found = [number for number, line in enumerate(lines) if BAD_LINES.search(line)]
        wrong += [f"node {node_id} logged: " + "\n".join(lines[max(at - 1, 0) : at + 40]) for at in found[:SHOWN_MAX]]
        if len(found) > SHOWN_MAX:
            wrong.append(f"node {node_id} logged {len(found) - SHOWN_MAX} more of these")
    return wrong


def judge_signs(fault: Fault, logs: Mapping[int, str]) -> list[str]:
    """`logs` are what the nodes have written since the fault began."""
    return [
        f"no log of nodes {sign.nodes} says /{sign.pattern}/ after: {fault.what}"
        for sign in fault.signs
        if not any(re.search(sign.pattern, logs[node_id]) for node_id in sign.nodes)
    ]


def _read_checkpoint(path: Path) -> dict[str, int]:
    _version, _count, *lines = path.read_text().splitlines()
    parsed = (line.rsplit(" ", 2) for line in lines)
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in parsed}


def _bytes_below(folder: Path, offset: int) -> bytes:
    content = b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))
    return content[: _position_of(content, offset)]


def _position_of(content: bytes, offset: int) -> int:
    position = 0
    for base_offset, size in _batches(content):
        if base_offset >= offset:
            break
        position += size
    return position


def _batches(content: bytes) -> Iterator[tuple[int, int]]:
    """Base offset and size of each."""
    position = 0
    while position + _BATCH_HEAD.size <= len(content):
        base_offset, length = _BATCH_HEAD.unpack_from(content, position)
        yield base_offset, _BATCH_HEAD.size + length
        position += _BATCH_HEAD.size + length


def _shown(wrong: list[str]) -> list[str]:
    more = len(wrong) - SHOWN_MAX
    return [*wrong[:SHOWN_MAX], f"… and {more} more like this"] if more > 0 else wrong
