"""Metadata: the brokers of the cluster, by the caller's own listener, and the partitions of topics.

A topic that does not exist is answered with UNKNOWN_TOPIC_OR_PARTITION, even while the request itself has caused its
creation: clients retry.

v1 asks for all topics with null, and for none with an empty list · v4 may forbid creating topics · v5 lists offline
replicas · v7 gives leader epochs · v8 asks for permitted operations, the cluster's up to v10 · v9 is flexible ·
v10 answers topic ids · v12 asks by topic id · v13 has an error for the whole answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.api.admin.metadata_answer import AnswerForm
from barnabas.broker.api.admin.topic_creations import IN_FLIGHT_MAX
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.metadata import topic_names
from barnabas.net.large_requests import NAME_BYTES, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from typing import TypeAlias

    from barnabas.metadata.image import MetadataImage, TopicImage
    from barnabas.net.dispatch import Caller, Handler
    from barnabas.net.large_requests import LargeRequest
    from barnabas.protocol.uuids import Uuid

    ResponseTopic: TypeAlias = m.MetadataResponse.MetadataResponseTopic

FIRST_VERSION_WITH_NO_TOPICS = 1
FIRST_VERSION_WITH_TOPIC_IDS = 12
FIRST_VERSION_WITH_ANSWER_ERROR = 13


async def metadata_of_many(
    handler: Handler,  # noqa: ARG001 (the pieces are answered here)
    environment: AdminEnvironment,
    request: LargeRequest,
    caller: Caller,
) -> Any:
    """The same as `metadata`, in pieces: all from one image, and each topic once."""
    version, image = caller.api_version, environment.metadata.image
    named = HOW_NOTHING_IS_NAMED

    def look(piece: m.MetadataRequest) -> None:
        nonlocal named
        named = how_topics_are_named(piece, named)

    await request.check(look)
    if not named.is_accepted(version):
        async for piece in request.pieces():
            await request.add(refuse(piece, version).topics)
        return refuse(request.root, version)
    asked: m.MetadataRequest = request.root
    encoder = environment.answers.encoder(form_of(asked, caller))
    seen: set[str | Uuid] = set()
    async for piece in request.pieces():
        if asks_for_all(piece, version):
            await request.add_encoded([await encoder.all_topics(image)], len(image.topics))
            break
        before = len(seen)
        find = find_by_id if named.any_has_id else find_by_name
        found, refused = find(environment, image, piece, seen)
        await request.charge((len(seen) - before) * NAME_BYTES)
        await request.add_encoded([await encoder.topics(image, found)], len(found))
        await request.add(refused)
        if len(seen) > IN_FLIGHT_MAX:
            # This is how many are created at a time: one request does not start one round of creations after another.
            asked.allow_auto_topic_creation = False
    await request.forget(seen)
    return encoder.around_topics(image, environment.node_id, cluster_operations(asked))


@handles(
    ApiKey.METADATA,
    AdminEnvironment,
    versions=(0, 13),
    cuts=[Cut(("topics",), ("topics",))],
    large_handler=metadata_of_many,
)
async def metadata(
    environment: AdminEnvironment, request: m.MetadataRequest, caller: Caller
) -> m.MetadataResponse | list[bytes]:
    named = how_topics_are_named(request, HOW_NOTHING_IS_NAMED)
    if not named.is_accepted(caller.api_version):
        return refuse(request, caller.api_version)
    image = environment.metadata.image
    encoder = environment.answers.encoder(form_of(request, caller))
    refused: list[ResponseTopic] = []
    if asks_for_all(request, caller.api_version):
        encoded, count = await encoder.all_topics(image), len(image.topics)
    else:
        find = find_by_id if named.any_has_id else find_by_name
        found, refused = find(environment, image, request, set())
        encoded, count = await encoder.topics(image, found), len(found) + len(refused)
    return encoder.answer_parts(
        image, environment.node_id, count, [encoded, encoder.refused_topics(refused)], cluster_operations(request)
    )


def form_of(request: m.MetadataRequest, caller: Caller) -> AnswerForm:
    return AnswerForm(caller.api_version, caller.listener.name, request.include_topic_authorized_operations)


def cluster_operations(request: m.MetadataRequest) -> int:
    return CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED_FOR


def asks_for_all(request: m.MetadataRequest, version: int) -> bool:
    return request.topics is None or (version < FIRST_VERSION_WITH_NO_TOPICS and not request.topics)


class Named(NamedTuple):
    """How a request names its topics."""

    all_have_names: bool
    any_has_id: bool

    def is_accepted(self, version: int) -> bool:
        """With a name each, or from v12 on by id: then those without an id are not asked for."""
        if version < FIRST_VERSION_WITH_TOPIC_IDS:
            return self.all_have_names and not self.any_has_id
        return self.all_have_names or self.any_has_id


HOW_NOTHING_IS_NAMED = Named(all_have_names=True, any_has_id=False)


def how_topics_are_named(request: m.MetadataRequest, before: Named) -> Named:
    """`before` is how those of the pieces before were."""
    topics = request.topics or ()
    return Named(
        before.all_have_names and all(topic.name is not None for topic in topics),
        before.any_has_id or any(topic.topic_id != ZERO_UUID for topic in topics),
    )


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


def find_by_name(
    environment: AdminEnvironment, image: MetadataImage, request: m.MetadataRequest, seen: set[str | Uuid]
) -> tuple[list[TopicImage], list[ResponseTopic]]:
    """The requested topics that exist, and an answer for each of the others. Topics in `seen` are left out."""
    found: list[TopicImage] = []
    missing: list[str] = []
    for asked in request.topics or ():
        name = asked.name
        if name is None or name in seen:
            continue
        seen.add(name)
        topic = image.topics.get(name)
        if topic is None:
            missing.append(name)
        else:
            found.append(topic)
    if request.allow_auto_topic_creation and environment.settings.config.auto_create_topics_enable:
        environment.topic_creations.start(name for name in missing if topic_names.is_legal(name))
    return found, [refuse_name(name, request) for name in missing]


def find_by_id(
    environment: AdminEnvironment,  # noqa: ARG001 (as `find_by_name`)
    image: MetadataImage,
    request: m.MetadataRequest,
    seen: set[str | Uuid],
) -> tuple[list[TopicImage], list[ResponseTopic]]:
    """The same by id: if any id is given, names are ignored."""
    found: list[TopicImage] = []
    unknown: list[ResponseTopic] = []
    for asked in request.topics or ():
        topic_id = asked.topic_id
        if topic_id == ZERO_UUID or topic_id in seen:
            continue
        seen.add(topic_id)
        topic = image.topics.by_id(topic_id)
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
