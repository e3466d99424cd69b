"""Requests of administrators are answered alike by every broker, whichever node is the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID
from tests.cluster.clusters import QUICK, admin, create_topic, make_whole, serving, wait_until
from tests.nodes import Cluster
from tests.wire.batches import batch
from tests.wire.connection import Connection, response_of
from tests.wire.requests import OUTCOMES, REQUESTS, Context, Topic, error_codes, every_version
from tests.wire.test_client_quotas import EXACT, PRODUCED, USER, Alteration, described, require_altered
from tests.wire.test_config_resources import listed
from tests.wire.test_features import SAFE, UPGRADE, finalized, update
from tests.wire.test_log_dirs import describe, sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

FORWARDED = (
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ELECT_LEADERS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.UPDATE_FEATURES,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("admin"), settings=QUICK) as started:
        yield started
        make_whole(started)


@pytest.fixture
def connections(cluster: Cluster) -> Iterator[list[Connection]]:
    opened = [Connection(cluster[node_id].port) for node_id in cluster.nodes]
    yield opened
    for each in opened:
        each.close()


@pytest.mark.parametrize("api", FORWARDED, ids=lambda api: api.name)
def test_every_broker_asks_the_controller_in_every_version(
    cluster: Cluster, connections: list[Connection], topic: str, api: ApiKey
) -> None:
    create_topic(admin(cluster, 1), topic, 1)
    for version in [version for key, version in every_version() if key is api]:
        request = REQUESTS[api](Context(Topic(topic, ZERO_UUID), "free", version, batch()))
        for connection in connections:
            answer = connection.call(request, version, response_of(type(request)))
            assert set(error_codes(answer)) <= OUTCOMES.get(api, {Error.NONE})


def test_quotas_and_features_are_the_same_everywhere(connections: list[Connection], topic: str) -> None:
    entity = ((USER, topic),)
    for number, connection in enumerate(connections, start=1):
        require_altered(connection, Alteration(entity, {PRODUCED: float(number)}))
        for other in connections:
            wait_until(
                lambda other=other, number=number: (  # type: ignore[misc]
                    described(other, [(USER, EXACT, topic)]) == {entity: {PRODUCED: float(number)}}
                ),
                "the quota is described",
            )
    for connection, level in zip(connections, (0, 1, 0), strict=True):
        assert update(connection, [("streams.version", level, UPGRADE if level else SAFE)]).error_code == Error.NONE
        for other in connections:
            wait_until(
                lambda other=other, level=level: finalized(other).get("streams.version", 0) == level,  # type: ignore[misc]
                "the level is known",
            )


def test_every_broker_describes_its_own_folder_and_lists_all_brokers(
    cluster: Cluster, connections: list[Connection], topic: str
) -> None:
    create_topic(admin(cluster, 1), topic, 3)
    assert sorted(serving(cluster)) == sorted(cluster.nodes)
    found: list[tuple[str, int]] = []
    for node_id, connection in zip(cluster.nodes, connections, strict=True):
        (folder,) = describe(connection, {topic: [0, 1, 2]})
        assert folder.log_dir == str(cluster[node_id].data_dir)
        found += sizes(folder)
        brokers = {(ResourceType.BROKER, str(each)) for each in cluster.nodes}
        assert listed(connection, [ResourceType.BROKER]) == brokers
    assert sorted(found) == [(topic, index) for index in range(3)]


def test_a_broker_that_is_gone_is_unregistered_through_another_and_may_come_back(cluster: Cluster, topic: str) -> None:
    gone, asked = 3, 1
    with Connection(cluster[asked].port) as connection:

        def unregister() -> int:
            request = m.UnregisterBrokerRequest(broker_id=gone)
            return connection.call(request, 0, m.UnregisterBrokerResponse).error_code

        def known() -> set[tuple[int, str]]:
            return listed(connection, [ResourceType.BROKER])

        cluster.stop_node(gone)
        assert unregister() == Error.NONE
        wait_until(lambda: unregister() == Error.BROKER_ID_NOT_REGISTERED, "the broker is not known any more")
        create_topic(admin(cluster, asked), topic, 6)
        described_at = admin(cluster, asked).list_topics(topic, timeout=15).topics[topic].partitions.values()
        assert gone not in {replica for partition in described_at for replica in partition.replicas}
        cluster.start_node(gone)
        wait_until(lambda: (ResourceType.BROKER, str(gone)) in known(), "it has registered again")
