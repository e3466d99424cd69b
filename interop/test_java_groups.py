"""The Java consumer in groups: every assignor of the classic protocol, and both of the broker's."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from interop.clusters import ON_BOTH

if TYPE_CHECKING:
    from interop.programs import Program

Settings = dict[str, str]

CLASSIC: Settings = {"group.protocol": "classic", "heartbeat.interval.ms": "300", "session.timeout.ms": "10000"}
CONSUMER: Settings = {"group.protocol": "consumer"}
BOTH_PROTOCOLS = pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])

PARTITIONS = {"large": 6, "small": 3}
RECORDS_PER_PARTITION = 10


def classic(assignor: str) -> Settings:
    return {**CLASSIC, "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}"}


def consumer(assignor: str) -> Settings:
    return {**CONSUMER, "group.remote.assignor": assignor}


ASSIGNORS = {
    "range": classic("RangeAssignor"),
    "roundrobin": classic("RoundRobinAssignor"),
    "sticky": classic("StickyAssignor"),
    "cooperative-sticky": classic("CooperativeStickyAssignor"),
    "server-side uniform": consumer("uniform"),
    "server-side range": consumer("range"),
}
"""Each with the name that the group's description gives it, after what the broker is asked for."""


def is_range(owned: list[list[str]]) -> bool:
    """Whether each member has neighbouring partitions of each topic."""
    for member in owned:
        for _, of_topic in itertools.groupby(member, lambda name: name.rpartition("-")[0]):
            numbers = sorted(int(name.rpartition("-")[2]) for name in of_topic)
            if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                return False
    return True


@pytest.fixture(scope="module", params=ASSIGNORS)
def assignment(request: pytest.FixtureRequest, java: Program) -> tuple[str, dict[str, Any]]:
    """What an assignor did with three members, and with the two that were left of them."""
    group = f"assigned-by-{request.param.replace(' ', '-')}"
    return request.param, java.run("assignment", group=group, settings=ASSIGNORS[request.param])


@ON_BOTH
def test_members_share_all_partitions_and_read_each_record_once(assignment: tuple[str, dict[str, Any]]) -> None:
    name, seen = assignment
    assert seen["described"] == {
        "assignor": name.removeprefix("server-side "),
        "state": "STABLE",
        "type": "CONSUMER" if name.startswith("server-side") else "CLASSIC",
        "members": 3,
    }
    topic = seen["joined"][0][0].rpartition("-")[0].rpartition("-")[0]
    assert seen["received"] == sorted(
        f"{topic}-{size}-{partition}@{offset}"
        for size, count in PARTITIONS.items()
        for partition in range(count)
        for offset in range(RECORDS_PER_PARTITION)
    )


@ON_BOTH
def test_an_assignor_keeps_to_its_rule_when_a_member_leaves(assignment: tuple[str, dict[str, Any]]) -> None:
    name, seen = assignment
    stayed = seen["joined"][1:]
    if "range" in name:
        assert is_range(seen["joined"])
        assert is_range(seen["remaining"])
    if name in ("sticky", "cooperative-sticky", "server-side uniform"):
        for before, after in zip(stayed, seen["remaining"], strict=True):
            assert set(before) <= set(after)
    if name in ("range", "roundrobin", "sticky"):
        assert [sorted(each) for each in seen["revoked"]] == stayed
    if name in ("cooperative-sticky", "server-side uniform"):
        assert seen["revoked"] == [[], []]


@BOTH_PROTOCOLS
def test_a_pattern_takes_up_topics_that_are_made_later(java: Program, group: str, settings: Settings) -> None:
    seen = java.run("pattern", group=group, settings=settings)
    assert seen["before"] == [f"{group}-one-0", f"{group}-one-1"]
    assert seen["after"] == [f"{group}-one-0", f"{group}-one-1", f"{group}-two-0"]


def test_a_pattern_that_the_broker_resolves_takes_up_topics_too(java: Program, group: str) -> None:
    seen = java.run("server-side-pattern", group=group, settings=CONSUMER)
    assert seen["before"] == [f"{group}-one-0", f"{group}-one-1"]
    assert seen["after"] == [f"{group}-one-0", f"{group}-one-1", f"{group}-two-0"]


def test_a_pattern_that_is_none_is_refused(java: Program, group: str) -> None:
    assert java.run("bad-pattern", group=group, settings=CONSUMER) == "InvalidRegularExpression"


@ON_BOTH
@BOTH_PROTOCOLS
def test_a_static_member_that_comes_back_keeps_its_partitions(java: Program, group: str, settings: Settings) -> None:
    seen = java.run("static-member", group=group, settings=settings)
    assert seen["after"] == seen["before"]
    assert seen["revoked"] == []
    assert len(set(seen["generations"])) == 1


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        pytest.param(CLASSIC, {"older": "FencedInstanceIdException", "newer": "none"}, id="classic"),
        pytest.param(CONSUMER, {"older": "none", "newer": "UnreleasedInstanceIdException"}, id="consumer"),
    ],
)
def test_of_two_static_members_of_one_name_one_is_refused(
    java: Program, group: str, settings: Settings, refused: dict[str, str]
) -> None:
    assert java.run("duplicate-instance", group=group, settings=settings) == refused
