"""Whether the replicas of a partition have the same batches, as far as all of them have any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.admin.replica_batches import ReplicaBatches
    from barnabas.client.cluster import TopicPartition


class ComparisonError(Exception):
    """Replicas do not have the same offsets: nothing behind that can be compared."""


def compare_replicas(
    place: TopicPartition, start: int, replicas: Mapping[int, ReplicaBatches]
) -> tuple[int, list[str]]:
    """Up to where all replicas have batches below their high watermarks, and which of those differ."""
    name = "{}-{}".format(*place)
    end, problems = start, []
    committed = [
        [header for header in each.headers if header.last_offset < each.high_watermark] for each in replicas.values()
    ]
    # Replicas that are behind have fewer batches, and no batch is compared that one of them lacks.
    for headers in zip(*committed, strict=False):
        (first_id, first), *others = zip(replicas, headers, strict=True)
        for broker_id, header in others:
            if header.last_offset != first.last_offset:
                raise ComparisonError(
                    f"partition {name}: replica {first_id}'s offset {first.last_offset} doesn't match replica "
                    f"{broker_id}'s offset {header.last_offset}"
                )
            if header.crc != first.crc:
                problems.append(
                    f"partition {name} has unmatched checksum at offset {header.last_offset}; replica {first_id}'s "
                    f"checksum {first.crc}; replica {broker_id}'s checksum {header.crc}"
                )
        end = first.next_offset
    return end, problems
