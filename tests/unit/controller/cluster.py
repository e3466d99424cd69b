"""A controller without a log: decisions are applied as soon as they are made, and their records kept."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from barnabas.config.broker_config import BrokerConfig
from barnabas.controller.config_rules import BrokerConfigRules
from barnabas.controller.decisions.activation import activation_records
from barnabas.controller.decisions.broker_transitions import fence
from barnabas.controller.decisions.context import Context, Settings
from barnabas.controller.decisions.controller_state import ControllerState
from barnabas.controller.decisions.decide import decide
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.metadata.snapshot_records import bootstrap_records
from barnabas.metadata.versions import SUPPORTED_FEATURES, VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.metadata_records import encode_record
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONFIG, _ = BrokerConfig.for_single_node(data_dir="/nowhere")
RULES = BrokerConfigRules(CONFIG)


class Counting:
    """Ids that count up, and chance that always says zero."""

    def __init__(self) -> None:
        self._count = 1000

    def uuid(self) -> Uuid:
        self._count += 1
        return Uuid(self._count.to_bytes(16, "big"))

    def below(self, limit: int) -> int:
        assert limit > 0
        return 0


def directory(broker_id: int) -> Uuid:
    return Uuid(bytes([0xD0, broker_id]) + bytes(14))


class Cluster:
    """One controller and any number of brokers that do as the test says."""

    def __init__(self, *, brokers: int = 1, **settings: Any) -> None:
        self.settings = Settings(node_id=1, cluster_id=CLUSTER_ID, **settings)
        self.random = Counting()
        self.kraft_version = 1
        self.now_ms = 1_000_000
        self.offset = 0
        self.records: list[VersionedRecord] = []
        self.state = ControllerState(MetadataImage(CLUSTER_ID), self.now_ms)
        image = MetadataImage(CLUSTER_ID)
        self.append(activation_records(image, bootstrap_records(), is_in_transaction=False, min_insync_replicas=1))
        for broker_id in range(1, brokers + 1):
            self.start_broker(broker_id)

    def append(self, records: list[VersionedRecord]) -> None:
        for record, version in records:
            encode_record(record, version)
        self.state.apply(records, self.offset, self.now_ms)
        self.records += records
        self.offset += len(records)

    def context(self) -> Context:
        return Context(self.now_ms, self.offset, self.random, RULES, self.settings, self.kraft_version)

    def send(self, request: Message) -> Any:
        """The response to a request. `last` then holds the records that it wrote."""
        decision = decide(self.state, request, self.context())
        if decision.contact is not None:
            self.state.touch(decision.contact)
        records = [*decision.records, *chain.from_iterable(decision.parts)]
        self.append(records)
        self.last = [record.message for record in records]
        return decision.response

    def expire_sessions(self) -> None:
        while expired := self.state.expired_brokers(self.now_ms, self.settings):
            self.append(list(chain.from_iterable(fence(self.state, self.settings, self.state.brokers[expired[0]]))))

    def registration(self, broker_id: int, **fields: Any) -> m.BrokerRegistrationRequest:
        request = m.BrokerRegistrationRequest
        defaults: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "incarnation_id": self.random.uuid(),
            "listeners": [request.Listener(name="PLAINTEXT", host="localhost", port=9090 + broker_id)],
            "features": [
                request.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            "log_dirs": [directory(broker_id)],
        }
        return request(broker_id=broker_id, **{**defaults, **fields})

    def heartbeat(self, broker_id: int, **fields: Any) -> m.BrokerHeartbeatResponse:
        request = m.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.state.brokers[broker_id].epoch,
            current_metadata_offset=fields.pop("current_metadata_offset", self.offset - 1),
            **fields,
        )
        response: m.BrokerHeartbeatResponse = self.send(request)
        return response

    def start_broker(self, broker_id: int, **fields: Any) -> None:
        response = self.send(self.registration(broker_id, **fields))
        assert response.error_code == 0, response
        self.heartbeat(broker_id)

    def begin_leadership(self) -> None:
        """What a node does that was killed and started again: the state is built anew from the log."""
        image = self.state.metadata.freeze(offset=self.offset - 1, epoch=1, timestamp_ms=0)
        self.state = ControllerState(image, self.now_ms)

    def stop_broker(self, broker_id: int) -> None:
        """A clean shutdown, as a broker does it."""
        while not self.heartbeat(broker_id, want_shut_down=True).should_shut_down:
            for other in self.state.brokers.values():
                if other.is_active:
                    self.heartbeat(other.id)

    def restart_cleanly(self, broker_id: int) -> None:
        epoch = self.state.brokers[broker_id].epoch
        self.stop_broker(broker_id)
        self.start_broker(broker_id, previous_broker_epoch=epoch)

    def create_topic(self, name: str, partitions: int = 1, factor: int = 1, **configs: Any) -> TopicImage:
        response = self.send(creation(name, partitions, factor, **configs))
        assert response.topics[0].error_code == 0, response
        return self.topic(name)

    def topic(self, name: str) -> TopicImage:
        topic = self.state.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str, partition_id: int = 0) -> PartitionImage:
        return self.topic(name).partitions[partition_id]


def creation(
    name: str, partitions: int = 1, factor: int = 1, *, validate_only: bool = False, **configs: str | None
) -> m.CreateTopicsRequest:
    """A CreateTopics request; `_` in the names of configs stands for a dot."""
    request = m.CreateTopicsRequest
    return request(
        topics=[
            request.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=factor,
                configs=[
                    request.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
