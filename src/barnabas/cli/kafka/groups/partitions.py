"""The partitions that `--topic` names, and whether they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.flags import read_int
from barnabas.cli.kafka.groups.failures import asking_cluster, bare, failed, nested
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.tool import ToolUsageError
from barnabas.client.admin.topics import TopicState, describe_topics
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.cli.kafka.admin_access import AskError
    from barnabas.client.cluster import Cluster, TopicPartition


def parse_topic_with_partitions(text: str) -> list[TopicPartition]:
    """`topic:0,1`; ToolUsageError for what is nothing like it."""
    topic, *numbers = text.rstrip(":").split(":")
    if len(numbers) != 1:
        raise ToolUsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
    places = []
    for part in numbers[0].rstrip(",").split(","):
        try:
            places.append((topic, read_int(part)))
        except ValueError:
            raise ToolUsageError(f"Invalid partition '{part}' specified in topic arg '{text}''") from None
    return places


def partitions_meant(cluster: Cluster, texts: Sequence[str]) -> list[TopicPartition]:
    """What several `--topic` name: a topic without partitions means all of them."""
    places = [place for text in texts if ":" in text for place in parse_topic_with_partitions(text)]
    topics = [text for text in texts if ":" not in text]
    states = topic_states(cluster, topics, bare)
    for topic in in_hash_order(states, string_hash):
        places += [(topic, each.partition) for each in states[topic].partitions]
    return places


def topic_states(cluster: Cluster, topics: Iterable[str], shown: Callable[[AskError], str]) -> dict[str, TopicState]:
    """What the cluster knows of topics, all of which have to be there."""
    states = {}
    with asking_cluster("describeTopics", shown):
        for topic, state in describe_topics(cluster, topics).items():
            if isinstance(state, KafkaError):
                raise state
            states[topic] = state
    return states


def check_there(cluster: Cluster, places: Sequence[TopicPartition]) -> None:
    """ToolError for partitions that do not exist, or that nobody leads."""
    states = topic_states(cluster, {topic for topic, _ in places}, nested)
    leaders = {(topic, each.partition): each.leader_id for topic, state in states.items() for each in state.partitions}
    absent = [place for place in places if place not in leaders]
    if absent:
        raise failed(f'The partitions "{_shown(absent)}" do not exist')
    leaderless = [place for place in places if leaders[place] < 0]
    if leaderless:
        raise failed(f'The partitions "{_shown(leaderless)}" have no leader')


def _shown(places: Iterable[TopicPartition]) -> str:
    return ",".join(f"{topic}-{partition}" for topic, partition in places)
