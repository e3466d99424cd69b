"""What a topic's name says: whether it is legal, and whether the topic belongs to the brokers themselves."""

from __future__ import annotations

from barnabas.metadata.controller.topic_names import check_topic_name
from barnabas.protocol.errors import KafkaError

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True
