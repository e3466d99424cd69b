"""What a new leader appends before it serves: the first records of a new cluster, the end of an open transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.elections import MIN_ISR
from barnabas.metadata import versions
from barnabas.metadata.image import DEFAULT_BROKERS
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.image import MetadataImage

_TRANSACTION_NAME = "Bootstrap records"


def activation_records(
    image: MetadataImage,
    bootstrap: Sequence[VersionedRecord],
    *,
    is_in_transaction: bool,
    min_insync_replicas: int,
) -> list[VersionedRecord]:
    """The records with which a leader takes over a log whose replay gives `image`."""
    records = []
    if is_in_transaction:
        # The leader that began it is gone and will never end it.
        reason = m.AbortTransactionRecord(reason="the leader that began it is gone")
        records.append(VersionedRecord(reason, 0))
    if image.features.metadata_version == 0:
        records += _first_records(bootstrap, min_insync_replicas)
    return records


def _first_records(bootstrap: Sequence[VersionedRecord], min_insync_replicas: int) -> list[VersionedRecord]:
    levels = {
        record.message.name: record.message.feature_level
        for record in bootstrap
        if isinstance(record.message, m.FeatureLevelRecord)
    }
    records = list(bootstrap)
    if levels.get(versions.ELR_FEATURE, 0) >= 1:
        # Eligible leader replicas are meaningful only if all brokers have the same min.insync.replicas.
        min_isr = m.ConfigRecord(
            resource_type=DEFAULT_BROKERS.type,
            resource_name=DEFAULT_BROKERS.name,
            name=MIN_ISR,
            value=str(min_insync_replicas),
        )
        records.append(VersionedRecord(min_isr, 0))
    if not versions.supports_transactions(levels.get(versions.FEATURE_NAME, versions.MINIMUM)):
        return records
    begin = VersionedRecord(m.BeginTransactionRecord(name=_TRANSACTION_NAME), 0)
    return [begin, *records, VersionedRecord(m.EndTransactionRecord(), 0)]
