"""kafka-run-class: the tools by the names of Kafka's classes, those of today and those that tutorials still name."""

from __future__ import annotations

from typing import Final

from barnabas.cli.kafka.tool import ToolError, ToolUsageError

_USAGE: Final = "USAGE: kafka-run-class [-daemon] [-name servicename] [-loggc] classname [opts]"
_PACKAGE: Final = "org.apache.kafka.tools"

CLASSES: Final[dict[str, str]] = {
    f"{_PACKAGE}.BrokerApiVersionsCommand": "kafka-broker-api-versions",
    f"{_PACKAGE}.ClientMetricsCommand": "kafka-client-metrics",
    f"{_PACKAGE}.ClusterTool": "kafka-cluster",
    f"{_PACKAGE}.ConsoleProducer": "kafka-console-producer",
    f"{_PACKAGE}.ConsumerPerformance": "kafka-consumer-perf-test",
    f"{_PACKAGE}.DelegationTokenCommand": "kafka-delegation-tokens",
    f"{_PACKAGE}.DeleteRecordsCommand": "kafka-delete-records",
    f"{_PACKAGE}.DumpLogSegments": "kafka-dump-log",
    f"{_PACKAGE}.EndToEndLatency": "kafka-e2e-latency",
    f"{_PACKAGE}.FeatureCommand": "kafka-features",
    f"{_PACKAGE}.GetOffsetShell": "kafka-get-offsets",
    f"{_PACKAGE}.GroupsCommand": "kafka-groups",
    f"{_PACKAGE}.LeaderElectionCommand": "kafka-leader-election",
    f"{_PACKAGE}.LogDirsCommand": "kafka-log-dirs",
    f"{_PACKAGE}.MetadataQuorumCommand": "kafka-metadata-quorum",
    f"{_PACKAGE}.ProducerPerformance": "kafka-producer-perf-test",
    f"{_PACKAGE}.ReplicaVerificationTool": "kafka-replica-verification",
    f"{_PACKAGE}.StreamsResetter": "kafka-streams-application-reset",
    f"{_PACKAGE}.TopicCommand": "kafka-topics",
    f"{_PACKAGE}.TransactionsCommand": "kafka-transactions",
    f"{_PACKAGE}.VerifiableConsumer": "kafka-verifiable-consumer",
    f"{_PACKAGE}.VerifiableProducer": "kafka-verifiable-producer",
    f"{_PACKAGE}.consumer.ConsoleConsumer": "kafka-console-consumer",
    f"{_PACKAGE}.consumer.ConsoleShareConsumer": "kafka-console-share-consumer",
    f"{_PACKAGE}.consumer.group.ConsumerGroupCommand": "kafka-consumer-groups",
    f"{_PACKAGE}.consumer.group.ShareGroupCommand": "kafka-share-groups",
    f"{_PACKAGE}.reassign.ReassignPartitionsCommand": "kafka-reassign-partitions",
    f"{_PACKAGE}.streams.StreamsGroupCommand": "kafka-streams-groups",
    "org.apache.kafka.shell.MetadataShell": "kafka-metadata-shell",
    "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka": "zookeeper-shell",
    "org.apache.zookeeper.server.quorum.QuorumPeerMain": "zookeeper-server-start",
    "kafka.Kafka": "kafka-server-start",
    "kafka.admin.AclCommand": "kafka-acls",
    "kafka.admin.BrokerApiVersionsCommand": "kafka-broker-api-versions",
    "kafka.admin.ConfigCommand": "kafka-configs",
    "kafka.admin.ConsumerGroupCommand": "kafka-consumer-groups",
    "kafka.admin.DelegationTokenCommand": "kafka-delegation-tokens",
    "kafka.admin.DeleteRecordsCommand": "kafka-delete-records",
    "kafka.admin.FeatureCommand": "kafka-features",
    "kafka.admin.LeaderElectionCommand": "kafka-leader-election",
    "kafka.admin.LogDirsCommand": "kafka-log-dirs",
    "kafka.admin.MetadataQuorumCommand": "kafka-metadata-quorum",
    "kafka.admin.PreferredReplicaLeaderElectionCommand": "kafka-preferred-replica-election",
    "kafka.admin.ReassignPartitionsCommand": "kafka-reassign-partitions",
    "kafka.admin.TopicCommand": "kafka-topics",
    "kafka.tools.ClusterTool": "kafka-cluster",
    "kafka.tools.ConsoleConsumer": "kafka-console-consumer",
    "kafka.tools.ConsoleProducer": "kafka-console-producer",
    "kafka.tools.ConsumerPerformance": "kafka-consumer-perf-test",
    "kafka.tools.DumpLogSegments": "kafka-dump-log",
    "kafka.tools.EndToEndLatency": "kafka-e2e-latency",
    "kafka.tools.GetOffsetShell": "kafka-get-offsets",
    "kafka.tools.ProducerPerformance": "kafka-producer-perf-test",
    "kafka.tools.ReplicaVerificationTool": "kafka-replica-verification",
    "kafka.tools.StorageTool": "kafka-storage",
    "kafka.tools.StreamsResetter": "kafka-streams-application-reset",
    "kafka.tools.TransactionsCommand": "kafka-transactions",
    "kafka.tools.VerifiableConsumer": "kafka-verifiable-consumer",
    "kafka.tools.VerifiableProducer": "kafka-verifiable-producer",
}
"""The tool of each class."""

_ALONE: Final = ("-daemon", "-loggc")


def run(words: list[str]) -> int:
    rest = list(words)
    while rest and (rest[0] in _ALONE or rest[0] == "-name"):
        del rest[: 1 if rest[0] in _ALONE else 2]
    if not rest:
        raise ToolUsageError(_USAGE, is_error_output=False)
    class_name, *arguments = rest
    tool = CLASSES.get(class_name)
    if tool is None:
        raise ToolError(
            f"Error: Could not find or load main class {class_name}",
            hint="no Java is run here; `barnabas kafka` lists the tools that there are",
        )
    if tool == "kafka-server-start" and "-daemon" in words:
        arguments.insert(0, "-daemon")
    from barnabas.cli.kafka.kafka_command import run_tool

    return run_tool(tool, arguments)
