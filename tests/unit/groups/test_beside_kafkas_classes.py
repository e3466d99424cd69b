"""Assignments, hashes and regular expressions beside Apache Kafka's own classes, on inputs made up at random."""

from __future__ import annotations

import random
import string

import pytest

from barnabas.groups.assignors import ASSIGNORS
from barnabas.groups.consumer.metadata_hash import group_hash, topic_hash
from barnabas.groups.consumer.regex_subscriptions import check_regex, resolve_regex
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.uuids import Uuid, to_text
from tests.unit.groups.assignors.assignor_cases import random_case
from tests.unit.groups.consumer.test_consumer_regex import BAD_REGEXES
from tests.unit.groups.consumer.test_metadata_hash import brokers_in, topic_image
from tests.unit.groups.kafka_oracle import ask_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

ROUNDS = 200


def test_assignments_are_kafkas() -> None:
    cases = [
        (assignor, random_case(seed, equal_subscriptions=equal_subscriptions))
        for assignor in ASSIGNORS
        for equal_subscriptions in (True, False)
        for seed in range(ROUNDS)
    ]
    theirs = ask_kafka(case.question(assignor) for assignor, case in cases)
    for (assignor, case), answer in zip(cases, theirs, strict=True):
        assert ASSIGNORS[assignor](case.members, case.topics) == case.answer(answer), case.question(assignor)


def test_hashes_of_topics_are_kafkas() -> None:
    chance = random.Random(4)
    racks = ["a", "rack-1", "rack-10", "Ω", "￿", "𝄞"]
    brokers = brokers_in([None, *racks])
    topics = []
    for _ in range(ROUNDS):
        name = "".join(chance.choices(string.ascii_letters + "._-", k=chance.randint(1, 249)))
        replicas = [chance.sample(sorted(brokers), chance.randint(1, 4)) for _ in range(chance.randint(1, 30))]
        topics.append(topic_image(name, Uuid(chance.randbytes(16)), replicas))
    questions = [
        {
            "ask": "topic hash",
            "name": topic.name,
            "id": to_text(topic.topic_id),
            "racks": [
                [rack for replica in partition.replicas if (rack := brokers[replica].rack) is not None]
                for partition in topic.partitions
            ],
        }
        for topic in topics
    ]
    assert [topic_hash(topic, brokers) for topic in topics] == ask_kafka(questions)


def test_hashes_of_groups_are_kafkas() -> None:
    chance = random.Random(5)
    groups = [{f"t{n}": chance.randrange(-(2**63), 2**63) for n in range(count)} for count in range(40)]
    theirs = ask_kafka({"ask": "group hash", "topics": hashes} for hashes in groups)
    assert [group_hash([hashes[name] for name in sorted(hashes)]) for hashes in groups] == theirs


def test_regular_expressions_find_what_kafkas_find_and_are_refused_with_the_same_words() -> None:
    names = ["a", "ab", "orders", "orders.eu", "orders-2", "ORDERS", "__consumer_offsets"]
    good = [
        ".*",
        "a",
        "a|ab",
        "orders.*",
        "orders\\..*",
        "(?i)orders",
        "[a-b]+",
        "",
        "^a$",
        "o(rd)ers(-\\d)?",
        "_{2}.+",
    ]
    theirs = ask_kafka({"ask": "regex", "regex": regex, "names": names} for regex in [*good, *BAD_REGEXES])
    assert [sorted(resolve_regex(regex, names)) for regex in good] == [sorted(each) for each in theirs[: len(good)]]
    for regex, refusal in zip(BAD_REGEXES, theirs[len(good) :], strict=True):
        assert isinstance(refusal, str), f"Kafka accepts {regex}"
        with pytest.raises(KafkaError):
            check_regex(regex)
