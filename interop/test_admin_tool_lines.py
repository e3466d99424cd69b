"""The tools for offsets, folders, groups, APIs, features, the quorum and transactions, beside Kafka's own."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers import running
from tools import apache_kafka

from barnabas.client.admin.cluster_state import describe_quorum
from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from interop.conftest import SETTINGS
from interop.tool_comparison import Places, compare, of_kafka, options_in, ours

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import PeerKind

HOUR_MS: Final = 3_600_000
GET_OFFSETS: Final = (
    "kafka-get-offsets --bootstrap-server BROKER --topic one",
    "kafka-get-offsets --bootstrap-server BROKER --exclude-internal-topics",
    "kafka-get-offsets --bootstrap-server BROKER",
    "kafka-get-offsets --bootstrap-server BROKER --topic one,two --time earliest",
    "kafka-get-offsets --bootstrap-server BROKER --topic one|two --time -3",
    "kafka-get-offsets --bootstrap-server BROKER --topic=one --partitions=0,2 --time=-1",
    "kafka-get-offsets --bootstrap-server BROKER --topic-partitions one:1-,two,:7 --time earliest-local",
    "kafka-get-offsets --bootstrap-server BROKER --topic-partitions one:-2 --time 1",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --time latest-tiered",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --time earliest-pending-upload",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --time 32503680000000",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --time -7",
    "kafka-get-offsets --bootstrap-server BROKER --topic none",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --partitions x",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --time yesterday",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --topic-partitions two",
    "kafka-get-offsets --bootstrap-server BROKER --topic-partitions one:0:1",
    "kafka-get-offsets --bootstrap-server BROKER --topic-partitions one:99999999999",
    "kafka-get-offsets --bootstrap-server BROKER --topic [",
    "kafka-get-offsets --bootstrap-server BROKER --nonsense",
    "kafka-get-offsets --bootstrap-server BROKER --topic one --topic two",
    "kafka-get-offsets --bootstrap-server BROKER --command-config FILES/none",
    "kafka-get-offsets --bootstrap-server nonsense",
    "kafka-get-offsets --topic one",
    "kafka-get-offsets --version",
)
DELETE_RECORDS: Final = (
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/offsets.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/unversioned.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/twice.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/version-2.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/no-partitions.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/no-offset.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/text-as-number.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/object-as-array.json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/no-json",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/empty",
    "kafka-delete-records --bootstrap-server BROKER --offset-json-file FILES/none",
    "kafka-delete-records --bootstrap-server BROKER",
    "kafka-delete-records --bootstrap-server nonsense --offset-json-file FILES/offsets.json",
)
LOG_DIRS: Final = (
    "kafka-log-dirs --bootstrap-server BROKER --describe",
    "kafka-log-dirs --bootstrap-server BROKER --describe --topic-list one,two --broker-list 1",
    "kafka-log-dirs --bootstrap-server BROKER --describe --topic-list none",
    "kafka-log-dirs --bootstrap-server BROKER --describe --broker-list 1,7,5",
    "kafka-log-dirs --bootstrap-server BROKER --describe --broker-list x",
    "kafka-log-dirs --bootstrap-server BROKER --describe --command-config FILES/patient.properties",
    "kafka-log-dirs --bootstrap-server BROKER --describe --command-config FILES/impatient.properties",
    "kafka-log-dirs --bootstrap-server BROKER",
    "kafka-log-dirs --describe",
)
OLD_ABORT: Final = "--producer-id 4000 --producer-epoch 0 --coordinator-epoch 0"
TRANSACTIONS: Final = (
    "kafka-transactions --bootstrap-server BROKER list",
    "kafka-transactions --bootstrap-server BROKER list --duration-filter 86400000",
    "kafka-transactions --bootstrap-server BROKER list --transactional-id-pattern op.*",
    "kafka-transactions --bootstrap-server BROKER list --transactional-id-pattern [",
    "kafka-transactions --bootstrap-server BROKER list --duration-filter x",
    "kafka-transactions --bootstrap-server BROKER describe --transactional-id done",
    "kafka-transactions --bootstrap-server BROKER describe --transactional-id nobody",
    "kafka-transactions --bootstrap-server BROKER describe",
    "kafka-transactions --bootstrap-server BROKER describe-producers --topic two --partition 0",
    "kafka-transactions --bootstrap-server BROKER describe-producers --topic one --partition 1 --broker-id 1",
    "kafka-transactions --bootstrap-server BROKER describe-producers --topic two --partition x",
    "kafka-transactions --bootstrap-server BROKER describe-producers",
    "kafka-transactions --bootstrap-server BROKER find-hanging --topic two",
    "kafka-transactions --bootstrap-server BROKER find-hanging --broker-id 1 --max-transaction-timeout 0",
    "kafka-transactions --bootstrap-server BROKER find-hanging --topic two --partition 0 --max-transaction-timeout 0",
    "kafka-transactions --bootstrap-server BROKER find-hanging --topic none",
    "kafka-transactions --bootstrap-server BROKER find-hanging --broker-id 1 --partition 0",
    "kafka-transactions --bootstrap-server BROKER find-hanging",
    "kafka-transactions --bootstrap-server BROKER abort --topic two --partition 0 --start-offset 77",
    "kafka-transactions --bootstrap-server BROKER abort --topic two --partition 0 --producer-id 7",
    "kafka-transactions --bootstrap-server BROKER abort --topic two --partition 0 --producer-id 7 --producer-epoch 0",
    "kafka-transactions --bootstrap-server BROKER abort --topic one --partition 2 --start-offset -1",
    "kafka-transactions --bootstrap-server BROKER abort --topic one --partition 2 " + OLD_ABORT,
    "kafka-transactions --bootstrap-server BROKER abort --topic two --partition 0",
    "kafka-transactions --bootstrap-server BROKER forceTerminateTransaction --transactionalId done",
    "kafka-transactions --bootstrap-server BROKER --command-config FILES/none list",
    "kafka-transactions --bootstrap-server BROKER",
    "kafka-transactions --bootstrap-server BROKER nonsense",
    "kafka-transactions list",
    "kafka-transactions --version",
)
GROUPS: Final = (
    "kafka-groups --bootstrap-server BROKER --list",
    "kafka-groups --bootstrap-server BROKER --list --consumer",
    "kafka-groups --bootstrap-server BROKER --list --share",
    "kafka-groups --bootstrap-server BROKER --list --streams",
    "kafka-groups --bootstrap-server BROKER --list --group-type Classic",
    "kafka-groups --bootstrap-server BROKER --list --protocol consumer --command-config FILES/patient.properties",
    "kafka-groups --bootstrap-server BROKER --list --group-type consumer --protocol consumer",
    "kafka-groups --bootstrap-server BROKER --list --group-type x",
    "kafka-groups --bootstrap-server BROKER --list --consumer --group-type classic",
    "kafka-groups --bootstrap-server BROKER",
    "kafka-groups --bootstrap-server nonsense --list",
    "kafka-groups --list",
)
CLUSTER: Final = (
    "kafka-broker-api-versions --bootstrap-server BROKER",
    "kafka-broker-api-versions --bootstrap-server BROKER --command-config FILES/patient.properties",
    "kafka-broker-api-versions --bootstrap-server nonsense",
    "kafka-broker-api-versions --bootstrap-server 127.0.0.1:1",
    "kafka-broker-api-versions --command-config FILES/patient.properties",
    "kafka-cluster cluster-id --bootstrap-server BROKER",
    "kafka-cluster cluster-id -C CONTROLLER --config FILES/patient.properties",
    "kafka-cluster cluster-id",
    "kafka-cluster cluster-id -b BROKER -C CONTROLLER",
    "kafka-cluster cluster-id -C BROKER",
    "kafka-cluster unregister -b BROKER --id 77",
    "kafka-cluster unregister -b BROKER --id x",
    "kafka-cluster unregister -b BROKER",
    "kafka-cluster list-endpoints --bootstrap-server BROKER --command-config FILES/patient.properties",
    "kafka-cluster list-endpoints --bootstrap-server BROKER --include-fenced-brokers",
    "kafka-cluster list-endpoints --bootstrap-controller CONTROLLER",
    "kafka-cluster list-endpoints --bootstrap-controller CONTROLLER --include-fenced-brokers",
    "kafka-cluster nonsense",
)
FEATURES: Final = (
    "kafka-features --bootstrap-server BROKER describe",
    "kafka-features --bootstrap-controller CONTROLLER describe --node-id 1",
    "kafka-features --bootstrap-controller BROKER describe",
    "kafka-features --bootstrap-server BROKER describe --node-id -1",
    "kafka-features --bootstrap-server BROKER --bootstrap-controller CONTROLLER describe",
    "kafka-features describe",
    "kafka-features --bootstrap-server BROKER",
    "kafka-features --bootstrap-server BROKER upgrade --feature share.version=1 --dry-run",
    "kafka-features --bootstrap-server BROKER upgrade --feature share.version=9 --feature group.version=1",
    "kafka-features --bootstrap-server BROKER upgrade --feature share.version=x",
    "kafka-features --bootstrap-server BROKER upgrade --feature share.version=0",
    "kafka-features --bootstrap-server BROKER upgrade --feature nonsense=1",
    "kafka-features --bootstrap-server BROKER upgrade",
    "kafka-features --bootstrap-server BROKER upgrade --release-version 4.3 --dry-run",
    "kafka-features --bootstrap-server BROKER upgrade --release-version 4.4",
    "kafka-features --bootstrap-server BROKER upgrade --metadata 9.9",
    "kafka-features --bootstrap-server BROKER --command-config FILES/patient.properties downgrade --metadata 3.9",
    "kafka-features --bootstrap-server BROKER downgrade --release-version 4.0 --unsafe --dry-run",
    "kafka-features --bootstrap-server BROKER downgrade --feature streams.version=0",
    "kafka-features --bootstrap-controller CONTROLLER upgrade --feature streams.version=1",
    "kafka-features --bootstrap-server BROKER disable --feature streams.version --dry-run --unsafe",
    "kafka-features --bootstrap-server BROKER disable --feature metadata.version",
    "kafka-features version-mapping --release-version 4.0",
    "kafka-features version-mapping --release-version 9",
    "kafka-features feature-dependencies --feature eligible.leader.replicas.version=1 --feature metadata.version=30",
    "kafka-features feature-dependencies --feature share.version=5",
)
QUORUM: Final = (
    "kafka-metadata-quorum --bootstrap-server BROKER describe --status",
    "kafka-metadata-quorum --bootstrap-controller CONTROLLER describe --status",
    "kafka-metadata-quorum --bootstrap-server BROKER describe --replication",
    "kafka-metadata-quorum --bootstrap-controller CONTROLLER describe --replication --human-readable",
    "kafka-metadata-quorum --bootstrap-server BROKER describe --status --human-readable",
    "kafka-metadata-quorum --bootstrap-server BROKER describe --status --replication",
    "kafka-metadata-quorum --bootstrap-server BROKER describe",
    "kafka-metadata-quorum describe --status",
    "kafka-metadata-quorum --bootstrap-server BROKER add-controller",
    "kafka-metadata-quorum --bootstrap-server BROKER --command-config FILES/patient.properties add-controller",
    "kafka-metadata-quorum --bootstrap-server BROKER --command-config FILES/broker.properties add-controller",
    "kafka-metadata-quorum --bootstrap-server BROKER --command-config FILES/other.properties add-controller --dry-run",
    "kafka-metadata-quorum --bootstrap-server BROKER remove-controller -i 3 -d AAAAAAAAAAAAAAAAAAAAAw --dry-run",
    "kafka-metadata-quorum --bootstrap-server BROKER remove-controller -i 3 -d AAAAAAAAAAAAAAAAAAAAAw",
    "kafka-metadata-quorum --bootstrap-server BROKER remove-controller -i -3 -d AAAAAAAAAAAAAAAAAAAAAw",
    "kafka-metadata-quorum --bootstrap-server BROKER remove-controller --controller-id 3 --controller-directory-id A",
    "kafka-metadata-quorum --bootstrap-server BROKER remove-controller",
)
COMMAND_LINES: Final = (
    *GET_OFFSETS,
    *DELETE_RECORDS,
    *LOG_DIRS,
    *TRANSACTIONS,
    *GROUPS,
    *CLUSTER,
    *FEATURES,
    *QUORUM,
)
"""In this order: the last ones change what the first ones look at."""

HELPS: Final = (
    "kafka-get-offsets --help",
    "kafka-delete-records --help",
    "kafka-log-dirs --help",
    "kafka-groups --help",
    "kafka-broker-api-versions --help",
    "kafka-replica-verification --help",
    "kafka-transactions --help",
    "kafka-transactions --bootstrap-server BROKER list --help",
    "kafka-transactions --bootstrap-server BROKER describe --help",
    "kafka-transactions --bootstrap-server BROKER describe-producers --help",
    "kafka-transactions --bootstrap-server BROKER abort --help",
    "kafka-transactions --bootstrap-server BROKER find-hanging --help",
    "kafka-transactions --bootstrap-server BROKER forceTerminateTransaction --help",
    "kafka-cluster --help",
    "kafka-cluster cluster-id --help",
    "kafka-cluster unregister --help",
    "kafka-cluster list-endpoints --help",
    "kafka-features --help",
    "kafka-features describe --help",
    "kafka-features upgrade --help",
    "kafka-features downgrade --help",
    "kafka-features disable --help",
    "kafka-features version-mapping --help",
    "kafka-features feature-dependencies --help",
    "kafka-metadata-quorum --help",
    "kafka-metadata-quorum --bootstrap-server BROKER describe --help",
    "kafka-metadata-quorum --bootstrap-server BROKER add-controller --help",
    "kafka-metadata-quorum --bootstrap-server BROKER remove-controller --help",
)


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """A broker of each kind, with topics, groups, and a transaction that is open."""
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    files = tmp_path_factory.mktemp("files")
    write_files(files)
    kind = cast("PeerKind", request.param)
    with running(kind, tmp_path_factory.mktemp(kind), SETTINGS) as peer, contextlib.ExitStack() as held:
        fill(peer.bootstrap, held)
        with Cluster.connect(ClientSettings.from_options({"bootstrap.servers": peer.bootstrap})) as cluster:
            ((controller,),) = describe_quorum(cluster).listeners.values()
        yield Places(peer.bootstrap, f"{controller.host}:{controller.port}", files)


@pytest.mark.parametrize("command_line", COMMAND_LINES)
def test_a_tool_says_what_kafkas_own_says(places: Places, command_line: str) -> None:
    # The partitions of a result are in an order that changes from run to run.
    compare(places.words(command_line), in_any_order=command_line in DELETE_RECORDS)


@pytest.mark.parametrize("command_line", HELPS)
def test_a_tool_has_every_option_that_kafkas_own_lists(command_line: str) -> None:
    words = command_line.replace("BROKER", "localhost:9092").split()
    theirs, mine = of_kafka(words), ours(words)
    listed = options_in(theirs.out + theirs.err)
    assert listed, f"no option in:\n{theirs.out}{theirs.err}"
    assert listed <= options_in(mine.out + mine.err)
    assert mine.code == theirs.code


def fill(bootstrap: str, held: contextlib.ExitStack) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("one", 3, 1), NewTopic("two", 1, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce("one", f"value {number}", partition=number % 2)
    producer.produce("two", "value")
    producer.flush()
    for group, protocol in (("classic-group", "classic"), ("consumer-group", "consumer")):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["one"])
        read = 0
        while read < 10:
            read += len(consumer.consume(10, 1.0))
        consumer.commit(asynchronous=False)
        consumer.close()
    alone = Consumer({"bootstrap.servers": bootstrap, "group.id": "simple-group"})
    alone.commit(offsets=[TopicPartition("one", 0, 1)], asynchronous=False)
    alone.close()
    begin(bootstrap, "done", "one").commit_transaction()
    opened = begin(bootstrap, "open", "two")
    held.callback(opened.abort_transaction)


def begin(bootstrap: str, transactional_id: str, topic: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": HOUR_MS // 4}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "value", partition=0)
    producer.flush()
    return producer


def write_files(folder: Path) -> None:
    def offsets(name: str, *partitions: object, **other: object) -> None:
        (folder / name).write_text(json.dumps({"partitions": list(partitions), **other}))

    one = {"topic": "one", "partition": 0, "offset": 2}
    offsets("offsets.json", one, {**one, "partition": 2, "offset": 5}, {**one, "partition": 1, "offset": -1}, version=1)
    offsets("unversioned.json", {**one, "offset": 3})
    offsets("twice.json", one, {**one, "partition": 1}, {**one, "offset": 3}, version=1)
    offsets("version-2.json", one, version=2)
    offsets("no-offset.json", {"topic": "one", "partition": 0})
    offsets("text-as-number.json", {**one, "partition": "0"})
    (folder / "no-partitions.json").write_text("{}")
    (folder / "object-as-array.json").write_text(json.dumps({"partitions": {"topic": "one"}}))
    (folder / "no-json").write_text("offsets")
    (folder / "empty").write_text("")
    (folder / "patient.properties").write_text("default.api.timeout.ms=20000\nrequest.timeout.ms=10000\n")
    (folder / "impatient.properties").write_text("default.api.timeout.ms=20000\n")
    (folder / "broker.properties").write_text("node.id=9\nprocess.roles=broker\n")
    (folder / "meta.properties").write_text(
        "version=1\ncluster.id=any\nnode.id=9\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAw\n"
    )
    controller = {
        "node.id": "9",
        "process.roles": "controller",
        "log.dirs": str(folder),
        "controller.listener.names": "CONTROLLER,OTHER",
        "listeners": "CONTROLLER://localhost:9393,OTHER://[::1]:9394",
    }
    (folder / "other.properties").write_text("".join(f"{key}={value}\n" for key, value in controller.items()))
