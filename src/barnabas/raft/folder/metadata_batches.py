"""Batches of the metadata log and its snapshots: metadata records in data batches, Raft's own in control batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch, decode_records, read_header
from barnabas.protocol.control_records import decode_control_record, encode_control_record
from barnabas.protocol.errors import UnknownFormatError
from barnabas.protocol.metadata_records import decode_record, encode_record
from barnabas.protocol.record import Record
from barnabas.raft.consensus.messages import LeaderChange, VotersChange
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG, VoterEndpoint, VoterNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.varint import Buffer
    from barnabas.raft.consensus.messages import Entry


class DecodedBatch(NamedTuple):
    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    size_bytes: int
    records: tuple[Message, ...]


class NewerMetadataError(Exception):
    """A valid batch with a record that this software does not know."""


def data_batch(records: Iterable[VersionedRecord], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    return build_batch(encode_data(records, timestamp_ms), base_offset=base_offset, leader_epoch=epoch)


def encode_data(records: Iterable[VersionedRecord], timestamp_ms: int) -> list[Record]:
    return [Record(timestamp=timestamp_ms, value=encode_record(message, version)) for message, version in records]


def control_batch(messages: Iterable[Message], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    encoded = []
    for message in messages:
        key, value = encode_control_record(message)
        encoded.append(Record(timestamp=timestamp_ms, key=key, value=value))
    return build_batch(encoded, base_offset=base_offset, leader_epoch=epoch, is_control=True)


def decode_batch(batch: Buffer, source: str) -> DecodedBatch:
    """A complete batch with its records. `source` is the folder or file it comes from, for error messages.

    Raises DecodeError if it is not a batch, and NewerMetadataError if it has an unknown record.
    """
    header = read_header(batch)
    decoded: list[Message] = []
    for record in decode_records(batch):
        try:
            if header.is_control:
                decoded.append(decode_control_record(record.key or b"", record.value or b"")[1])
            else:
                decoded.append(decode_record(record.value or b"")[0])
        except UnknownFormatError as error:
            raise NewerMetadataError(
                f"{source} has a record at offset {record.offset} that was written by newer software ({error}). "
                "Nothing was changed; open the folder with that software"
            ) from error
    return DecodedBatch(
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.max_timestamp,
        header.is_control,
        header.size,
        tuple(decoded),
    )


def encode_entry(entry: Entry, timestamp_ms: int) -> bytes:
    """The batch of an entry that the core appends: of data as it was proposed, or of control records."""
    payload = entry.payload
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, LeaderChange):
        messages = leader_change_messages(payload)
    else:
        assert isinstance(payload, VotersChange), "the core appends nothing else"
        messages = [voters_record(payload.voters)]
    return control_batch(messages, base_offset=entry.base_offset, epoch=entry.epoch, timestamp_ms=timestamp_ms)


def leader_change_messages(change: LeaderChange) -> list[Message]:
    """The control records with which an epoch begins."""
    voter = m.LeaderChangeMessage.Voter
    messages: list[Message] = [
        m.LeaderChangeMessage(
            leader_id=change.leader_id,
            voters=[voter(voter_id=voter_id) for voter_id in change.voters],
            granting_voters=[voter(voter_id=voter_id) for voter_id in change.granting_voters],
        )
    ]
    if change.named is not None:
        messages += voters_messages(change.named)
    return messages


def voters_messages(voters: Sequence[VoterNode]) -> list[Message]:
    """The kraft.version and the voters, as in the log and in every snapshot."""
    return [m.KRaftVersionRecord(kraft_version=VOTERS_IN_LOG), voters_record(voters)]


def voters_record(voters: Sequence[VoterNode]) -> m.VotersRecord:
    return m.VotersRecord(
        voters=[
            m.VotersRecord.Voter(
                voter_id=node.id,
                voter_directory_id=node.directory_id,
                endpoints=[
                    m.VotersRecord.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                    for endpoint in node.endpoints
                ],
                kraft_version_feature=m.VotersRecord.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=VOTERS_IN_LOG
                ),
            )
            for node in voters
        ]
    )


def voters_from_record(record: m.VotersRecord) -> tuple[VoterNode, ...]:
    return tuple(
        VoterNode(
            voter.voter_id,
            voter.voter_directory_id,
            tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
        )
        for voter in record.voters
    )
