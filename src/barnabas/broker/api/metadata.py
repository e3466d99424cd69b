"""Metadata: the brokers of the cluster, by the caller's own listener, and the partitions of topics.

A topic that does not exist is answered UNKNOWN_TOPIC_OR_PARTITION, also while it is being created because somebody
asked for it: clients ask again.

v1 asks for all topics with null, and for none with an empty list · v4 may forbid creating topics · v5 lists offline
replicas · v7 gives leader epochs · v8 asks for permitted operations, the cluster's up to v10 · v9 is flexible ·
v10 answers topic ids · v12 asks by topic id · v13 has an error for the whole answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import topic_names
from barnabas.broker.api.cluster_view import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from barnabas.broker.api.metadata_answer import AnswerForm
from barnabas.broker.dispatch import handles
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from barnabas.broker.dispatch import Caller
    from barnabas.broker.server import Broker
    from barnabas.metadata.image import TopicImage
    from barnabas.protocol.uuids import Uuid

    ResponseTopic: TypeAlias = m.MetadataResponse.MetadataResponseTopic

FIRST_VERSION_WITH_NO_TOPICS = 1
FIRST_VERSION_WITH_TOPIC_IDS = 12
FIRST_VERSION_WITH_ANSWER_ERROR = 13


@handles(ApiKey.METADATA, versions=(0, 13))
async def metadata(broker: Broker, request: m.MetadataRequest, caller: Caller) -> m.MetadataResponse | bytes:
    if not is_well_formed(request, caller.api_version):
        return refuse(request, caller.api_version)
    image = broker.image
    form = AnswerForm(caller.api_version, caller.listener.name, request.include_topic_authorized_operations)
    encoder = broker.api.metadata.encoder(form)
    refused: list[ResponseTopic] = []
    if asks_for_all(request, caller.api_version):
        encoded, count = await encoder.all_topics(image), len(image.topics)
    else:
        found, refused = find_topics(broker, request)
        encoded, count = await encoder.topics(image, found), len(found) + len(refused)
    asks_for_operations = request.include_cluster_authorized_operations
    return encoder.answer(
        image,
        broker.node_id,
        count,
        [encoded, encoder.refused_topics(refused)],
        CLUSTER_OPERATIONS if asks_for_operations else OPERATIONS_NOT_ASKED_FOR,
    )


def asks_for_all(request: m.MetadataRequest, version: int) -> bool:
    return request.topics is None or (version < FIRST_VERSION_WITH_NO_TOPICS and not request.topics)


def is_well_formed(request: m.MetadataRequest, version: int) -> bool:
    """Whether every topic is named in a way that the version allows: with a name, from v12 on with a name or an id."""
    topics = request.topics or ()
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return all(topic.name is not None and topic.topic_id == ZERO_UUID for topic in topics)
    return all(topic.name is not None or topic.topic_id != ZERO_UUID for topic in topics)


def refuse(request: m.MetadataRequest, version: int) -> m.MetadataResponse:
    has_answer_error = version >= FIRST_VERSION_WITH_ANSWER_ERROR
    return m.MetadataResponse(
        topics=[
            m.MetadataResponse.MetadataResponseTopic(
                error_code=Error.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ],
        error_code=Error.INVALID_REQUEST if has_answer_error else Error.NONE,
    )


def find_topics(broker: Broker, request: m.MetadataRequest) -> tuple[list[TopicImage], list[ResponseTopic]]:
    """The topics asked for that exist, and an answer for each of the others. Ids, where given, go before names."""
    asked = request.topics or ()
    ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
    if ids:
        return find_by_id(broker, ids)
    names = dict.fromkeys(topic.name for topic in asked if topic.name is not None)
    found = [topic for name in names if (topic := broker.image.topics.get(name)) is not None]
    missing = [name for name in names if name not in broker.image.topics]
    if request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        broker.api.topic_creations.start(name for name in missing if topic_names.is_legal(name))
    return found, [refuse_name(name, request) for name in missing]


def find_by_id(broker: Broker, ids: Iterable[Uuid]) -> tuple[list[TopicImage], list[ResponseTopic]]:
    found, unknown = [], []
    for topic_id in ids:
        topic = broker.image.topics.by_id(topic_id)
        if topic is not None:
            found.append(topic)
        else:
            unknown.append(
                m.MetadataResponse.MetadataResponseTopic(
                    error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                )
            )
    return found, unknown


def refuse_name(name: str, request: m.MetadataRequest) -> ResponseTopic:
    asks_for_operations = request.include_topic_authorized_operations
    return m.MetadataResponse.MetadataResponseTopic(
        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION if topic_names.is_legal(name) else Error.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in topic_names.INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS if asks_for_operations else OPERATIONS_NOT_ASKED_FOR,
    )
