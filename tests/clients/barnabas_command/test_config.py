"""`barnabas config` on a real node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.clients.barnabas_command.command import Barnabas


@pytest.fixture
def orders(barnabas: Barnabas, topic: str) -> str:
    barnabas.printed("topic", "create", topic)
    return topic


def test_a_setting_is_set_shown_and_taken_back(barnabas: Barnabas, orders: str) -> None:
    place = ("topic", orders)
    done = barnabas.printed("config", "set", *place, "retention.ms=7d", "segment.bytes=64MiB")
    assert done.splitlines() == [
        f"topic {orders}: retention.ms = 604800000 (was 604800000)",
        f"topic {orders}: segment.bytes = 67108864 (was 1073741824)",
    ]
    heading, columns, *rows = barnabas.printed("config", "describe", *place).splitlines()
    assert heading.startswith(f"topic {orders}  ")
    assert columns.split() == ["setting", "value", "is", "from", "default"]
    assert [row.split() for row in rows if row.startswith("segment")] == [
        ["segment.bytes", "67108864", "64", "MiB", "this", "topic", "1073741824"]
    ]
    assert "min.compaction.lag.ms" not in barnabas.printed("config", "describe", *place)
    assert "min.compaction.lag.ms" in barnabas.printed("config", "describe", *place, "--all")

    assert barnabas.printed("config", "unset", *place, "segment.bytes") == (
        f"topic {orders}: segment.bytes is unset, back to 1073741824 (was 67108864)\n"
    )
    assert barnabas.printed("config", "unset", *place, "segment.bytes") == (
        f"topic {orders}: segment.bytes was not set: it is 1073741824 by default\n"
    )


def test_one_setting_is_shown_with_what_it_is_for(barnabas: Barnabas, orders: str) -> None:
    barnabas.printed("config", "set", "topic", orders, "segment.bytes=1MiB")
    lines = barnabas.printed("config", "describe", "topic", orders, "segment.bytes").splitlines()
    assert lines[:4] == [
        "segment.bytes = 1048576 (1 MiB)",
        "  from: this topic",
        "  default: 1073741824",
        "  otherwise: log.segment.bytes = 1073741824 (default)",
    ]
    assert len(lines[4].split()) > 3
    (described,) = barnabas.facts("config", "describe", "topic", orders, "segment.bytes")
    (setting,) = described["settings"]
    assert (described["kind"], described["name"]) == ("topic", orders)
    assert setting.pop("documentation")
    assert setting == {
        "name": "segment.bytes",
        "value": "1048576",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "default": "1073741824",
        "read_only": False,
        "sensitive": False,
    }


def test_brokers_groups_and_client_metrics_have_settings_too(barnabas: Barnabas, group: str) -> None:
    places = [
        (("broker", "default"), "log.retention.bytes=1GiB", "1073741824"),
        (("broker", "1"), "log.cleaner.io.buffer.load.factor=0.8", "0.8"),
        (("group", group), "consumer.session.timeout.ms=50s", "50000"),
        (("client-metrics", group), "interval.ms=10s", "10000"),
    ]
    for place, setting, value in places:
        name = setting.partition("=")[0]
        (change,) = barnabas.facts("config", "set", *place, setting)["changes"]
        assert (change["name"], change["after"]) == (name, value)
        assert barnabas.facts("config", "describe", *place, name)[0]["settings"][0]["value"] == value
        listed = {each["name"]: each for each in barnabas.facts("config", "describe", place[0])}
        assert name in {each["name"] for each in listed[place[1]]["settings"]}
        barnabas.printed("config", "unset", *place, name)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("set", "topic", "ORDERS", "retnetion.ms=1"), "no setting 'retnetion.ms' of a topic (did you mean 'retention"),
        (("describe", "topic", "ORDERS", "retnetion.ms"), "of a topic (did you mean 'retention.ms'?)"),
        (("unset", "topic", "ORDERS", "xyzzy"), "(`barnabas config describe … --all` lists them)"),
        (("set", "broker", "default", "log.retention.byte=1"), "did you mean 'log.retention.bytes'?"),
        (("set", "broker", "1", "advertised.listeners=x"), "cannot be changed while a node runs"),
        (("set", "broker", "7", "num.io.threads=1"), "broker '7' does not exist (known: 1, default)"),
        (("set", "topic", "ORDERS", "cleanup.policy=x"), "INVALID_CONFIG: Invalid value x for configuration"),
        (("set", "topic", "ORDERSx", "cleanup.policy=x"), "'ORDERSx' does not exist (did you mean"),
    ],
)
def test_what_cannot_be_is_answered_with_what_could(
    barnabas: Barnabas, orders: str, words: tuple[str, ...], complaint: str
) -> None:
    said = barnabas.complaint("config", *(word.replace("ORDERS", orders) for word in words))
    assert complaint.replace("ORDERS", orders) in said


def test_a_kind_that_has_no_settings_is_a_usage_error(barnabas: Barnabas) -> None:
    assert "invalid choice: 'topics'" in barnabas.complaint("config", "describe", "topics", code=2)
    assert "'retention.ms' is not of the form key=value" in barnabas.complaint(
        "config", "set", "topic", "t", "retention.ms", code=2
    )
