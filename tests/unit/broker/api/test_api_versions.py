"""ApiVersions: what is listed, to whom, and how a request that is too new learns what to ask."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.api.api_versions import api_versions
from barnabas.broker.api.registry import ROUTES, register_all
from barnabas.metadata.versions import SUPPORTED_FEATURES
from barnabas.net.api_versions import answer, unsupported_version_reply
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import a_broker, an_image, caller

register_all()


def ask(version: int, name: str = "librdkafka", software_version: str = "2.6.0") -> m.ApiVersionsResponse:
    async def asked() -> m.ApiVersionsResponse:
        request = m.ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
        response = api_versions(a_broker(an_image(offset=79)).versions, request, caller(version))
        return codec.decode(m.ApiVersionsResponse, response, version) if isinstance(response, bytes) else response

    return asyncio.run(asked())


@pytest.mark.parametrize("version", range(5))
def test_every_registered_api_is_listed_in_the_order_of_keys(version: int) -> None:
    listed = [key.api_key for key in ask(version).api_keys]
    assert listed == sorted(ROUTES)
    assert {ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR} <= {*listed}


def test_the_versions_are_those_that_kafka_serves() -> None:
    for key in ask(4).api_keys:
        if key.api_key != ApiKey.PRODUCE:
            api = APIS[key.api_key]
            assert (key.min_version, key.max_version) == (api.min_version, api.max_version), api.key


def test_produce_is_offered_from_version_0_on() -> None:
    (produce_key,) = [key for key in ask(0).api_keys if key.api_key == ApiKey.PRODUCE]
    assert (produce_key.min_version, produce_key.max_version) == (0, 13)


def test_features_that_start_at_0_are_kept_from_older_clients() -> None:
    assert [feature.name for feature in ask(3).supported_features] == ["metadata.version"]
    assert {"metadata.version", "group.version", "transaction.version"} <= {
        feature.name for feature in ask(4).supported_features
    }


def test_finalized_features_come_with_the_offset_of_the_image() -> None:
    response = ask(3)
    assert response.finalized_features_epoch == 79
    levels = {f.name: (f.min_version_level, f.max_version_level) for f in response.finalized_features}
    assert levels == {"metadata.version": (30, 30), "group.version": (1, 1), "kraft.version": (1, 1)}


def test_a_quorum_whose_log_does_not_name_its_voters_has_no_finalized_level() -> None:
    finalized = an_image().features.levels(kraft_version=0)
    response = answer(ROUTES, 3, supported=SUPPORTED_FEATURES, finalized=finalized, finalized_epoch=79)
    assert [feature.name for feature in response.finalized_features] == ["group.version", "metadata.version"]


def test_the_answer_is_encoded_once_for_an_image() -> None:
    async def ask_thrice() -> None:
        broker = a_broker(an_image())
        request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
        first = api_versions(broker.versions, request, caller(3))
        assert api_versions(broker.versions, request, caller(3)) is first
        broker.image = broker.publisher.image = an_image(offset=80)
        assert api_versions(broker.versions, request, caller(3)) != first

    asyncio.run(ask_thrice())


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1."), ("ä", "1")]
)
def test_software_must_be_named_in_letters_digits_dots_and_dashes(name: str, version: str) -> None:
    response = ask(3, name, version)
    assert (response.error_code, response.api_keys) == (Error.INVALID_REQUEST, [])


def test_older_clients_need_not_name_their_software() -> None:
    assert ask(2, "", "").error_code == Error.NONE


def test_a_version_that_is_not_served_is_refused_in_the_form_of_v0_with_what_is() -> None:
    response = codec.decode(m.ApiVersionsResponse, unsupported_version_reply(ROUTES), 0)
    assert response.error_code == Error.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]
