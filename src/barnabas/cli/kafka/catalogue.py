"""The tools that Kafka has, under the names of its scripts."""

from __future__ import annotations

from typing import Final, NamedTuple


class KafkaTool(NamedTuple):
    """A tool, and what one types it for."""

    module: str
    """Below `barnabas.cli.kafka`; it has `run(words) -> exit code`, or a function of the name behind a colon."""
    summary: str


TOOLS: Final[dict[str, KafkaTool]] = {
    "kafka-topics": KafkaTool("topics.topics_tool", "create, alter, delete, list and describe topics"),
    "kafka-console-producer": KafkaTool("console.producer_tool", "send lines of text to a topic"),
    "kafka-console-consumer": KafkaTool("console.consumer_tool", "print the records of topics"),
    "kafka-server-start": KafkaTool("server.server_start", "run a node with a file of settings"),
    "kafka-server-stop": KafkaTool("server.server_stop", "stop the nodes that kafka-server-start runs here"),
    "kafka-run-class": KafkaTool("server.run_class", "run a tool by the name of Kafka's class"),
    "zookeeper-server-start": KafkaTool("server.zookeeper:start", "say that there is no ZooKeeper any more"),
    "zookeeper-server-stop": KafkaTool("server.zookeeper:stop", "say that there is no ZooKeeper any more"),
    "kafka-storage": KafkaTool("files.storage_tool", "format the folders of a node, and tell what they are"),
    "kafka-dump-log": KafkaTool("files.dump_log.dump_log_tool", "show what is in segments, indexes and snapshots"),
    "kafka-metadata-shell": KafkaTool(
        "files.metadata_shell.metadata_shell_tool", "look around in the metadata log or a snapshot of it"
    ),
    "zookeeper-shell": KafkaTool("server.zookeeper_shell", "show the brokers, topics and controller of a cluster"),
    "kafka-consumer-groups": KafkaTool(
        "groups.consumer_groups_tool", "list, describe and delete groups of consumers, and set how far they have come"
    ),
    "kafka-configs": KafkaTool("configs.configs_tool", "describe and alter settings, quotas and passwords"),
    "kafka-get-offsets": KafkaTool("partitions.get_offsets_tool", "show where partitions begin and end"),
    "kafka-delete-records": KafkaTool("partitions.delete_records_tool", "delete the oldest records of partitions"),
    "kafka-replica-verification": KafkaTool(
        "partitions.replica_verification_tool", "compare the replicas of partitions, batch by batch"
    ),
    "kafka-log-dirs": KafkaTool("files.log_dirs_tool", "show the folders of brokers and what is in them"),
    "kafka-transactions": KafkaTool(
        "transactions.transactions_tool", "show transactions and their producers, and end those that hang"
    ),
    "kafka-groups": KafkaTool("groups.groups_tool", "list the groups of every kind"),
    "kafka-broker-api-versions": KafkaTool("cluster.api_versions_tool", "show the APIs that each broker speaks"),
    "kafka-cluster": KafkaTool("cluster.cluster_tool", "show the id of a cluster and its nodes, and forget a broker"),
    "kafka-features": KafkaTool("cluster.features_tool", "show and change the levels of a cluster's features"),
    "kafka-metadata-quorum": KafkaTool("cluster.quorum_tool", "show and change the quorum of controllers"),
    "kafka-client-metrics": KafkaTool("configs.client_metrics_tool", "say what clients are to report of themselves"),
    "kafka-leader-election": KafkaTool("moves.leader_election_tool", "elect leaders: the preferred ones, or any"),
    "kafka-preferred-replica-election": KafkaTool("moves.preferred_election_tool", "elect the preferred leaders"),
    "kafka-reassign-partitions": KafkaTool(
        "moves.reassign_partitions_tool", "move partitions to other brokers, and to other folders of theirs"
    ),
    "kafka-verifiable-producer": KafkaTool(
        "loads.verifiable_producer", "write numbers, and tell in JSON how each went"
    ),
    "kafka-verifiable-consumer": KafkaTool("loads.verifiable_consumer", "read in a group, and tell in JSON what comes"),
    "kafka-producer-perf-test": KafkaTool("loads.producer_perf_test", "measure how fast records are written"),
    "kafka-consumer-perf-test": KafkaTool("loads.consumer_perf_test", "measure how fast records are read"),
    "kafka-e2e-latency": KafkaTool("loads.end_to_end_latency", "measure how long records take from end to end"),
}
"""Each in a module of its own."""

ABSENT: Final[dict[str, str]] = {
    "kafka-acls": "access control lists",
    "kafka-delegation-tokens": "delegation tokens",
    "kafka-share-groups": "share groups",
    "kafka-console-share-consumer": "share groups",
    "kafka-share-consumer-perf-test": "share groups",
    "kafka-verifiable-share-consumer": "share groups",
    "kafka-streams-groups": "streams groups",
    "kafka-streams-application-reset": "Kafka Streams applications",
    "connect-distributed": "Kafka Connect",
    "connect-mirror-maker": "mirroring between clusters",
    "connect-plugin-path": "Kafka Connect",
    "connect-standalone": "Kafka Connect",
}
"""Tools of Kafka's that there is no tool for here yet, by what they are about."""

SCRIPT_SUFFIX: Final = ".sh"


def canonical_name(name: str) -> str:
    """The name in the catalogue: without `.sh`, and with `kafka-` where people leave that out."""
    name = name.removesuffix(SCRIPT_SUFFIX)
    known = TOOLS.keys() | ABSENT.keys()
    return f"kafka-{name}" if name not in known and f"kafka-{name}" in known else name
