"""A node's folder with every kind of file in it, written by clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.adapter import CODECS, MemberOptions, Message, ProducerOptions
from tests.clients.with_confluent import ConfluentClient

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, TRANSACTIONS = "kept", "transactions"
OFFSETS_TOPIC, TRANSACTION_TOPIC, METADATA_TOPIC = "__consumer_offsets", "__transaction_state", "__cluster_metadata"
RECORDS_OF_EACH_CODEC = 100
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}


def write_everything(bootstrap: str) -> None:
    """Records of every codec, committed and aborted transactions, and groups of both protocols."""
    client = ConfluentClient(bootstrap)
    client.create_topic(TOPIC, config={"segment.bytes": "1048576", "retention.ms": "-1", "index.interval.bytes": "100"})
    client.create_topic(TRANSACTIONS)
    for codec in CODECS:
        messages = [
            Message(f"{codec} {n} é".encode() * 9, b"key-%d" % n, (("h", b"v"),)) for n in range(RECORDS_OF_EACH_CODEC)
        ]
        client.produce(TOPIC, messages, partition=0, options=ProducerOptions(codec=codec))
    producer = client.transactional_producer("t")
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        producer.send(TRANSACTIONS, [Message(b"value")])
        end()
    producer.close()
    for protocol in ("classic", "consumer"):
        options = MemberOptions(protocol=protocol)
        member = client.group_consumer(f"group-{protocol}", [TOPIC], options)
        while not member.poll():
            pass
        member.commit()
        member.close()


def log_of(data_dir: Path, topic: str) -> Path:
    """The first segment of the first partition."""
    return min((data_dir / f"{topic}-0").glob("*.log"))


def newest_checkpoint(data_dir: Path) -> Path:
    return max((data_dir / f"{METADATA_TOPIC}-0").glob("*.checkpoint"))
