"""Kafka's command-line tools under the names of their scripts, as processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tools import apache_kafka

if TYPE_CHECKING:
    import subprocess

MAIN_CLASSES = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}
"""The last of them has no script: Kafka's own system tests copy messages in transactions with it."""
DEADLINE_S = 90.0

Row = dict[str, str]


class KafkaTools(NamedTuple):
    """The tools, pointed at one broker."""

    bootstrap: str

    def run(self, script: str, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as subprocess.run
        """What a tool printed on standard output; one that fails is a failure of the check."""
        done = self.attempt(script, *arguments, input=input)
        assert done.returncode == 0, f"{script} {arguments} returned {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(
        self,
        script: str,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - as subprocess.run
    ) -> subprocess.CompletedProcess[str]:
        """The same for a tool that may fail."""
        return attempt(script, "--bootstrap-server", self.bootstrap, *arguments, input=input)


def attempt(
    script: str,
    *words: str,
    input: str | None = None,  # noqa: A002 - as subprocess.run
) -> subprocess.CompletedProcess[str]:
    """Runs a tool with just these words: for one that knows brokers by another option, or by none."""
    return apache_kafka.run_tool(MAIN_CLASSES[script], *words, input=input, timeout=DEADLINE_S)


def table(text: str, first_column: str) -> list[Row]:
    """The rows of a table as the tools print them, from the line whose first word is this column's name."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if line.split()[0] == first_column), None)
    assert start is not None, f"no column {first_column} in:\n{text}"
    columns = lines[start].split()
    # Values have as many words as the names of their columns, but for what the last column holds.
    return [dict(zip(columns, line.split(None, len(columns) - 1), strict=False)) for line in lines[start + 1 :]]
