"""Decisions on feature levels that a cluster of the newest levels does not come to."""

from __future__ import annotations

import pytest

from barnabas.metadata import versions
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.controller.cluster import Cluster, directory

UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(cluster: Cluster, feature: str, level: int, kind: int = UPGRADE) -> m.UpdateFeaturesResponse:
    request = m.UpdateFeaturesRequest
    key = request.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    response: m.UpdateFeaturesResponse = cluster.send(request(feature_updates=[key]))
    return response


def at(level: int) -> Cluster:
    """A cluster without eligible leader replicas whose metadata.version is an old one."""
    cluster = Cluster(brokers=0)
    for feature, old in ((versions.ELR_FEATURE, 0), (versions.FEATURE_NAME, level)):
        cluster.append([versions.VersionedRecord(m.FeatureLevelRecord(name=feature, feature_level=old), 0)])
    cluster.start_broker(1)
    return cluster


def test_the_metadata_version_is_raised_and_not_lowered_again_past_new_kinds_of_records() -> None:
    cluster = at(28)
    assert update(cluster, versions.FEATURE_NAME, 29).error_code == Error.NONE
    assert update(cluster, versions.FEATURE_NAME, 24, SAFE_DOWNGRADE).error_code == Error.NONE
    assert update(cluster, versions.FEATURE_NAME, 22, SAFE_DOWNGRADE).error_code == Error.INVALID_UPDATE_VERSION
    assert cluster.state.features.metadata_version == 24


def test_a_level_that_a_broker_does_not_support_is_refused() -> None:
    cluster = at(28)
    feature = m.BrokerRegistrationRequest.Feature
    old = feature(name="metadata.version", min_supported_version=7, max_supported_version=28)
    for each in ("group.version", "share.version", "streams.version", "transaction.version"):
        assert update(cluster, each, 0, SAFE_DOWNGRADE).error_code == Error.NONE
    cluster.start_broker(2, features=[old])
    response = update(cluster, versions.FEATURE_NAME, 29)
    assert response.error_code == Error.INVALID_UPDATE_VERSION
    assert "Broker 2 only supports versions 7-28" in (response.error_message or "")
    assert "Broker 2 does not support this feature." in (update(cluster, versions.ELR_FEATURE, 1).error_message or "")


def test_eligible_leader_replicas_need_their_metadata_version_and_one_min_isr() -> None:
    cluster = at(22)
    assert update(cluster, versions.ELR_FEATURE, 1).error_code == Error.INVALID_UPDATE_VERSION
    assert update(cluster, versions.FEATURE_NAME, 30).error_code == Error.NONE
    record = m.ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="2")
    cluster.append([versions.VersionedRecord(record, 0)])
    assert update(cluster, versions.ELR_FEATURE, 1).error_code == Error.NONE
    assert cluster.state.features.is_elr_enabled
    configs = cluster.state.metadata.configs
    assert configs.of_broker("") == {"min.insync.replicas": "1"}
    assert configs.of_broker(1) == {}


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_kraft_version_stays_as_it_is(kraft_version: int) -> None:
    cluster = Cluster()
    cluster.kraft_version = kraft_version
    assert update(cluster, versions.KRAFT_FEATURE, kraft_version).error_code == Error.NONE
    assert update(cluster, versions.KRAFT_FEATURE, 1 - kraft_version, 1 + kraft_version).error_code != Error.NONE


def test_a_broker_that_registers_again_after_the_upgrade_is_known_with_its_directories() -> None:
    cluster = at(16)
    assert cluster.state.brokers[1].directories == ()
    assert update(cluster, versions.FEATURE_NAME, 30).error_code == Error.NONE
    incarnation = cluster.state.brokers[1].incarnation_id
    cluster.send(cluster.registration(1, incarnation_id=incarnation))
    broker = cluster.state.brokers[1]
    assert (broker.directories, broker.fenced) == ((directory(1),), False)
