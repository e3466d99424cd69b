"""What each metadata.version allows: which records may be written, and in which version.

The finalized metadata.version is part of the metadata log itself. A node writes every record in the version that this
level prescribes, so that the oldest software that supports the level can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NewType

if TYPE_CHECKING:
    from barnabas.protocol import messages as m
    from barnabas.protocol.compiler.structs import Message

MetadataVersion = NewType("MetadataVersion", int)

FEATURE_NAME = "metadata.version"
ELR_FEATURE = "eligible.leader.replicas.version"
KRAFT_FEATURE = "kraft.version"

MINIMUM = MetadataVersion(7)
"""3.3-IV3, the oldest level that Kafka 4 supports."""
LATEST = MetadataVersion(30)
"""4.3-IV0."""

_MIGRATION = 8  # 3.4-IV0
_ISR_SHRINK_KEEPS_EPOCH = 12  # 3.6-IV0
_TRANSACTIONS = 13  # 3.6-IV1
_CONTROLLER_REGISTRATION = 15  # 3.7-IV0
_DIRECTORY_ASSIGNMENT = 17  # 3.7-IV2
ELR_METADATA_VERSION_MIN = 23
"""4.0-IV1."""
_CORDONED_LOG_DIRS = 30  # 4.3-IV0

_WITH_NEW_METADATA = frozenset({7, 8, 11, 13, 14, 15, 17, ELR_METADATA_VERSION_MIN, _CORDONED_LOG_DIRS})
"""The levels that brought records, or fields of records, which levels before them do not know."""


class VersionRange(NamedTuple):
    lowest: int
    highest: int


SUPPORTED_FEATURES: dict[str, VersionRange] = {
    "group.version": VersionRange(0, 1),
    KRAFT_FEATURE: VersionRange(0, 1),
    FEATURE_NAME: VersionRange(MINIMUM, LATEST),
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
    ELR_FEATURE: VersionRange(0, 1),
}
"""The levels that this software supports, as it reports them when it registers."""

BOOTSTRAP_FEATURES: dict[str, int] = {
    FEATURE_NAME: LATEST,
    ELR_FEATURE: 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""The levels that a new cluster starts with, in the order in which they are written."""


class VersionedRecord(NamedTuple):
    """A metadata record and the version in which it is written."""

    message: Message
    version: int


class UnsupportedMetadataVersionError(Exception):
    """A metadata log or snapshot has a feature level that this software does not support."""

    def __init__(self, feature: str, level: int, supported: VersionRange, place: str = "the metadata") -> None:
        self._found = (feature, level, supported)
        if level > supported.highest:
            advice = "it is too new: open the folder with newer software"
        else:
            advice = "it is too old: upgrade it first, with software that still supports it"
        super().__init__(
            f"{place} has {feature} {level}, but this version supports {supported.lowest} to "
            f"{supported.highest}; {advice}. Nothing was changed"
        )

    def at(self, place: str) -> UnsupportedMetadataVersionError:
        """The same error, with the file or folder that has the level."""
        return UnsupportedMetadataVersionError(*self._found, place)


def check_supported(feature: str, level: int) -> None:
    """Raises UnsupportedMetadataVersionError for a level that is too old or too new, or of an unknown feature."""
    supported = SUPPORTED_FEATURES.get(feature, VersionRange(0, 0))
    if level != 0 and not supported.lowest <= level <= supported.highest:
        raise UnsupportedMetadataVersionError(feature, level, supported)


def supports_transactions(version: int) -> bool:
    return version >= _TRANSACTIONS


def supports_controller_registration(version: int) -> bool:
    return version >= _CONTROLLER_REGISTRATION


def supports_directories(version: int) -> bool:
    return version >= _DIRECTORY_ASSIGNMENT


def supports_elr(version: int) -> bool:
    return version >= ELR_METADATA_VERSION_MIN


def supports_cordoned_directories(version: int) -> bool:
    return version >= _CORDONED_LOG_DIRS


def changes_metadata(lower: int, higher: int) -> bool:
    """Whether there may be metadata at the higher level that the lower one does not know."""
    return any(lower < level <= higher for level in _WITH_NEW_METADATA)


def raises_leader_epoch_on_isr_shrink(version: int) -> bool:
    """Before 3.6, brokers noticed that the ISR had shrunk only if the leader epoch was raised."""
    return version < _ISR_SHRINK_KEEPS_EPOCH


def register_broker_version(version: int) -> int:
    if version >= _CORDONED_LOG_DIRS:
        return 4
    if version >= _DIRECTORY_ASSIGNMENT:
        return 3
    return 2 if version >= _MIGRATION else 1


def partition_version(version: int) -> int:
    """The version of PartitionRecord and PartitionChangeRecord, which is always the same."""
    if version >= ELR_METADATA_VERSION_MIN:
        return 2
    return 1 if version >= _DIRECTORY_ASSIGNMENT else 0


def registration_change_version(change: m.BrokerRegistrationChangeRecord) -> int:
    """The lowest version that can express this change, which is the one that Kafka writes."""
    if change.cordoned_log_dirs is not None:
        return 3
    if change.log_dirs:
        return 2
    return 1 if change.in_controlled_shutdown else 0
