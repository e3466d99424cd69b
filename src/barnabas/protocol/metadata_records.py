"""The values of the records of `__cluster_metadata`: a frame version, the record's type and version, and its body.

The three numbers are unsigned varints. The schemas have other messages of type "metadata" (those of remote storage),
which have type numbers of their own and do not belong here.
"""

from __future__ import annotations

from barnabas.protocol.codec import decode, writer
from barnabas.protocol.compiler.structs import Message, message_class
from barnabas.protocol.errors import EncodeError, UnknownFormatError
from barnabas.protocol.varint import Buffer, read_uvarint, write_uvarint

FRAME_VERSION = 1

RECORD_NAMES: dict[int, str] = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
"""The names of the records' classes by type."""


def encode_record(record: Message, version: int) -> bytes:
    """The value of a record of the metadata log."""
    cls = type(record)
    if cls.api_key is None or RECORD_NAMES.get(cls.api_key) != cls.__name__:
        raise EncodeError(f"{cls.__name__} is not a record of the metadata log")
    out = bytearray((FRAME_VERSION,))
    write_uvarint(out, cls.api_key)
    write_uvarint(out, version)
    writer(cls, version)(record, out)
    return bytes(out)


def decode_record(data: Buffer) -> tuple[Message, int]:
    """The record that a value of the metadata log holds, and its version.

    Raises UnknownFormatError if this software does not know it, and DecodeError if it is corrupt.
    """
    frame_version, pos = read_uvarint(data, 0)
    if frame_version != FRAME_VERSION:
        raise UnknownFormatError(f"unknown frame version {frame_version}, expected {FRAME_VERSION}")
    api_key, pos = read_uvarint(data, pos)
    version, pos = read_uvarint(data, pos)
    if api_key not in RECORD_NAMES:
        raise UnknownFormatError(f"unknown metadata record type {api_key}")
    return decode(message_class(RECORD_NAMES[api_key]), data, version, pos), version
